"""Laws of whole models: every family, every kind of part in one of them, every decoder alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import foveate
from foveate.look.hooks import capture
from foveate.models.classic import WindowDecoder
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder
from foveate.nn.attention import BaseAttention
from foveate.nn.context import DecoderState
from foveate.nn.efficient_attention import LowRankAttention
from foveate.nn.linear import Dropout
from foveate.nn.recurrent import LSTMCell
from foveate.nn.spec import Tokens
from laws.conftest import (
    MODELS,
    RECURRENT,
    SIZE,
    TRANSFORMER,
    VOCABULARY,
    build,
    changed,
    check_future,
    check_half_precision,
    check_saved,
    defaults,
    fresh,
    gradients_reach,
    ids,
    real,
    shrink,
)
from tolerances import MODEL, close, differ

LENGTHS = (6, 4, 5)
KEYS = real(*LENGTHS)
SOURCE, TARGET, TEXT = ids(3, 6), ids(3, 5, seed=2), ids(3, 9)


PLAIN = shrink(RecurrentDecoder.Config(num_layers=2, readout="state"))


def _language_models() -> dict[str, LanguageModel.Config]:
    decoders = {n: c for n, c in defaults("decoder").items() if n != "location"}
    for name, cell in defaults("cell").items():
        decoders[f"{name}, plain"] = changed(PLAIN, cell=cell, embedding_size=SIZE)
    result = {name: LanguageModel.Config(decoder=config) for name, config in decoders.items()}
    for name, config in defaults("model").items():
        if issubclass(config.owner, LanguageModel):  # a read-out of another size has no table
            untied = getattr(config.decoder, "readout", "mixed") == "state"
            result[name] = changed(config, tie="none") if untied else config
    return result


LANGUAGE_MODELS = _language_models()
WRITERS: dict[str, Any] = MODELS | {f"language {n}": c for n, c in LANGUAGE_MODELS.items()}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> Any:
    """As `model`, and every decoder that can stand alone as a language model."""
    return fresh(WRITERS[request.param])


def inputs_of(model: Any) -> tuple[Tensor, ...]:
    return (SOURCE, TARGET, KEYS) if isinstance(model, EncoderDecoder) else (TEXT,)


@torch.no_grad()
def test_chunks_equal_the_whole_and_see_no_future_and_no_other_row(writer: Any) -> None:
    translates, rows = isinstance(writer, EncoderDecoder), torch.tensor([2, 0, 1])
    memory, text = (writer.encode(SOURCE, KEYS), TARGET) if translates else (None, TEXT)
    whole, count = writer.decode(text, memory), text.shape[1]
    close(writer.decode(text[rows], memory and memory.select(rows)), whole[rows])
    for chunks in ([1] * count, [count - 2, 2], [1, count - 1], [2, *[1] * (count - 2)]):
        state = DecoderState()
        parts = [writer.decode(part, memory, state) for part in text.split(chunks, dim=1)]
        close(torch.cat(parts, dim=1), whole)
        assert state.position == count
    check_future(lambda read: writer.logits(writer.decode(read, memory)), text, 3)


@torch.no_grad()
def test_neither_padding_nor_other_rows_change_anything(model: EncoderDecoder) -> None:
    logits = model(SOURCE, TARGET, KEYS)
    for row, length in enumerate(LENGTHS):
        close(model(SOURCE[row : row + 1, :length], TARGET[row : row + 1])[0], logits[row])
    other = torch.where(KEYS, SOURCE, torch.ones_like(SOURCE))
    assert torch.equal(model(other, TARGET, KEYS), logits)
    assert differ(model(SOURCE.roll(1, 0), TARGET, KEYS.roll(1, 0)), logits), "deaf to the source"
    close(model(SOURCE, TARGET, torch.ones_like(KEYS)), model(SOURCE, TARGET))


@torch.no_grad()
def test_hypotheses_of_a_source_share_its_memory(model: EncoderDecoder) -> None:
    memory, hypotheses = model.encode(SOURCE, KEYS), ids(6, 4, seed=3)
    each_its_own = memory.select(torch.arange(3).repeat_interleave(2))
    expanded = model.decode(hypotheses, each_its_own)
    close(model.decode(hypotheses, memory), expanded)
    state = DecoderState()
    steps = [model.decode(hypotheses[:, t : t + 1], memory, state) for t in range(4)]
    close(torch.cat(steps, dim=1), expanded)


@torch.no_grad()
def test_steps_follow_reordered_hypotheses_and_the_sources_that_are_left(model) -> None:
    steps = DecoderSteps(model, model.encode(SOURCE, KEYS))
    first, second, third = ids(3, seed=3), ids(6, seed=4), ids(4, seed=5)
    steps.step(first)
    steps.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))
    steps.step(second)
    steps.reorder(torch.tensor([1, 0, 5, 5]))
    steps.select(torch.tensor([0, 2]))
    result = steps.step(third)
    sources = torch.tensor([0, 0, 2, 2])
    read = torch.stack((first[sources], second[[1, 0, 5, 5]], third), dim=1)
    close(result, model(SOURCE[sources], read, KEYS[sources])[:, -1])


def test_every_parameter_receives_a_gradient(writer: Any) -> None:
    texts = [ids(2, 24, seed=n) for n in (1, 2)]  # as long as places are told apart
    writer(*texts[: 2 if isinstance(writer, EncoderDecoder) else 1]).square().sum().backward()
    gradients_reach(writer)


def test_half_precision_trains(writer: Any) -> None:
    check_half_precision(writer, *inputs_of(writer))


def test_saved_and_loaded_weights_give_the_same_output(writer: Any, tmp_path: Path) -> None:
    check_saved(writer, build(writer.config, seed=1), tmp_path, *inputs_of(writer))


@pytest.mark.parametrize("name", sorted(set(defaults("model")) & set(MODELS)))
def test_dropout_is_random_in_training_and_absent_in_use(name: str) -> None:
    model = build(MODELS[name])
    parts = [m for m in model.modules() if isinstance(m, Dropout)]
    for part in parts:
        part.p = 0.2
    with torch.no_grad():
        assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
        model.train()
        assert not torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
        torch.manual_seed(0)
        once = model(SOURCE, TARGET)
        torch.manual_seed(0)
        assert torch.equal(model(SOURCE, TARGET), once)


@torch.no_grad()
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_memory_is_constant_where_a_decoder_says_so(name: str) -> None:
    language_model, state, sizes = fresh(LANGUAGE_MODELS[name]), DecoderState(), []
    for part in ids(1, 24).split(8, dim=1):
        language_model.decode(part, state=state)
        sizes.append(state.numbers)
    assert (len(set(sizes)) == 1) == language_model.decoder.constant_memory


@torch.no_grad()
def test_captured_rows_sum_to_one_and_are_zero_where_masked(model: EncoderDecoder) -> None:
    plain = model(SOURCE, TARGET, KEYS)
    with capture(model) as maps:
        assert torch.equal(model(SOURCE, TARGET, KEYS), plain), "looking changed a number"
    attentions = {n: m for n, m in model.named_modules() if isinstance(m, BaseAttention)}
    assert set(maps) == set(attentions)
    for name, weights in maps.items():
        own, decoder = name.endswith("self_attention"), not name.startswith("encoder")
        queries, keys = 5 if decoder else 6, 5 if decoder and own else 6
        assert weights.shape == (3, attentions[name].num_heads, queries, keys)
        if not isinstance(attentions[name], LowRankAttention):  # mixtures have any sign and sum
            close(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
        if decoder and own:
            assert bool((weights.triu(1) == 0).all()), name
        else:
            assert bool((weights.transpose(1, 3)[~KEYS] == 0).all()), name
    for name in [name for name in maps if name.endswith("cross_attention")][:1]:
        attentions[name].tap = lambda weights: weights * 0
        assert differ(model(SOURCE, TARGET, KEYS), plain), "a silenced head is missing"
        attentions[name].tap = None
        assert torch.equal(model(SOURCE, TARGET, KEYS), plain)


def test_tied_tables_are_one_where_their_shapes_are() -> None:
    encoder, decoder = TRANSFORMER
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie="all")
    model, inputs, free = (build(changed(config, tie=tie)) for tie in ("all", "inputs", "none"))
    table = model.output.weight
    assert model.encoder.embedding.weight is table
    assert model.decoder.embedding.weight is table
    assert inputs.encoder.embedding.weight is inputs.decoder.embedding.weight
    assert inputs.output.weight is not inputs.decoder.embedding.weight
    shared = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in free.parameters()) == shared + 2 * VOCABULARY * SIZE
    with pytest.raises(ValueError, match=r"source embedding is \(31, 16\).*\(30, 16\).*joint"):
        config.build(Tokens(31), Tokens(30))
    with pytest.raises(ValueError, match=r'\(30, 16\).*\(30, 12\).*model\.tie = "none"'):
        build(changed(config, decoder=RECURRENT[1]))


@torch.no_grad()
@pytest.mark.parametrize("order", [2, 3, 5])
def test_a_window_of_n_sees_n_minus_1_tokens(order: int) -> None:
    """Changing any older token leaves the prediction bit-identical; the oldest seen changes it."""
    config = shrink(WindowDecoder.Config()).model_copy(update={"order": order})
    model = build(LanguageModel.Config(decoder=config))
    before = model(TEXT)[:, -1]
    for place in range(9):
        other = TEXT.clone()
        other[:, place] = 4 + (other[:, place] - 3) % (VOCABULARY - 4)
        assert torch.equal(model(other)[:, -1], before) == (place <= 8 - (order - 1)), place


REFUSED = [
    (RecurrentDecoder.Config(attention=RecurrentAttention(), readout="state"), 8, 'use "mixed"'),
    (changed(PLAIN, bridge=defaults("bridge")["states"]), None, "language model has no source"),
    (defaults("decoder")["location"], None, 'language model lacks; use "recurrent"'),
]
for _config in defaults("decoder").values():
    if not _config.owner.reads_memory:
        REFUSED.append((_config, 8, "reads only its own output and has no attention to a source"))


@pytest.mark.parametrize(("config", "memory_size", "why"), REFUSED)
def test_a_decoder_refuses_a_source_or_none(config, memory_size, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        config.build(Tokens(9), memory_size)


def test_the_fused_lstm_is_the_explicit_one() -> None:
    """Outputs, last states and every gradient."""
    cell, x = LSTMCell.Config().build(5, 6), torch.randn(3, 7, 5, requires_grad=True)
    hidden = torch.randn(3, 6), torch.randn(3, 6)
    result = []
    for run in (cell.run, super(LSTMCell, cell).run):
        outputs, last = run(x, hidden)
        expected = [x, *cell.parameters()]
        grads = torch.autograd.grad(outputs.square().sum() + last[1].sum(), expected)
        result.append([outputs, *last, *grads])
    close(result[0], result[1], terms=MODEL)


CHECKED = ("nn", "models", "look", "spec", "decode.forced", "tasks.objective")
SHAPES = f"""
from jaxtyping import install_import_hook
with install_import_hook({[f"foveate.{name}" for name in CHECKED]}, "beartype.beartype"):
    from laws.conftest import MODELS, build, ids, real
from foveate.decode.search import (token_log_probabilities)
from foveate.look.hooks import capture
from foveate.tasks.objectives import CrossEntropy
source, target, keys, objective = ids(2, 5), ids(2, 3), real(5, 3), CrossEntropy.Config().build()
for config in MODELS.values():
    model = build(config).train()
    hidden = model.decode(target, model.encode(source, keys))
    objective(hidden.flatten(0, 1), model.output.weight, target.flatten()).total.backward()
    with capture(model):
        token_log_probabilities(model(source, target), target)
"""


@pytest.mark.scale
def test_shapes_in_signatures_hold() -> None:
    pytest.importorskip("beartype")
    paths = [str(Path(foveate.__file__).parents[1]), str(Path(__file__).parents[1])]
    code = f"import sys; sys.path[:0] = {paths}\n{SHAPES}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
