"""The loop: exact sums, limits, validation apart from training, and errors that help."""

import os
import re
import shutil
import signal
import threading
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file

from foveate.config import ConfigError
from foveate.data.batches import BatchPlan, Indices
from foveate.tasks.base import Loss
from foveate.train import checkpoint
from foveate.train.checkpoint import TrainState
from foveate.train.config import TrainConfig
from foveate.train.distributed import Interrupt, Ranks
from foveate.train.feed import Feed, PlannedBatch, batches_of_steps, make_step, mix
from foveate.train.fit import Outcome
from foveate.train.journal import read
from foveate.train.stored import WEIGHTS, TrainError
from tolerances import MODEL, close, near
from train_toy import Toy, ToyCopy, ToyModel, content, final, toy_config


class InOrder:
    """32 examples in the order of the data, ``batch_tokens`` of them in a batch."""

    def __init__(self, lengths: NDArray[np.int32], batch_tokens: int, seed: int) -> None:
        self.batches = [np.arange(i, i + batch_tokens) for i in range(0, 32, batch_tokens)]

    def epoch(self, number: int, /) -> list[Indices]:
        return self.batches


def weights(run: Path) -> dict[str, torch.Tensor]:
    """The last weights, each of them once."""
    tensors = load_file(checkpoint.path_of(run, checkpoint.steps(run)[-1]) / WEIGHTS)
    return {name: tensor for name, tensor in tensors.items() if name != "seen"}


def test_accumulating_four_eights_is_one_thirty_two(tmp_path: Path) -> None:
    """Ragged batches of unlike token counts: only sums over counts agree."""
    sgd = {"optimizer": {"kind": "sgd", "lr": 0.5}, "max_steps": 3, "clip_norm": 0.7}
    four_eights = {"batch_tokens": 8, "accumulate": 4}
    for name, changes in {"one": {"batch_tokens": 32}, "four": four_eights}.items():
        Toy(tmp_path / name, toy_config(**sgd, **changes), dropout=0.0, plan=InOrder).train()
    four = weights(tmp_path / "four")
    for name, value in weights(tmp_path / "one").items():
        close(four[name], value, why=name)
    lines = [next(x for x in read(tmp_path / n) if x["event"] == "train") for n in ("one", "four")]
    assert lines[0]["target_tokens"] == lines[1]["target_tokens"]
    assert lines[0]["loss"] == near(lines[1]["loss"])
    assert lines[0]["grad_norm"] == near(lines[1]["grad_norm"], terms=MODEL)


@pytest.mark.parametrize("clip", [0.1, None])
def test_clipping_bounds_the_step(tmp_path: Path, clip: float | None) -> None:
    torch.manual_seed(11)
    before = ToyModel().state_dict()
    sgd = {"optimizer": {"kind": "sgd", "lr": 1.0}, "schedule": "constant"}
    config = toy_config(**sgd, max_steps=1, log_every=1).model_copy(update={"clip_norm": clip})
    Toy(tmp_path, config).train()
    changes = (value - before[name] for name, value in weights(tmp_path).items())
    moved = sum(float(change.square().sum()) for change in changes) ** 0.5
    norm = next(line for line in read(tmp_path) if line["event"] == "train")["grad_norm"]
    assert norm > 0.1
    assert moved == near(norm if clip is None else clip, terms=MODEL)


def test_validation_and_saving_disturb_nothing(tmp_path: Path) -> None:
    Toy(tmp_path / "much", toy_config(validation={"every": 1}, save={"every": 1})).train()
    quiet = toy_config(save={"every": 12}, validation={"every": "none"})
    Toy(tmp_path / "none", quiet).train()
    assert final(tmp_path / "much") == final(tmp_path / "none")
    assert not [x for x in read(tmp_path / "none") if x["event"] == "valid"]


STILL = {"optimizer": {"kind": "sgd", "lr": 1e-12}, "save": {"best": "accuracy"}}


@pytest.mark.parametrize(
    "changes",
    [{"max_steps": 5}, {"max_epochs": 1}, {"max_tokens": 50},
     {"validation": {"every": 1, "patience": 1}} | STILL],
)  # fmt: skip
def test_a_finished_run_is_saved_and_says_what_lets_it_go_on(tmp_path, changes, capsys) -> None:
    config = toy_config(**({"max_steps": 30} | changes))
    outcome = Toy(tmp_path, config).train()
    state = outcome.state
    assert outcome.exit_code == 0
    assert checkpoint.steps(tmp_path)[-1] == state.validated == state.step
    if outcome.reason == "max_epochs":
        assert (state.epoch, state.position) == (1, 0)
    log, weights, _ = read(tmp_path), final(tmp_path), capsys.readouterr()
    again = Toy(tmp_path, config).train()
    assert (again.reason, again.weights) == (outcome.reason, outcome.weights)
    assert (read(tmp_path), final(tmp_path)) == (log, weights)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path} is finished: {state.step} steps in 0:")
    key, value = re.search(r"raise it \(train\.(\S+)=(\d+)\)", line).groups()
    assert key.rpartition(".")[2] == outcome.reason
    longer = config.tree()
    (longer["validation"] if "patience" in key else longer)[outcome.reason] = int(value)
    assert Toy(tmp_path, TrainConfig.parse(longer)).train().state.step > state.step


def test_what_is_due_after_the_last_step_is_not_finished() -> None:
    state = TrainState(1, "", step=5, seconds=61.0, validated=5)
    assert state.finished(toy_config(max_minutes=1)) == "max_minutes"
    assert state.finished(toy_config(max_minutes=2)) is None
    state.validated = 4
    assert state.finished(toy_config(max_minutes=1)) is None


def test_without_a_limit_nothing_begins(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set max_steps"):
        Toy(tmp_path, TrainConfig()).train()


def test_patience_counts_validations_without_a_new_best(tmp_path: Path) -> None:
    patient = STILL | {"validation": {"every": 1, "patience": 3}}
    outcome = Toy(tmp_path, toy_config(max_steps=50, **patient)).train()
    assert (outcome.reason, outcome.state.step, outcome.state.stale) == ("patience", 4, 3)
    assert outcome.state.best is not None and outcome.state.best.step == 1
    assert outcome.weights == checkpoint.path_of(tmp_path, 1)  # kept beyond the last ones


def test_last_and_best_are_kept_and_nothing_else(tmp_path: Path) -> None:
    def worse(what: str, number: int) -> None:
        if what == "measure" and number > 1:
            toy.model.output.bias.data += 5 * torch.randn(12)

    config = toy_config(max_steps=20, save={"every": 2, "keep": 3}, validation={"every": 5})
    toy = Toy(tmp_path, config, before=worse)
    outcome = toy.train()
    assert outcome.state.best is not None
    assert set(checkpoint.steps(tmp_path)) == {16, 18, 20, outcome.state.best.step}
    assert outcome.state.best.step == 5


def test_a_figure_that_is_not_measured_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"'bleu' is not measured by this task: accuracy, loss"):
        Toy(tmp_path, toy_config(save={"best": "bleu"})).train()


@pytest.mark.parametrize("where", ["weights", "forward", "backward"])
def test_a_gradient_that_is_not_finite_is_explained(tmp_path: Path, where: str) -> None:
    def poison(what: str, number: int) -> None:
        if (what, number) != ("loss", 7):  # the first is the rehearsal's
            return
        if where == "weights":
            toy.model.gru.bias_hh_l0.data[0] = float("nan")
        if where == "forward":
            toy.model.norm.register_forward_hook(lambda m, i, o: o * float("inf"))
        if where == "backward":
            toy.model.gru.weight_ih_l0.register_hook(lambda grad: grad * float("nan"))

    toy = Toy(tmp_path, toy_config(), before=poison)
    with pytest.raises(TrainError) as error:
        toy.train()
    message = str(error.value)
    assert message.startswith("step 6, epoch 0, training examples [")
    expected = {
        "weights": "the weights gru.bias_hh_l0 are not finite",
        "forward": "norm is the first whose output is not finite",
        "backward": "the loss is finite, but the gradient of gru.weight_ih_l0 is not",
    }
    assert expected[where] in message and "the learning rate (0.02 here) is too high" in message
    assert "the checkpoint of step 4 is kept" in message
    assert checkpoint.newest_sound(tmp_path) == (4, [])


def test_batches_without_targets_are_named(tmp_path: Path, monkeypatch) -> None:
    empty = lambda self, model, batch, objective: Loss(model(batch.tokens).sum(), 0)  # noqa: E731
    monkeypatch.setattr(ToyCopy, "loss", empty)
    with pytest.raises(TrainError, match="step 1 has no targets: epoch 0, training examples"):
        Toy(tmp_path, toy_config()).train()


def test_the_log_counts_real_targets(tmp_path: Path) -> None:
    outcome = Toy(tmp_path, toy_config(log_every=1)).train()
    lines = [line for line in read(tmp_path) if line["event"] == "train"]
    assert [line["step"] for line in lines] == list(range(1, 13))
    counts = np.diff([0, *(line["target_tokens"] for line in lines)])
    assert (counts > 0).all() and counts.sum() == outcome.state.targets
    assert all(line["tokens_per_second"] > 0 and line["memory_mib"] > 0 for line in lines)
    assert [line["loss"] for line in lines] == [line["nll"] for line in lines]
    assert lines[0]["lr"] == pytest.approx(0.02 / 3) and lines[5]["lr"] == 0.02


# The feed: each batch once and in order, from any place, and errors that come through.
class Numbers:
    """Epoch e has e % 3 + 2 batches, each of one number that says which it is."""

    def epoch(self, number: int, /) -> list[Indices]:
        return [np.array([100 * number + i]) for i in range(number % 3 + 2)]


@given(accumulate=st.integers(1, 7), epochs=st.integers(1, 6), skip=st.integers(0, 20))
def test_skipped_batches_change_no_later_one(accumulate: int, epochs: int, skip: int) -> None:
    whole = list(batches_of_steps(Numbers(), accumulate, (0, 0), epochs))
    flat = [int(batch.indices[0]) for step in whole for batch in step]
    assert flat == [int(b[0]) for e in range(epochs) for b in Numbers().epoch(e)]
    assert all(len(step) == accumulate for step in whole[:-1])
    assert all(int(batch.indices[0]) // 100 == batch.epoch for step in whole for batch in step)
    skip = min(skip, len(whole) - 1)
    rest = list(batches_of_steps(Numbers(), accumulate, whole[skip][-1].after, epochs))
    assert [str(step) for step in rest] == [str(step) for step in whole[skip + 1 :]]


@given(batches=st.integers(1, 9), world=st.integers(1, 5))
def test_ranks_share_a_step(batches: int, world: int) -> None:
    """Each batch counts once, with the seed that one process gives it; all end in as many."""
    step = [PlannedBatch(np.array([n]), 0, (0, n + 1)) for n in range(batches)]
    task = ToyCopy(ToyCopy.Config())
    alone = make_step(task, 7, step, 3)
    shares = [make_step(task, 7, step, 3, rank, world) for rank in range(world)]
    assert len({len(share.micro_batches) for share in shares}) == 1
    assert all(share.after == alone.after for share in shares)
    ends = [[micro.last for micro in share.micro_batches] for share in shares]
    assert all(end == [False] * (len(end) - 1) + [True] for end in ends)
    seeds = [micro.seed for share in shares for micro in share.micro_batches if micro.counts]
    assert sorted(seeds) == sorted(micro.seed for micro in alone.micro_batches)


def test_without_a_limit_epochs_go_on_and_a_plan_without_batches_is_an_error() -> None:
    assert len(list(islice(batches_of_steps(Numbers(), 2, (0, 0), None), 100))) == 100
    with pytest.raises(TrainError, match="epoch 0 has no batches"):
        next(batches_of_steps(SimpleNamespace(epoch=lambda number: []), 1, (0, 0), None))


def steps(task: ToyCopy, plan: Any, accumulate: int = 1, max_epochs: int | None = None) -> Any:
    batches = batches_of_steps(plan, accumulate, (0, 0), max_epochs)
    return (make_step(task, number, step, seed=3) for number, step in enumerate(batches, 1))


def test_noise_is_a_function_of_seed_epoch_and_index() -> None:
    task, plan = ToyCopy(ToyCopy.Config()), SimpleNamespace(epoch=lambda number: [np.array([5])])
    with Feed(steps(task, plan, 2, 2)) as feed:
        step = feed.next()
        again = task.batch("train", [5], noise=mix(3, "noise", 0))
        assert step.micro_batches[0].batch.tokens.tolist() == again.tokens.tolist()
        with pytest.raises(EOFError, match="the last epoch has ended"):
            feed.next()


def test_errors_come_through_and_the_thread_ends() -> None:
    def fail(what: str, number: int) -> None:
        if number == 3:
            raise ZeroDivisionError("third")

    plan = BatchPlan(ToyCopy(ToyCopy.Config()).lengths("train"), 40, 1)
    with Feed(steps(ToyCopy(ToyCopy.Config(), fail), plan)) as feed:
        assert [feed.next().number, feed.next().number] == [1, 2]
        with pytest.raises(ZeroDivisionError, match="third"):
            feed.next()
    with Feed(steps(ToyCopy(ToyCopy.Config()), plan)):  # closed while it has more to do
        assert [t for t in threading.enumerate() if t.name.startswith("foveate-feed")]
    assert not [t for t in threading.enumerate() if t.name.startswith("foveate-feed")]


def test_mixed_seeds_fit_a_generator() -> None:
    seeds = {mix(1, "step", n) for n in range(1000)}
    assert len(seeds) == 1000 and all(0 <= seed < 2**63 for seed in seeds)


# Signals: the first is kept, the second raises, and the handlers come back.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_kept_and_the_second_raises(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert interrupt.received is None
        os.kill(os.getpid(), number)
        assert interrupt.received == number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    with Interrupt() as interrupt:
        assert interrupt.unless(lambda: os.kill(os.getpid(), number)) is None
        assert interrupt.received == number
    assert signal.getsignal(number) == before


def test_other_threads_catch_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with Interrupt() as interrupt:
            seen.extend([interrupt.received, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, before]


@pytest.mark.parametrize(("kind", "steps"), [("cosine", 1000), ("linear", None)])
def test_the_schedule_follows_time_if_steps_lag(tmp_path, kind, steps, capsys, monkeypatch) -> None:
    """The rate is down when the minutes end; what is done again after a kill has the same rates."""
    run, killed = tmp_path / "run", tmp_path / "killed"
    config = toy_config(
        max_minutes=1, max_steps=steps, schedule={"kind": kind, "warmup_steps": 5}, log_every=1,
        save={"every": 5, "keep": 99}, validation={"every": 4}, average=3,
    )  # fmt: skip

    def train(folder: Path, seconds: float) -> Outcome:
        clock = count(0.0, seconds)  # a step looks at it once
        monkeypatch.setattr(Ranks, "agree", lambda self, now, received: (next(clock), received))
        return Toy(folder, config).train()

    outcome = train(run, 1)
    rates = [line["lr"] for line in read(run) if line["event"] == "train"]
    assert outcome.reason == "max_minutes" and 30 < outcome.state.step < 60
    assert max(rates) > 0.015 and rates[-1] < 0.001
    said = capsys.readouterr().err
    assert said.count("1,000 take 2") == 2  # after three seconds, and at the end
    assert said.count("in the 1 minutes of train.max_minutes") == 2
    assert said.count("the learning rate decays with the clock (train.max_minutes)") == 1

    shutil.copytree(run, killed)
    for step in checkpoint.steps(killed):
        if step > 15:
            shutil.rmtree(checkpoint.path_of(killed, step))
    train(killed, 2)  # on a slower machine
    again = [line["lr"] for line in read(killed) if line["event"] == "train"]
    assert 25 < len(again) < len(rates) and again == rates[: len(again)]
    assert content(checkpoint.path_of(killed, 25)) == content(checkpoint.path_of(run, 25))
