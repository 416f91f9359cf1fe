"""Laws of whole models: every family, and every kind of part in one of them."""

import itertools
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import foveate
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Memory, Model
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.nn.attention import BaseAttention
from foveate.nn.context import DecoderState
from foveate.nn.efficient_attention import LowRankAttention
from foveate.nn.linear import Dropout
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
    check_saved,
    defaults,
    gradients_reach,
    ids,
    real,
)
from tolerances import close, differ

LENGTHS = (6, 4, 5)
KEYS = real(*LENGTHS)
SOURCE, TARGET = ids(3, 6), ids(3, 5, seed=2)


@torch.no_grad()
def test_whole_equals_step_by_step_equals_chunks(model: EncoderDecoder) -> None:
    memory = model.encode(SOURCE, KEYS)
    whole = model.decode(TARGET, memory)
    for chunks in ([1] * 5, [3, 2], [1, 4], [2, 1, 1, 1]):
        state = DecoderState()
        parts = [model.decode(part, memory, state) for part in TARGET.split(chunks, dim=1)]
        close(torch.cat(parts, dim=1), whole)
        assert state.position == 5


@torch.no_grad()
def test_the_future_leaves_the_past_bit_equal(model: EncoderDecoder) -> None:
    check_future(lambda target: model(SOURCE, target, KEYS), TARGET, 3)


@torch.no_grad()
def test_padding_changes_nothing(model: EncoderDecoder) -> None:
    logits = model(SOURCE, TARGET, KEYS)
    for row, length in enumerate(LENGTHS):
        close(model(SOURCE[row : row + 1, :length], TARGET[row : row + 1])[0], logits[row])


@torch.no_grad()
def test_what_stands_in_padding_changes_no_bit(model: EncoderDecoder) -> None:
    other = torch.where(KEYS, SOURCE, torch.ones_like(SOURCE))
    assert torch.equal(model(SOURCE, TARGET, KEYS), model(other, TARGET, KEYS))
    full = torch.ones_like(KEYS)
    close(model(SOURCE, TARGET, full), model(SOURCE, TARGET))


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other(model: EncoderDecoder) -> None:
    rows = torch.tensor([2, 0, 1])
    permuted = model(SOURCE[rows], TARGET[rows], KEYS[rows])
    close(permuted, model(SOURCE, TARGET, KEYS)[rows])


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


def test_every_parameter_receives_a_gradient(model: EncoderDecoder) -> None:
    source, target = ids(2, 24), ids(2, 24, seed=2)  # as long as places are told apart
    model(source, target).square().sum().backward()
    gradients_reach(model)


def test_half_precision_trains(model: EncoderDecoder) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(SOURCE, TARGET, KEYS)
    logits.float().square().mean().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(bool(grad.isfinite().all()) for grad in grads)
    exact = model(SOURCE, TARGET, KEYS).detach()
    assert float((logits.detach().float() - exact).abs().mean()) < 0.1 * float(exact.std())


def test_saved_and_loaded_weights_give_the_same_output(model: EncoderDecoder, tmp_path) -> None:
    torch.manual_seed(1)
    other = model.config.build(Tokens(VOCABULARY), Tokens(VOCABULARY)).eval()
    check_saved(model, other, tmp_path, SOURCE, TARGET, KEYS)


@pytest.mark.parametrize("name", MODELS)
def test_config_to_toml_to_config(name: str) -> None:
    assert Model.Config.parse(tomllib.loads(MODELS[name].toml())) == MODELS[name]


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


@torch.no_grad()
def test_a_silenced_head_is_missing_from_the_output(model: EncoderDecoder) -> None:
    looking = [m for n, m in model.named_modules() if n.endswith("cross_attention")]
    if not looking:
        pytest.skip("looks at nothing")
    plain = model(SOURCE, TARGET, KEYS)
    looking[0].tap = lambda weights: weights * 0
    silenced = model(SOURCE, TARGET, KEYS)
    assert differ(silenced, plain)
    looking[0].tap = None
    assert torch.equal(model(SOURCE, TARGET, KEYS), plain)


def recurrent_decoders() -> dict[str, Any]:
    """Every cell, without attention and with it in both orders."""
    cells = defaults("cell")
    result = {
        f"{cell} {query}": changed(
            RECURRENT[1], cell=chosen, attention=RecurrentAttention(query=query)
        )
        for (cell, chosen), query in itertools.product(cells.items(), ("previous", "current"))
    }
    return result | {
        f"{cell} alone": changed(RECURRENT[1], cell=chosen, attention=None)
        for cell, chosen in cells.items()
    }


def test_every_encoder_goes_with_every_decoder() -> None:
    encoders = defaults("encoder") | {
        f"{cell} {bidirectional}": changed(RECURRENT[0], cell=chosen, bidirectional=bidirectional)
        for (cell, chosen), bidirectional in itertools.product(
            defaults("cell").items(), (False, True)
        )
    }
    encoders["post-norm"] = changed(TRANSFORMER[0], norm_order="post")
    known = {n: c for n, c in defaults("decoder").items() if c.owner.reads_memory}
    decoders = known | recurrent_decoders()
    decoders["post-norm"] = changed(TRANSFORMER[1], norm_order="post")
    for encoder, decoder in itertools.product(encoders, decoders):
        config = EncoderDecoder.Config(encoder=encoders[encoder], decoder=decoders[decoder])
        model = build(config)
        with torch.no_grad():
            logits = model(SOURCE, TARGET, KEYS)
            assert logits.shape == (3, 5, VOCABULARY), (encoder, decoder)
            other = model(SOURCE.roll(1, 0), TARGET, KEYS.roll(1, 0))
            assert differ(logits, other), (encoder, decoder, "is deaf to the source")
            state, memory = DecoderState(), model.encode(SOURCE, KEYS)
            steps = [model.decode(TARGET[:, t : t + 1], memory, state) for t in range(5)]
            close(model.logits(torch.cat(steps, dim=1)), logits)


def test_a_decoder_that_reads_no_memory_says_so() -> None:
    deaf = {n: c for n, c in defaults("decoder").items() if not c.owner.reads_memory}
    assert deaf
    for decoder in deaf.values():
        with pytest.raises(ValueError, match="no attention to a source"):
            build(EncoderDecoder.Config(encoder=TRANSFORMER[0], decoder=decoder))


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("score", defaults("score").values(), ids=defaults("score"))
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_score_serves_a_recurrent_decoder(score, query, bidirectional) -> None:
    attention = RecurrentAttention(score=score, query=query)
    decoder = RecurrentDecoder.Config(
        embedding_size=12, hidden_size=SIZE, num_layers=2, attention=attention
    )
    encoder = RecurrentEncoder.Config(
        embedding_size=12, hidden_size=SIZE, bidirectional=bidirectional
    )
    model = build(EncoderDecoder.Config(encoder=encoder, decoder=decoder))
    with capture(model) as maps:
        model(SOURCE, TARGET, KEYS)
    assert maps["decoder.cross_attention"].shape == (3, 1, 5, 6)


def test_without_attention_the_last_state_is_all_that_is_known() -> None:
    without = changed(RECURRENT[1], attention=None)
    model = build(EncoderDecoder.Config(encoder=RECURRENT[0], decoder=without))
    memory = model.encode(SOURCE, KEYS)
    other = Memory(torch.full_like(memory.values, torch.nan), memory.source_mask, memory.final)
    assert torch.equal(model.decode(TARGET, memory), model.decode(TARGET, other))


def test_a_memory_of_no_recurrence_is_summed_up_by_its_mean() -> None:
    values = torch.randn(3, 6, 4)
    for row, length in enumerate(LENGTHS):
        expected = values[row, :length].mean(dim=0)
        close(Memory(values, KEYS).summary()[row], expected)
    close(Memory(values).summary(), values.mean(dim=1))


def test_tied_tables_are_one() -> None:
    model = build(EncoderDecoder.Config(encoder=TRANSFORMER[0], decoder=TRANSFORMER[1], tie="all"))
    table = model.output.weight
    assert model.encoder.embedding.weight is table
    assert model.decoder.embedding.weight is table
    free = build(EncoderDecoder.Config(encoder=TRANSFORMER[0], decoder=TRANSFORMER[1], tie="none"))
    assert free.output.weight is not free.decoder.embedding.weight
    shared = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in free.parameters()) == shared + 2 * VOCABULARY * SIZE


def test_tables_of_other_shapes_are_not_tied() -> None:
    config = EncoderDecoder.Config(encoder=TRANSFORMER[0], decoder=TRANSFORMER[1], tie="all")
    with pytest.raises(ValueError, match=r"source embedding is \(31, 16\).*\(30, 16\).*joint"):
        config.build(Tokens(31), Tokens(30))
    mixed = EncoderDecoder.Config(encoder=TRANSFORMER[0], decoder=RECURRENT[1], tie="all")
    with pytest.raises(ValueError, match=r'\(30, 16\).*\(30, 12\).*model\.tie = "none"'):
        build(mixed)


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
