"""What is printed is what is computed: the equation of every stage, evaluated from the inputs of
the stage and the weights, equals the numbers that stand beside it, for every registered kind; and
who captures stages changes no bit.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from equations import clauses_of, evaluated
from foveate.look.draw.blocks import blocks_of, equation_of
from foveate.look.stages import Stage, attention_stages, capture_stages, cell_stages
from foveate.models.encoder_decoder import Memory
from foveate.models.recurrent import RecurrentDecoder
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Mask
from foveate.nn.efficient_attention import BlockSparseAttention, LocalAttention
from foveate.nn.linear import BatchNorm, CappedLinear, FeedForward, Norm
from foveate.nn.positions import Position
from foveate.nn.recurrent import Cell
from foveate.nn.spec import Tokens
from foveate.nn.ssm import SSRU
from laws.conftest import changed, defaults

SIZE, HEADS, LENGTH = 16, 2, 5
HEAD = -1  # the last one
CLOSE = 1e-5
Array = Any


def close(shown: Array, computed: Array, what: str) -> None:
    shown, computed = np.ravel(shown).astype(float), np.ravel(computed).astype(float)
    finite = np.isfinite(shown)
    assert np.array_equal(shown[~finite], computed[~finite]), what
    far = max(1.0, np.abs(shown[finite]).max(initial=0))
    assert np.abs(shown[finite] - computed[finite]).max(initial=0) <= CLOSE * far, what


def array(x: Tensor) -> Array:
    return x.detach().double().numpy()


def weights_of(attention: BaseAttention, position: Position | None) -> dict[str, Array]:
    """The weights of a head by the symbols that stand for them."""
    symbols: dict[str, Array] = {"K": attention.key_size}
    heads, shared = attention.num_heads, attention.key_heads
    for name, count in {"query": heads, "key": shared, "value": shared, "output": 1}.items():
        part = getattr(attention, name)
        if isinstance(part, nn.Linear):
            symbols[f"W_{name[0]}"] = array(part.weight.chunk(count)[HEAD])
            if part.bias is not None:
                symbols[f"b_{name[0]}"] = array(part.bias.chunk(count)[HEAD])
    for name, part in attention.named_parameters():
        if name.endswith("_norm.norm.weight"):
            symbols |= {f"γ_{name[0]}": array(part), "ε": attention.config.head_norm.eps}
        if name.startswith("score."):
            symbols |= of_score(name.removeprefix("score."), array(part[HEAD]))
    if isinstance(attention, Attention) and hasattr(attention.score, "of_query"):
        both = attention.score.of_query[HEAD], attention.score.of_key[HEAD]
        symbols["W_a"] = array(torch.cat(both, dim=1))
    for name, symbol in {"key_places": "E_", "value_places": "F_", "directions": "Ω"}.items():
        if hasattr(attention, name):
            symbols[symbol] = array(getattr(attention, name))
    return symbols | ({} if position is None else of_position(position))


def of_score(name: str, part: Array) -> dict[str, Array]:
    """The parameters of scores: W of General, v of Additive, rows and biases of Location."""
    if name == "bias":
        return {"b_": part}
    return {"W": part, "v": part, "w_": part} if name == "weight" else {}


def frequency(config: Any, power: float) -> float:
    """base^(−power), divided by ``factor``: always, or as far as a pair is slow (Llama 3)."""
    omega: float = config.base**-power
    share = 1.0 if config.kind == "rope" else 0.0  # that is not slowed
    if config.kind == "rope_llama3":
        turns = config.length * omega / (2 * np.pi)
        share = min(max((turns - config.low) / (config.high - config.low), 0), 1)
    return omega * (share + (1 - share) / getattr(config, "factor", 1.0))


def of_position(position: Position) -> dict[str, Array]:
    """R_t turns the pair (x_i, x_{i+K/2}) by the angle t / base^(2i/K); m_h and b are weights."""
    symbols: dict[str, Array] = {}
    if hasattr(position, "slopes"):
        symbols["m_h"] = float(position.slopes[HEAD])
    if hasattr(position, "buckets"):
        symbols["B"] = array(position.table.weight[:, HEAD])
        symbols["bucket"] = lambda ahead: int(position.buckets(torch.tensor(int(ahead))))
    if position.rotates:
        size = SIZE // HEADS
        turns = np.zeros((LENGTH, size, size))
        for t in range(LENGTH):
            for i in range(size // 2):
                angle = t * frequency(position.config, 2 * i / size)
                first, second = i, i + size // 2
                turns[t, first, first] = turns[t, second, second] = np.cos(angle)
                turns[t, first, second], turns[t, second, first] = -np.sin(angle), np.sin(angle)
        symbols["R_"] = turns
    return symbols


def visible(attention: BaseAttention, t: int, causal: bool) -> Sequence[int]:
    """The keys that a query attends to by the pattern of its kind and the causal mask."""
    keys = range(t + 1 if causal else LENGTH)
    if isinstance(attention, LocalAttention):
        return [i for i in keys if abs(t - i) < attention.config.window]
    if isinstance(attention, BlockSparseAttention):
        block = attention.config.block_size
        near = [i for i in keys if abs(t // block - i // block) <= attention.config.near]
        return sorted({*near, *(i for i in keys if i // block < attention.config.first)})
    return keys


AFTER = {  # the symbol that a stage gives to those after it
    "query": "q", "rotated query": "q", "key": "k_", "rotated key": "k_", "value": "v_",
    "normed query": "q", "normed key": "k_",
    "query features": "φ(q)", "key features": "φ(k_", "score": "e_", "bias": "b_",
    "mask": "mask_", "masked score": "e_", "weights of mixtures": "α̃_", "weights": "α_",
    "context": "c",
}  # fmt: skip


def check_attention(
    config: Any, position: Position | None = None, causal: bool = True
) -> list[Stage]:
    """Every stage of one head, for every query."""
    torch.manual_seed(0)
    attention: BaseAttention = config.build(SIZE).eval()
    for part in attention.parameters():  # biases begin with 0
        part.data += 0.3 * torch.randn(part.shape)
    x = torch.randn(1, LENGTH, SIZE)
    inputs: Any = (x, None, Mask(causal=True) if causal else None, None, position)
    with torch.no_grad():
        attention.tap = lambda weights: None  # by the equation, as with a probe
        before = attention(*inputs)
        attention.tap = None
        with capture_stages(attention) as calls:
            assert torch.equal(attention(*inputs), before)
    stages = attention_stages(attention, calls, attention.num_heads - 1)
    shown = {stage.name: stage.values for stage in stages}
    assert {"query", "value", "weights", "context"} <= shown.keys()
    assert np.array_equal(shown["output"], before[0].numpy())
    for name in shown.keys() - {"mask", "masked score"}:
        assert np.isfinite(shown[name]).all(), name
    contexts = array(calls["context"].values[0][0])  # (H, T, V)
    for t in range(LENGTH):
        symbols = weights_of(attention, position) | {"t": t, "x": array(x[0])}
        symbols["[c of every head]"] = contexts[:, t].ravel()
        if "R_" in symbols:
            symbols["R_t"] = symbols["R_"][t]
        for stage in stages:
            check_stage(attention, stage, symbols, t, causal)
    return stages


def check_stage(
    attention: BaseAttention, stage: Stage, symbols: dict[str, Array], t: int, causal: bool
) -> None:
    values = stage.values[t] if stage.axes[0] == "query" else stage.values
    counts: dict[str, Any] = {"i": range(LENGTH), "j": range(LENGTH)}
    if "mixture" in stage.axes or (stage.name == "weights" and "α̃_" in symbols):
        counts["r"] = range(attention.config.rank)
    own = dict(symbols)
    if stage.name in ("query", "key", "value"):
        whole = isinstance(getattr(attention, stage.name), nn.Linear)
        x = symbols["x"] if whole else np.split(symbols["x"], attention.num_heads, axis=1)[HEAD]
        own |= {"x": x[t], "x_": x}
    if stage.name == "weights of mixtures":
        own["k_"], counts = symbols["k̃_"], {"i": counts["r"], "j": counts["r"]}
    hidden: list[int] = []
    if stage.name == "weights" and "e_" not in symbols and "α̃_" not in symbols:
        keys = visible(attention, t, causal)
        hidden = [i for i in range(LENGTH) if i not in keys]
        counts = {"i": keys, "j": keys}
    index = indexed(stage)
    if stage.name == "mask":
        assert set(np.unique(values)) <= {0.0, -np.inf}
    elif index:
        for k in range(values.shape[0]):
            if k in hidden:
                close(values[k], 0.0, f"{stage.name} of a hidden key")
            else:
                computed = evaluated(stage.equation, own | {index: k}, counts)
                close(values[k], computed, f"{stage.name}: {stage.equation}")
    else:
        close(values, evaluated(stage.equation, own, counts), f"{stage.name}: {stage.equation}")
    remember(stage, values, symbols)


def indexed(stage: Stage) -> str:
    """The index of a stage that has a number or a vector for each key or mixture."""
    left = stage.equation.split(" ")[0]
    axis = stage.axes[1] if stage.axes[0] == "query" else stage.axes[0]
    if stage.name == "weights of mixtures":
        return "i"
    assert axis != "mixture" or left.endswith("_r"), stage
    return {"key": "i", "mixture": "r"}.get(axis, "")


def remember(stage: Stage, values: Array, symbols: dict[str, Array]) -> None:
    """Let a symbol stand for the numbers of the stage, in the equations after it."""
    if stage.name == "mixed key":
        symbols["k̃_"] = values.astype(float)
    elif stage.name in AFTER:
        symbols[AFTER[stage.name]] = values.astype(float)


SCORES, NORMALIZERS, POSITIONS = map(defaults, ("score", "normalizer", "position"))


def full(**fields: Any) -> Any:
    return Attention.Config.parse({"num_heads": HEADS, **fields})


FIELDS: list[dict[str, Any]] = [{"score": score} for score in SCORES.values()]
FIELDS += [{"normalizer": normalizer} for normalizer in NORMALIZERS.values()]
FIELDS += [
    {"score": {"kind": "additive", "own_matrix": True}},
    {"score": {"kind": "cosine", "sharpness": 3.5}},
    {"normalizer": {"kind": "softmax", "temperature": 0.5}},
]


WAYS = [(fields, causal) for fields in FIELDS for causal in (True, False)]
PLACES = {"softmax_over": "max_length", "max_length": 7}  # of a source, which hides no future
WAYS += [({"score": {"kind": kind} | PLACES}, False) for kind in ("location", "affine_location")]


@pytest.mark.parametrize(("fields", "causal"), WAYS, ids=str)
def test_scores_and_normalizers(fields: dict[str, Any], causal: bool) -> None:
    stages = check_attention(full(**fields), causal=causal)
    weights = next(stage.equation for stage in stages if stage.name == "weights")
    assert ("0.5" in weights) == ("temperature" in str(fields) and "0.5" in str(fields))


def config_of(kind: str, **fields: Any) -> Any:
    """Attention of a kind whose pattern leaves some keys out of five."""
    own = {"local": {"window": 3}, "block_sparse": {"block_size": 2}}.get(kind, {})
    return BaseAttention.Config.parse({"kind": kind, "num_heads": HEADS} | own | fields)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", ["full", "local", "block_sparse"])
def test_positions(position: str, kind: str) -> None:
    own = POSITIONS[position].build(SIZE, HEADS)
    names = [stage.name for stage in check_attention(config_of(kind), own)]
    assert ("rotated query" in names) == own.rotates
    assert ("bias" in names) == (own.biases and kind == "full")


@pytest.mark.parametrize(("size", "near", "first"), [(2, 1, 1), (2, 0, 0), (1, 2, 3), (3, 0, 1)])
@pytest.mark.parametrize("causal", [True, False])
def test_patterns_of_blocks(size: int, near: int, first: int, causal: bool) -> None:
    config = config_of("block_sparse", block_size=size, near=near, first=first)
    check_attention(config, causal=causal)


@pytest.mark.parametrize("kind", defaults("attention"))
@pytest.mark.parametrize("bias", [True, False])
def test_attentions(kind: str, bias: bool) -> None:
    config = defaults("attention")[kind].model_copy(update={"num_heads": HEADS, "bias": bias})
    for causal in {False, config.owner.causal}:
        written = {s.name: s.equation for s in check_attention(config, causal=causal)}
        assert all(written[n].endswith(f" + b_{n[0]}") == bias for n in ("query", "key", "value"))


@pytest.mark.parametrize("project", [(), ("query",), ("key", "value"), ("query", "key", "output")])
def test_what_is_not_projected(project: tuple[str, ...]) -> None:
    for heads in (1, 2) if len(project) != 2 else (1,):
        config = {"num_heads": heads, "project": project, "score": {"kind": "dot"}}
        written = {s.name: s.equation for s in check_attention(Attention.Config.parse(config))}
        assert ("W_o" in written["output"]) == ("output" in project)


def test_a_query_without_a_key_has_weights_of_0() -> None:
    hidden = Mask(key_mask=torch.zeros(1, LENGTH, dtype=torch.bool))
    attention = full(key_heads=1).build(SIZE)
    with capture_stages(attention) as calls:
        attention(torch.randn(1, LENGTH, SIZE), mask=hidden)
    shown = {stage.name: stage.values for stage in attention_stages(attention, calls, 0)}
    assert np.isfinite(shown["output"]).all() and not shown["weights"].any()


@pytest.mark.parametrize("kind", defaults("attention"))
def test_shared_heads(kind: str) -> None:
    config = defaults("attention")[kind].model_copy(update={"num_heads": HEADS, "head_size": 4})
    check_attention(changed(config, key_heads=1), causal=config.owner.causal)


@pytest.mark.parametrize("position", [None, "rope"])
@pytest.mark.parametrize("kind", ["full", "local", "linear"])
def test_norms_of_heads(kind: str, position: str | None) -> None:
    own = None if position is None else POSITIONS[position].build(SIZE, HEADS)
    stages = check_attention(config_of(kind, head_norm="rms_norm"), own)
    assert {"normed query", "normed key"} <= {stage.name for stage in stages}


def test_logits_within_a_cap() -> None:
    x = torch.randn(SIZE)
    for bias in (True, False):
        layer = CappedLinear(SIZE, 20, bias, 0.7)
        symbols = block_weights(layer) | {"x": array(x), "c": 0.7}
        assert ("b" in symbols) == bias
        close(array(layer(x)), evaluated(equation_of(layer), symbols, {}), equation_of(layer))


def cell_weights(cell: Cell, feed: nn.Linear | None = None) -> dict[str, Array]:
    """W, b, U, b′ and C of each gate, in the order of the rows."""
    gates = {"rnn": [""], "lstm": ["_i", "_f", "_c", "_o"]}.get(cell.config.kind or "")
    gates = gates or ["_r", "_z", "_n"]
    parts = {"W": cell.weight_ih, "b": cell.bias_ih, "U": cell.weight_hh, "b′": cell.bias_hh}
    parts |= {} if feed is None else {"C": feed.weight}
    return {
        f"{symbol}{gate}": array(rows)
        for symbol, part in parts.items()
        for gate, rows in zip(gates, part.chunk(len(gates)), strict=True)
    }


CELL_SYMBOLS = {
    "input": "x_t", "fed": "a_t", "before": "h_{t−1}", "cell before": "c_{t−1}", "sum": "s",
    "reset gate": "r", "update gate": "z", "input gate": "i", "forget gate": "f",
    "output gate": "o", "candidate": "c̃", "cell": "c_t", "state": "h_t",
}  # fmt: skip


def check_cell(cell: Cell, stages: Sequence[Stage], feed: nn.Linear | None = None) -> None:
    weights = cell_weights(cell, feed)
    for t in range(len(stages[0].values)):
        symbols = dict(weights)
        for stage in stages:
            symbols[CELL_SYMBOLS.get(stage.name, stage.name)] = stage.values[t].astype(float)
        symbols["n"] = symbols.get("c̃")
        for stage in stages:
            assert stage.equation, stage.name
            computed = evaluated(stage.equation, symbols, {})
            close(stage.values[t], computed, f"{stage.name}: {stage.equation}")


CELLS = [{"kind": kind} for kind in defaults("cell")]
CELLS += [{"kind": "rnn", "activation": name} for name in ("relu", "sigmoid")]


@pytest.mark.parametrize("config", CELLS, ids=str)
def test_cells(config: dict[str, Any]) -> None:
    cell: Cell = Cell.Config.parse(config).build(SIZE, SIZE)
    x = torch.randn(1, LENGTH, SIZE)
    with torch.no_grad():
        plain, _ = Cell.run(cell, x, cell.start(x[:, 0]))
        with capture_stages(cell) as calls:
            outputs, _ = cell.run(x, cell.start(x[:, 0]))
    assert torch.equal(outputs, plain) and cell.probe is None
    stages = cell_stages(cell, calls)
    check_cell(cell, stages)
    shown = {stage.name: stage.values for stage in stages}
    assert np.array_equal(shown["state"], outputs[0].numpy())
    assert np.array_equal(shown["before"][1:], outputs[0, :-1].numpy())


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("config", CELLS, ids=str)
def test_cells_that_attention_feeds(config: dict[str, Any], query: str) -> None:
    tree = {"cell": config, "attention": {"query": query}, "hidden_size": SIZE, "dropout": 0.0}
    tree |= {"embedding_size": 12, "num_layers": 2}
    decoder = RecurrentDecoder.Config.parse(tree).build(Tokens(20), SIZE).eval()
    ids = torch.randint(0, 20, (1, LENGTH))
    first, second = decoder.cells
    with (
        torch.no_grad(),
        capture_stages(decoder.cross_attention) as attended,
        capture_stages(first) as calls,
        capture_stages(second) as above,
    ):
        outputs = decoder(ids, Memory(torch.randn(1, 4, SIZE), None))
    stages = cell_stages(first, calls)
    check_cell(first, stages, decoder.feed)
    check_cell(second, cell_stages(second, above))
    for number, stage in enumerate(stages):  # the law sees whatever term is left out
        for term in re.finditer(r" \+ (?:b′?(?:_\w)?|C(?:_\w)? a_t)", stage.equation):
            short = replace(stage, equation=term.string[: term.start()] + term.string[term.end() :])
            with pytest.raises(AssertionError, match=re.escape(short.equation)):
                check_cell(first, [*stages[:number], short, *stages[number + 1 :]], decoder.feed)
    shown = {stage.name: stage for stage in stages}
    assert all("C" in s.equation for n, s in shown.items() if n in ("sum", "candidate"))
    fed, contexts = shown["fed"].values, torch.cat(attended["output"].values, 1)[0]
    if query == "previous":
        close(fed, contexts.numpy(), "the context")
    else:
        close(fed[1:], outputs[0, :-1].numpy(), "the read-out")


FEED_FORWARD = ("inner", "W₁", "b₁"), ("outer", "W₂", "b₂"), ("gate", "V", "c")


def block_weights(module: nn.Module) -> dict[str, Array]:
    """The weights of a feed-forward, a norm or a linear map by their symbols."""
    if isinstance(module, FeedForward):
        symbols: dict[str, Array] = {}
        for name, weight, bias in FEED_FORWARD:
            if hasattr(module, name):
                part = getattr(module, name)
                symbols[weight] = array(part.weight).T  # of rows: x W₁
                symbols |= {} if part.bias is None else {bias: array(part.bias)}
        return symbols
    if isinstance(module, Norm):
        named = {name.rpartition(".")[2]: array(part) for name, part in module.named_parameters()}
        symbols = {"γ": named.get("weight"), "β": named.get("bias"), "ε": module.config.eps}
        if isinstance(module, BatchNorm):
            symbols |= {"μ": array(module.mean), "σ": array(module.variance) ** 0.5}
        return symbols
    return {name[0].replace("w", "W"): array(part) for name, part in module.named_parameters()}


def check_block(module: nn.Module) -> str:
    """A module alone as a model: the equation in its picture is what it computes."""
    for part in [*module.parameters(), *module.buffers()]:
        part.data = part.data.abs() + 0.3 * torch.rand(part.shape)
    (block,) = blocks_of(nn.ModuleDict({"block": module.eval()})).values()
    equation = equation_of(block)
    x = torch.randn(1, 3, SIZE)
    with torch.no_grad():
        shown = array(module(x)[0])
    text = re.split(r" \((?:Ba|Zhang) | for each", equation.replace("φ(x", "f(x"))[0]
    for t in range(3):
        symbols = block_weights(module) | {"x": array(x[0, t])}
        close(shown[t], evaluated(text, symbols, {}), equation)
    return equation


@pytest.mark.parametrize("kind", defaults("feed_forward"))
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forwards(kind: str, bias: bool) -> None:
    config = defaults("feed_forward")[kind].model_copy(update={"bias": bias})
    if kind != "none":  # it has no weights, and no block
        assert ("b₁" in check_block(config.build(SIZE, 20))) == bias


@pytest.mark.parametrize("kind", defaults("norm"))
def test_norms(kind: str) -> None:
    if kind != "none":
        check_block(defaults("norm")[kind].build(SIZE))


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal_halves", "concatenated", "appended"])
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_sinusoids(kind: str, base: float) -> None:
    position: Any = POSITIONS[kind].model_copy(update={"base": base}).build(SIZE, HEADS)
    (block,) = blocks_of(nn.ModuleDict({"position": position})).values()
    shared = {"⌈D/2⌉": SIZE // 2}
    if kind == "concatenated":
        shared |= {"W": array(position.join.weight), "b": array(position.join.bias)}
    size = getattr(position.config, "features", getattr(position.config, "size", SIZE))
    x = torch.randn(1, LENGTH, position.config.token_size(SIZE))
    with torch.no_grad():
        shown = array(position.embed(x, torch.arange(LENGTH))[0])
    for t in range(LENGTH):
        symbols = shared | {"t": t, "x": array(x[0, t])}
        computed = evaluated(equation_of(block), symbols, {"i": range(size // 2)})
        close(shown[t], computed, equation_of(block))


def test_the_simpler_recurrent_unit() -> None:
    unit = SSRU(SIZE)
    (block,) = blocks_of(nn.Sequential(unit)).values()
    symbols: dict[str, Array] = {"W_f": array(unit.forget.weight), "W": array(unit.value.weight)}
    symbols |= {"b_f": array(unit.forget.bias), "c_{t−1}": np.zeros(SIZE)}
    x = torch.randn(1, LENGTH, SIZE)
    with torch.no_grad():
        shown = array(unit(x)[0])
    *defined, output = clauses_of(equation_of(block))
    for t in range(LENGTH):
        symbols["x_t"] = array(x[0, t])
        for clause in defined:
            symbols[clause.partition(" = ")[0]] = evaluated(clause, symbols, {})
        close(shown[t], evaluated(output, symbols, {}), equation_of(block))
        symbols["c_{t−1}"] = symbols["c_t"]
