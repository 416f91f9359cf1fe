"""What decoders read in training: every kind of choice with every model."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.run.training import Snapshots
from foveate.tasks.objectives import CrossEntropy, Objective
from foveate.tasks.teacher_forcing import (
    InverseSigmoidDecay,
    LinearDecay,
    OwnOutput,
    SamplingSchedule,
    Scheduled,
    TeacherForcing,
    autoregressive,
    second_pass,
    tokens_of,
)
from foveate.train.fit import fit
from foveate.train.trainer import Job
from laws.conftest import MODELS, build, defaults, each, ids, real
from train_toy import ToyCopy, ToyModel, toy_config

KEYS = real(5, 3, 4)
GOLD, SOURCE = ids(3, 6), ids(3, 5, seed=2)
GOLD[:, 0] = 2


LANGUAGE_MODELS = ("transformer", "recurrent", "mamba", "window")


def language_model(kind: str) -> LanguageModel:
    return build(LanguageModel.Config(decoder=defaults("decoder")[kind], tie="none"))


def gradients(model: EncoderDecoder, forcing: TeacherForcing.Config) -> list[Tensor]:
    """Loss and gradients of a step with dropout, which draws from the generator."""
    objective = CrossEntropy.Config(teacher_forcing=forcing).build()
    objective.advance(5)
    torch.manual_seed(3)
    memory = model.encode(SOURCE, KEYS)
    read = objective.read(lambda: tokens_of(model, memory), GOLD)
    hidden = torch.nn.functional.dropout(model.decode(read, memory)).flatten(0, 1)
    loss = objective(hidden, model.output.weight, GOLD.flatten())
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [loss.total, *torch.autograd.grad(loss.total, parameters, allow_unused=True)]


def test_epsilon_one_is_teacher_forcing_bit_for_bit(family: EncoderDecoder) -> None:
    plain = CrossEntropy.Config().teacher_forcing
    certain = Scheduled.Config(schedule=LinearDecay.Config(slope=0.0))
    for item, other in zip(gradients(family, plain), gradients(family, certain), strict=True):
        assert item is other is None or torch.equal(item, other)


@pytest.mark.parametrize("k", [1.0, 10.0, 1000.0])
def test_inverse_sigmoid_is_that_of_the_paper(k: float) -> None:
    """ε(i) = k / (k + exp(i / k)), 1/2 at i = k log k (Bengio et al., 2015)."""
    schedule = InverseSigmoidDecay.Config(rate=k).build()
    assert schedule.epsilon(0) == pytest.approx(k / (k + 1))
    assert schedule.epsilon(round(k * math.log(k))) == pytest.approx(0.5, abs=0.02)
    assert schedule.epsilon(10**9) == pytest.approx(0.0, abs=1e-6)


def test_every_choice_starts_right_and_keeps_the_shape(family: EncoderDecoder) -> None:
    memory = family.encode(SOURCE, KEYS)
    for config in defaults("teacher_forcing").values():
        read = config.build().read(tokens_of(family, memory), GOLD, 10**6)
        assert read.shape == GOLD.shape and read.dtype == GOLD.dtype
        assert torch.equal(read[:, 0], GOLD[:, 0])


def test_kept_tokens_are_the_true_ones_and_others_the_model_s_own(family: EncoderDecoder) -> None:
    memory = family.encode(SOURCE, KEYS)
    keep = torch.rand(GOLD.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    keep[:, 0] = True

    def expected(read: Tensor) -> Tensor:
        said = family.logits(family.decode(read, memory)).argmax(-1).roll(1, dims=1)
        return torch.where(keep, GOLD, said)

    tokens = tokens_of(family, memory)
    mixed = autoregressive(tokens, GOLD, keep, "greedy")
    assert torch.equal(mixed, expected(mixed))
    if family.decoder.parallel:
        assert torch.equal(second_pass(tokens, GOLD, keep, "greedy"), expected(GOLD))
    else:
        with pytest.raises(ValueError, match="no second pass"):
            second_pass(tokens, GOLD, keep, "greedy")


def test_own_generations_are_greedy_decoding(family: EncoderDecoder) -> None:
    memory = family.encode(SOURCE, KEYS)
    read = OwnOutput.Config().build().read(tokens_of(family, memory), GOLD, 1)
    steps, last = DecoderSteps(family, memory), GOLD[:, 0]
    for t in range(1, GOLD.shape[1]):
        last = steps.step(last).argmax(-1)
        assert torch.equal(read[:, t], last)


@each("sampling_schedule")
def test_schedules_fall_from_about_one(config: SamplingSchedule.Config) -> None:
    schedule = config.build()
    values = [schedule.epsilon(step) for step in (0, 1, 10, 1000, 10_000, 10**7)]
    assert values[0] == pytest.approx(1, abs=0.01)
    assert values == sorted(values, reverse=True) and values[-1] >= 0
    assert values[-1] < 0.6


def test_the_share_of_true_tokens_is_epsilon() -> None:
    model = build(MODELS["recurrent"])
    gold = torch.full((400, 20), 29)  # a token that this model does not say
    memory = model.encode(ids(400, 3))
    half = LinearDecay.Config(start=0.3, floor=0.0, slope=0.0)
    torch.manual_seed(0)
    forcing = Scheduled.Config(schedule=half, choose="sample").build()
    read = forcing.read(tokens_of(model, memory), gold, 1)
    share = float((read[:, 1:] == 29).float().mean())
    assert 0.3 <= share < 0.36


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_a_language_model_reads_its_own_text_after_what_is_given(kind: str) -> None:
    model = language_model(kind)
    prompt = torch.tensor([[2], [4], [3]])  # of each row
    read = OwnOutput.Config().build().read(tokens_of(model, prompt=prompt), GOLD, 1)
    said = model(read).argmax(-1)
    for row, first in enumerate(prompt.flatten().tolist()):
        assert torch.equal(read[row, :first], GOLD[row, :first])
        assert torch.equal(read[row, first:], said[row, first - 1 : -1])


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_probability_one_of_a_language_model_reads_no_truth(kind: str) -> None:
    """With ε = 0 a recurrent model reads what it writes, a Transformer what it says at once."""
    model, never = language_model(kind), LinearDecay.Config(start=0.0, floor=0.0, slope=0.0)
    read = Scheduled.Config(schedule=never).build().read(tokens_of(model), GOLD, 1)
    before = GOLD if model.decoder.parallel else read
    assert torch.equal(read[:, 1:], model(before).argmax(-1)[:, :-1])
    assert torch.equal(read[:, 0], GOLD[:, 0])


def test_padding_changes_nothing_that_is_read_before_it(family: EncoderDecoder) -> None:
    memory, forcing = family.encode(SOURCE, KEYS), OwnOutput.Config().build()
    padded = torch.nn.functional.pad(GOLD, (0, 3))
    short, long = (forcing.read(tokens_of(family, memory), ids, 1) for ids in (GOLD, padded))
    assert torch.equal(short, long[:, : GOLD.shape[1]])


class Recorder(Objective):
    """Notes the steps that it is told of."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def advance(self, step: int) -> None:
        self.steps.append(step)


def test_the_objective_knows_the_step_also_after_a_stop(tmp_path: Path) -> None:
    for limit, steps in ((5, [1, 2, 3, 4, 5]), (9, [6, 7, 8, 9])):
        recorder, task, model = Recorder(), ToyCopy(ToyCopy.Config()), ToyModel()
        snapshots = partial(Snapshots, task, model)
        job = Job(task, model, recorder, None, 3, "seed = 3\n", snapshots)
        fit(job, toy_config(max_steps=limit, accumulate=2), tmp_path)
        assert recorder.steps == steps
