"""Laws of the layers of a model: scores, normalizers, positions, cells and attention."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from foveate.config import Config
from foveate.errors import UserError
from foveate.measure.laws.trial import (
    ANY,
    LAWS,
    Counterexample,
    Law,
    M,
    Shown,
    Trial,
    differences,
    law,
    meaning_of,
    number,
    require,
    require_same,
)
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.linear import FeedForward
from foveate.nn.native.kernels import definer, overridden
from foveate.nn.positions import NoPosition, Position
from foveate.nn.recurrent import Cell, Recurrence
from foveate.nn.scores import Normalizer, Score

Forward = Callable[..., Tensor]
X = ("x",)
LAYERS = ("score", "normalizer", "position", "cell", "attention", "feed_forward")
WHOLE = ("encoder", "decoder", "model")  # tested by `foveate.measure.laws.models`


class Apart(NamedTuple):
    """Slices that must not change each other: those of ``inputs`` along ``axis``, of the output
    along ``output_axis``. ``why`` is the reason; ``exact`` forbids a change of even one bit.
    """

    noun: str
    inputs: tuple[str, ...]
    axis: int
    output_axis: int
    why: str
    exact: bool = False


class LayerOutput(NamedTuple):
    """A layer's computation on named inputs, and the shape that its output must have."""

    name: str
    compute: Callable[..., Tensor | None]
    inputs: dict[str, Tensor]
    shape: tuple[int, ...]
    axes: str
    module: nn.Module
    apart: tuple[Apart, ...] = ()

    def __call__(self, **others: Tensor) -> Tensor:
        """Return the output for these inputs, some of them replaced by ``others``."""
        result = self.compute(**self.inputs | others)
        if not isinstance(result, Tensor):
            raise Counterexample(
                f"{self.name} gives {type(result).__name__}, not a tensor: is its gap filled?"
            )
        return result

    def own(self, kind: type[M]) -> M:
        """Return the module, which is of this kind."""
        assert isinstance(self.module, kind)
        return self.module


ROW = "the sentences of a batch have nothing to do with each other"
HEAD = "each head has a space of its own"
PLACE = "the encoding of a position depends on this position only"
FUTURE = "it looks ahead of the causal mask"
PAST = "a step may read the steps before it only"
KEY = "the score of a key depends on this key only, so that keys of earlier steps are read once"
EACH = "a feed-forward layer computes the same at every position, each for itself"
QUERY = "the scores of a query depend on this query only"
OVER = "the weights of each query are normalised alone, over its keys (the last axis)"


def _scores(trial: Trial) -> list[LayerOutput]:
    rows, length, heads, width, _ = trial.sizes
    score: Score = trial.prepare(trial.config.build(heads, width))
    inputs = {name: trial.draw(rows, heads, length, width) for name in ("query", "key")}
    apart = (
        Apart("batch row", ("query", "key"), 0, 0, ROW),
        Apart("head", ("query", "key"), 1, 1, HEAD),
        Apart("query", ("query",), 2, 2, QUERY),
        Apart("key", ("key",), 2, 3, KEY),
    )
    shape = rows, heads, length, length
    return [LayerOutput("forward", score, inputs, shape, "(B, H, T, S)", score, apart)]


def _weights(trial: Trial) -> list[LayerOutput]:
    rows, length, heads, _, _ = trial.sizes
    normalizer: Normalizer = trial.prepare(trial.config.build())
    x, shape = ("scores",), (rows, heads, length, length)
    apart = (
        Apart("batch row", x, 0, 0, ROW),
        Apart("head", x, 1, 1, HEAD),
        Apart("query", x, 2, 2, OVER),
    )
    inputs = {"scores": trial.draw(*shape)}
    return [LayerOutput("forward", normalizer, inputs, shape, "(B, H, T, S)", normalizer, apart)]


def _encodings(trial: Trial) -> list[LayerOutput]:
    """Return the outputs of the methods that a position encoding's class defines."""
    rows, length, heads, width, _ = trial.sizes
    config = cast(Position.Config, trial.config)
    hidden_size = _hidden_size(config, heads * width, heads)
    position: Position = trial.prepare(config.build(hidden_size, heads))
    at, row = torch.arange(length), Apart("batch row", X, 0, 0, ROW)
    parts = []
    if type(position).embed is not Position.embed:
        shape: tuple[int, ...] = rows, length, hidden_size
        apart: tuple[Apart, ...] = row, Apart("position", X, 1, 1, PLACE)
        compute = partial(position.embed, at=at)
        inputs = {"x": trial.draw(rows, length, config.token_size(hidden_size))}
        parts.append(LayerOutput("embed", compute, inputs, shape, "(B, T, D)", position, apart))
    if position.rotates:
        shape = rows, heads, length, width
        apart = row, Apart("head", X, 1, 1, HEAD), Apart("position", X, 2, 2, PLACE)
        turn, inputs = partial(position.rotate, at=at), {"x": trial.draw(*shape)}
        parts.append(LayerOutput("rotate", turn, inputs, shape, "(B, H, T, K)", position, apart))
    if position.biases:
        shape = heads, length, length
        bias = partial(_biases, position, at, at, heads)
        parts.append(LayerOutput("bias", bias, {}, shape, "(H, T, S)", position))
    return parts


def _hidden_size(config: Position.Config, least: int, heads: int) -> int:
    """Return the smallest size ≥ ``least`` that leaves features for the token, else ``least``."""
    for size in range(least, least + 256, heads):
        with suppress(UserError):
            config.token_size(size)
            return size
    return least


def _biases(position: Position, query_at: Tensor, key_at: Tensor, heads: int) -> Tensor | None:
    """Return a position's bias on scores; one matrix for all heads is repeated for each."""
    result = position.bias(query_at, key_at)
    return result.expand(heads, -1, -1) if result is not None and len(result) == 1 else result


def on_x(
    x: Tensor, module: nn.Module, compute: Forward, shape: tuple[int, ...], axes: str, *apart: Apart
) -> list[LayerOutput]:
    """Return a computation on x alone."""
    rules = Apart("batch row", X, 0, 0, ROW), *apart
    return [LayerOutput("forward", compute, {"x": x}, shape, axes, module, rules)]


def _states(trial: Trial) -> list[LayerOutput]:
    rows, length, _, width, _ = trial.sizes
    cell: Cell = trial.prepare(trial.config.build(width, width))
    shape, past = (rows, length, width), Apart("position", X, 1, 1, PAST, exact=True)
    run = Recurrence(cell)
    return on_x(trial.draw(*shape), cell, lambda x: run(x)[0], shape, "(B, T, H)", past)


def _outputs(trial: Trial) -> list[LayerOutput]:
    rows, length, heads, width, _ = trial.sizes
    config = without_dropout(trial.config).model_copy(update={"num_heads": heads})
    attention: BaseAttention = trial.prepare(config.build(heads * width))
    mask = Mask(causal=attention.causal)
    past = (Apart("position", X, 1, 1, FUTURE, exact=True),) if attention.causal else ()
    shape = rows, length, heads * width
    x = trial.draw(*shape)
    return on_x(x, attention, lambda x: attention(x, None, mask), shape, "(B, T, D)", *past)


def _transformed(trial: Trial) -> list[LayerOutput]:
    rows, length, _, width, _ = trial.sizes
    layer: FeedForward = trial.prepare(without_dropout(trial.config).build(width, 2 * width))
    shape, each = (rows, length, width), Apart("position", X, 1, 1, EACH)
    return on_x(trial.draw(*shape), layer, layer, shape, "(B, T, D)", each)


def padding_mask(rows: int, length: int) -> Tensor:
    """Return a mask of sources (B, S), False at the last position if there are others."""
    return torch.arange(length).expand(rows, -1) < max(length - 1, 1)


def without_dropout(config: Config, most: Mapping[str, int] | None = None) -> Config:
    """Return the config without dropout; ``most`` bounds sizes by field name."""
    changes: dict[str, object] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, Config):
            changes[name] = without_dropout(value, most)
        elif most and name in most and isinstance(value, int):
            changes[name] = min(value, most[name])
        elif name.endswith("dropout"):
            changes[name] = 0.0
    return config.model_copy(update=changes)


COMPUTATIONS: dict[str, Callable[[Trial], list[LayerOutput]]] = {
    "score": _scores,
    "normalizer": _weights,
    "position": _encodings,
    "cell": _states,
    "attention": _outputs,
    "feed_forward": _transformed,
}


def computations(trial: Trial) -> list[LayerOutput]:
    """Return what the kind of a trial computes at its size."""
    assert trial.config.family is not None
    return COMPUTATIONS[trial.config.family](trial)


@law("the output has the right shape, and its numbers are finite", *LAYERS, *WHOLE)
def has_shape(trial: Trial) -> None:
    """Check the shape of every output, and that it has no NaN and no ∞."""
    for part in computations(trial):
        output = part()
        shapes = f"{tuple(output.shape)}, not {part.axes} = {part.shape}"
        require(output.shape == part.shape, f"{part.name} gives the shape {shapes}", part.inputs)
        shown = {**part.inputs, "came out": output}
        require(output.isfinite().all(), f"{part.name} gives numbers that are not finite", shown)


@law("the same inputs give the same output", *LAYERS, *WHOLE)
def is_a_function(trial: Trial) -> None:
    """Check that two calls in evaluation mode are equal bit for bit."""
    for part in computations(trial):
        first, second = part(), part()
        shown = {**part.inputs, "came out": first, "came out the second time": second}
        why = f"{part.name} gives another output in a second call: it is random or keeps a state"
        require(torch.equal(first, second), why, shown)


def unchanged(part: LayerOutput, rule: Apart) -> None:
    """Check that another last slice of the inputs leaves the other slices of the output alone."""
    count = part.shape[rule.output_axis]
    if count < 2:
        return
    others = {}
    for name in rule.inputs:
        x = others[name] = part.inputs[name].clone()
        x.narrow(rule.axis, x.shape[rule.axis] - 1, 1).mul_(-2).add_(3)
    first, second = part(), part(**others)
    before, after = (y.narrow(rule.output_axis, 0, count - 1) for y in (first, second))
    changed = differences(before, after, rule.exact).nonzero()
    index = int(changed[0][rule.output_axis]) if len(changed) else 0
    require(
        len(changed) == 0,
        f"{rule.noun} {index} changes when {rule.noun} {count - 1} changes: {rule.why}",
        {
            **part.inputs,
            **{f"{name}, changed": x for name, x in others.items()},
            "came out": first,
            "came out after the change": second,
        },
    )


def _apart(noun: str, trial: Trial) -> None:
    for part in computations(trial):
        for rule in part.apart:
            if rule.noun == noun:
                unchanged(part, rule)


for _noun, _sentence, _families in (
    ("batch row", "rows of a batch do not change each other", LAYERS + WHOLE),
    ("head", "heads do not change each other", ("score", "normalizer", "position")),
    ("query", "queries do not change each other", ("score", "normalizer")),
    ("key", "keys do not change each other's scores", ("score",)),
    ("position", "later positions do not change earlier outputs", LAYERS[2:] + WHOLE[1:]),
):
    LAWS.append(Law(_sentence, _families, partial(_apart, _noun)))


@law("it computes the same in training, without dropout, as in use", *LAYERS, *WHOLE)
def trains_as_it_is_used(trial: Trial) -> None:
    """Check that a kernel used in training, with gradients, computes what `forward` does."""
    for part in computations(trial):
        expected, module = part(), part.module.train()
        with torch.enable_grad():
            output = part(**{name: x.clone().requires_grad_() for name, x in part.inputs.items()})
        module.eval()
        why = f"{part.name} computes something else in training"
        require_same(output.detach(), expected, why, part.inputs)


LONG = 132  # positions; 132² weights are more than a short attention holds


@law("long inputs and training, by kernels, give what the equation gives", *LAYERS[:2], "attention")
def kernels_keep_to_the_equation(trial: Trial) -> None:
    """Compare attention computed by kernels with the equation, which a tap enforces."""
    rows, length, heads, width, seed = trial.sizes
    family = trial.config.family or ""
    config = without_dropout(trial.config)
    if family != "attention":
        config = Attention.Config.model_validate({family: config})
    config = config.model_copy(update={"num_heads": heads})
    for count in [length] + [LONG] * ((rows, length, seed) == (1, 4, 1)):
        attention: BaseAttention = trial.prepare(config.build(heads * width))
        x, mask = trial.draw(rows, count, heads * width), Mask(causal=attention.causal)
        attention.tap = lambda weights: None
        try:
            expected = attention(x, None, mask)
        except UserError:
            if count == LONG:  # longer than the kind supports
                continue
            raise
        attention.tap = None
        for training in (False, True):
            with torch.set_grad_enabled(training):
                output = attention.train(training)(x, None, mask).detach()
            why = "a kernel gives something else: does `scale` or `fusable` say what is not true?"
            require_same(output, expected, why, {"x": x} if count == length else {})


@law("every parameter has a gradient, and gradients are finite", *LAYERS)
def has_gradients(trial: Trial) -> None:
    """Check gradients, except with one key: the gradient of a softmax over one key is 0."""
    for part in computations(trial) if trial.sizes.length > 2 and trial.sizes.seed else ():
        inputs = {name: x.clone().requires_grad_() for name, x in part.inputs.items()}
        with torch.enable_grad():
            output = part(**inputs)
            if output.requires_grad:
                (output * torch.linspace(1, 2, output.numel()).view_as(output)).sum().backward()
        for name, leaf in (*inputs.items(), *part.module.named_parameters()):
            gradient = leaf.new_zeros(()) if leaf.grad is None else leaf.grad
            shown = {**part.inputs, f"gradient of {name}": gradient}
            require(gradient.isfinite().all(), f"the gradient of {name} is not finite", shown)
            free = name in inputs or name.endswith("key.bias")  # q·b is the same for every key
            why = f"{name} has no gradient: it takes no part in the output"
            require(free or gradient.any(), why, shown)


@law("where a score has a `scale`, it is scale · qᵀk", "score")
def has_scale(trial: Trial) -> None:
    """Check that the score is scale · qᵀk, which fused kernels compute in its place."""
    (part,) = computations(trial)
    scale = part.own(Score).scale
    if scale is not None and not overridden(part.module, definer(part.module, "scale"), "forward"):
        expected = scale * part.inputs["query"] @ part.inputs["key"].mT
        why = f"scale = {number(scale)}, but the score is not {number(scale)} · qᵀk"
        require_same(part(), expected, why, part.inputs)


def check_weights(
    weights: Tensor, shown: Shown, visible: Tensor | None = None, sums_to_one: bool = True
) -> None:
    """Check that weights (…, T, S) are 0 on masked keys, not negative, and sum to 1; the last two
    only if ``sums_to_one``.
    """
    weights = weights.detach()
    shown = {**shown, "came out": weights}
    if visible is not None:
        masked = weights.masked_select(~visible.expand_as(weights))
        top = number(float(masked.max())) if len(masked) else ""
        require((masked == 0).all(), f"the weight of a masked key is {top}, not 0", shown)
    if not sums_to_one:
        return
    opt_out = "; set sums_to_one = False in the class if that is meant"
    least = f"a weight is {number(float(weights.min()))}: weights must not be negative"
    require((weights >= 0).all(), least + opt_out, shown)
    sums = weights.flatten(0, -2).sum(dim=-1)
    wrong = differences(sums, torch.ones_like(sums)).nonzero()
    row = int(wrong[0]) if len(wrong) else 0
    why = f"row {row} sums to {number(float(sums[row]))}, not 1: the weights of a query must sum"
    require(len(wrong) == 0, f"{why} to 1{opt_out}", {**shown, "sums of the rows": sums})


@law("weights are not negative and sum to 1, unless sums_to_one = False", "normalizer")
def has_weights(trial: Trial) -> None:
    """Check the weights of every query."""
    (part,) = computations(trial)
    check_weights(part(), part.inputs, None, part.own(Normalizer).sums_to_one)


@law("masked keys (score −∞) have weight 0, and gradients stay finite", "normalizer")
def masks(trial: Trial) -> None:
    """Check weights and gradients with the last key masked in every row."""
    (part,) = computations(trial)
    length = trial.sizes.length
    visible = torch.arange(length) < max(length - 1, 1)
    scores = part.inputs["scores"].masked_fill(~visible, -torch.inf).requires_grad_()
    with torch.enable_grad():
        weights = part(scores=scores)
        check_weights(weights, {"scores": scores}, visible, part.own(Normalizer).sums_to_one)
        if weights.requires_grad:
            weights.square().sum().backward()
    gradient = torch.zeros(1) if scores.grad is None else scores.grad
    shown = {"scores": scores, "gradient of scores": gradient}
    why = "the gradient of the scores is not finite beside a masked key"
    require(gradient.isfinite().all(), why, shown)


@law("a higher score has no smaller weight", "normalizer")
def keeps_order(trial: Trial) -> None:
    """Check the order within each row."""
    (part,) = computations(trial)
    scores, weights = part.inputs["scores"], part()
    higher = scores[..., :, None] > scores[..., None, :]
    smaller = weights[..., :, None] < weights[..., None, :] - 1e-6
    shown = {**part.inputs, "came out": weights}
    require(not (higher & smaller).any(), "a key with a higher score has a smaller weight", shown)


@law("large scores overflow nothing", "normalizer")
def is_stable(trial: Trial) -> None:
    """Check scores of hundreds: exp(89) overflows float32."""
    (part,) = computations(trial)
    for shift in (500.0, -500.0):
        shown = {"scores": part.inputs["scores"] * 100 + shift}
        weights = part(**shown)
        why = "exp of a large score overflows: subtract the highest score of the row first"
        require(weights.isfinite().all(), why, {**shown, "came out": weights})
        check_weights(weights, shown, None, part.own(Normalizer).sums_to_one)


@law("a position is the same wherever reading begins", "position")
def counts_from_zero(trial: Trial) -> None:
    """Check that a sequence encoded from position s equals the encoded whole, cut at s."""
    at = torch.arange(trial.sizes.length)
    for part in computations(trial) if len(at) > 1 else ():
        position, axis = part.own(Position), 2 if part.name == "rotate" else 1
        expected = part().narrow(axis, 1, len(at) - 1)
        late = {name: x.narrow(axis, 1, len(at) - 1) for name, x in part.inputs.items()}
        bias = _biases(position, at[1:], at, trial.sizes.heads)
        methods = {"embed": position.embed, "rotate": position.rotate}
        cut = methods[part.name](late["x"], at[1:]) if part.name in methods else bias
        assert cut is not None
        why = f"{part.name} differs if reading begins at position 1: use `at`"
        require_same(cut, expected, why, part.inputs)


@law("positions are told apart, and vectors as well", "position")
def tells_apart(trial: Trial) -> None:
    """Check equal vectors at several positions, and different vectors at one position."""
    parts = computations(trial)
    if trial.config.owner is NoPosition or trial.sizes.length < 9:
        return
    require(parts, "the class defines none of embed, rotate and bias: nothing is encoded")
    varies = False
    for part in parts:
        equal = {name: torch.ones_like(x) for name, x in part.inputs.items()}
        output, axis = part(**equal), 2 if part.name == "rotate" else 1
        varies = varies or bool(differences(output, output.roll(1, axis)).any())
        other = part(**{name: 2 * x for name, x in equal.items()})
        differs = not equal or bool(differences(output, other).any())
        why = f"{part.name} gives the same for other vectors: the vectors are lost"
        require(differs, why, {"for ones": output, "for twos": other})
    require(varies, "every position has the same encoding: the order is lost")


ROTATIONS = "rope", "rope_linear", "rope_llama3"


@law("a rotation changes no length", "position", of=ROTATIONS)
def keeps_length(trial: Trial) -> None:
    """Check ‖R_t x‖ = ‖x‖ (Su et al., 2021)."""
    for part in computations(trial):
        lengths, expected = part().norm(dim=-1), part.inputs["x"].norm(dim=-1)
        shown = {**part.inputs, "rotated": part()}
        require_same(lengths, expected, "a vector has another length after its rotation", shown)


@law("qᵀk of rotated vectors depends on their distance alone", "position", of=ROTATIONS)
def is_relative(trial: Trial) -> None:
    """Check that (R_t q)ᵀ(R_s k) is the same for all t and s with the same t − s."""
    for part in computations(trial):
        x = part.inputs["x"]
        turned = part(x=x[:, :, :1].expand_as(x).contiguous())[0, 0]
        scores = turned @ turned.mT
        shown = {"one vector at every position": turned, "qᵀk": scores}
        why = "qᵀk at equal distance differs between positions"
        require(not differences(scores[1:, 1:], scores[:-1, :-1]).any(), why, shown)


@law("a step gives as many states as the class says, all (B, H)", "cell")
def has_states(trial: Trial) -> None:
    """Check that a step returns ``states`` tensors, each (B, H)."""
    (part,) = computations(trial)
    cell = part.own(Cell)
    projected = cell.project(part.inputs["x"])[:, 0]
    shapes = [tuple(h.shape) for h in cell(projected, cell.start(projected))]
    expected = (trial.sizes.rows, trial.sizes.width)
    why = f"the states have shapes {shapes}, not {cell.states} of (B, H) = {expected}"
    require(shapes == [expected] * cell.states, why, part.inputs)


def check_chunks(recurrence: Recurrence, x: Tensor, chunks: list[int]) -> None:
    """Check that a sequence read in parts, with the state passed on, gives the same as whole."""
    whole, final = recurrence(x)
    outputs, hidden = [], None
    for part in x.split(chunks, dim=1):
        output, hidden = recurrence(part, hidden=hidden)
        outputs.append(output)
    why = f"read in parts of {chunks} steps, it gives something else"
    assert hidden is not None
    for left, right in zip((torch.cat(outputs, dim=1), *hidden), (whole, *final), strict=True):
        require_same(left, right, why, {"x": x})


@law("reading in parts equals reading at once", "cell")
def reads_in_parts(trial: Trial) -> None:
    """Check reading step by step, and `Cell.run`."""
    (part,) = computations(trial)
    cell, x = part.own(Cell), part.inputs["x"]
    check_chunks(Recurrence(cell), x, [1] * x.shape[1])
    why = "run gives another output than step by step"
    require_same(cell.run(x, cell.start(x))[0], part(), why, part.inputs)


@law("an earlier input changes later outputs", "cell")
def remembers(trial: Trial) -> None:
    """Check that the state carries information from step to step."""
    (part,) = computations(trial)
    if trial.sizes.length > 1 and trial.sizes.seed:
        other = part.inputs["x"].clone()
        other[:, 0] += 1
        why = "position 1 does not change when position 0 changes: h_{t−1} is not used"
        shown = {**part.inputs, "x, changed": other, "came out": part()}
        require(differences(part()[:, 1], part(x=other)[:, 1]).any(), why, shown)


@law("every h lies between −1 and 1, as tanh does", "cell", of=("rnn", "lstm", "gru"))
def is_bounded(trial: Trial) -> None:
    """Check cells whose last operation is tanh, or a mean or share of it."""
    (part,) = computations(trial)
    x = 10 * part.inputs["x"]
    output = part(x=x)
    why = f"h is {number(float(output.abs().max()))}: tanh gives numbers from −1 to 1"
    require((output.abs() <= 1).all(), why, {"x": x, "came out": output})


@law("c stays as it is where the forget gate is open and the input gate shut", "cell", of=("lstm",))
def keeps_cell(trial: Trial) -> None:
    """Check i ≈ 0 and f ≈ 1: c_t = f ⊙ c_{t−1} + i ⊙ c̃ = c_{t−1}."""
    (part,) = computations(trial)
    size = trial.sizes.width
    gates = torch.tensor([-1e4, 1e4, 0.0, 0.0]).repeat_interleave(size)
    before = trial.draw(trial.sizes.rows, size)
    after = part.module(gates.expand(len(before), -1), (torch.zeros_like(before), before))[1]
    why = "c is not handed on: c_t = f ⊙ c_{t−1} + i ⊙ c̃, in the order i, f, c̃, o of the rows"
    require_same(after, before, why, {"c before": before})


@law("weights are 0 on masked keys and sum to 1, unless sums_to_one = False", "attention")
def attends_with_weights(trial: Trial) -> None:
    """Check the weights that it passes to its tap, with the causal mask if it is causal."""
    (part,) = computations(trial)
    attention, at = part.own(BaseAttention), range(trial.sizes.length)
    mask, tapped = Mask(causal=attention.causal), list[Tensor]()
    attention.tap = tapped.append
    part()
    require(tapped, "the tap is never called: its weights cannot be read")
    check_weights(tapped[0], part.inputs, mask.dense(at, at), attention.sums_to_one)


@law("hypotheses that share the memory of their source get what each gets alone", "attention")
def serves_hypotheses(trial: Trial) -> None:
    """Check that a beam of two shares one row of memory, also step by step."""
    rows, length, heads, width, _ = trial.sizes
    config = cast(BaseAttention.Config, trial.config)
    config = config.model_copy(update={"num_heads": heads})
    if type(config.across()) is not type(config):  # another kind attends to memories
        return
    attention: BaseAttention = trial.prepare(config.build(heads * width, heads * width))
    memory, query = (trial.draw(n, length, heads * width) for n in (rows, 2 * rows))
    keys = padding_mask(rows, length)
    alone = attention(query, memory.repeat_interleave(2, 0), Mask(keys.repeat_interleave(2, 0)))
    shown = {"query": query, "memory": memory}
    why = "two hypotheses of a source get something else than each with a memory of its own"
    require_same(attention(query, memory, Mask(keys)), alone, why, shown)
    state, steps = DecoderState(), []
    for token in query.split(1, dim=1):
        steps.append(attention(token, memory, Mask(keys), state))
        state.position += 1
    require_same(torch.cat(steps, dim=1), alone, f"step by step {why}", shown)


@law("padding changes nothing", "attention")
def ignores_padding(trial: Trial) -> None:
    """Check that a change of the last key, which is padding, changes no output."""
    (part,) = computations(trial)
    x, last = part.inputs["x"], trial.sizes.length - 1
    if last:
        keys = padding_mask(len(x), last + 1)
        other = x.clone()
        other[:, -1] = 9
        attention = part.own(BaseAttention)
        before, after = (attention(y, None, Mask(keys))[:, :-1] for y in (x, other))
        shown = {"x": x, "x, padding changed": other, "came out": before, "and then": after}
        require(torch.equal(before, after), "the output changes when padding changes", shown)


@law("step by step equals the whole sequence at once", "attention")
def attends_step_by_step(trial: Trial) -> None:
    """Check single steps, with keys and values of earlier steps from the state."""
    (part,) = computations(trial)
    attention, state, outputs = part.own(BaseAttention), DecoderState(), []
    for token in part.inputs["x"].split(1, dim=1) if attention.causal else ():
        outputs.append(attention(token, None, Mask(causal=True), state))
        state.position += 1
    if outputs:
        why = "step by step it gives another output than at once"
        require_same(torch.cat(outputs, dim=1), part(), why, part.inputs)


@law("a query that sees no key gets zeros", "attention")
def is_blind(trial: Trial) -> None:
    """Check the output before its projection, whose bias remains."""
    (part,) = computations(trial)
    attention, shape = part.own(BaseAttention), part.shape[:2]
    output = attention(part.inputs["x"], None, Mask(torch.zeros(shape, dtype=torch.bool)))
    expected = attention.output(torch.zeros(*shape, attention.mixed_size))
    require_same(output, expected, "a query without a key gets something", part.inputs)


def _like(trial: Trial, parts: list[LayerOutput], reference: Config) -> list[LayerOutput]:
    """Return the computations of a reference with the parameters of a kind."""
    others = computations(Trial(reference, trial.sizes))
    defined, expected = ([part.name for part in each] for each in (parts, others))
    require(defined == expected, f"it defines {defined}, '{reference.kind}' {expected}")
    for part, other in zip(parts, others, strict=True):
        own, shapes = (
            {n: tuple(p.shape) for n, p in each.module.named_parameters()} for each in (part, other)
        )
        require(own == shapes, f"its parameters are {own}, those of '{reference.kind}' {shapes}")
        other.module.load_state_dict(part.module.state_dict(), strict=False)
    return others


@law("it gives what the kind gives that it reimplements", *LAYERS, of=ANY)
def equals_reference(trial: Trial) -> None:
    """Compare the outputs for the same parameters and inputs."""
    assert trial.reference is not None
    parts = computations(trial)
    for part, other in zip(parts, _like(trial, parts, trial.reference), strict=True):
        output, expected = part(), other(**part.inputs)
        if bool(differences(output, expected).any()):
            require_same(output, expected, _reason(trial, output, expected), part.inputs)


def _reason(trial: Trial, output: Tensor, expected: Tensor) -> str:
    """Return how an output differs from the reference's, and what the reference computes."""
    assert trial.reference is not None
    name = trial.reference.kind
    index = tuple(differences(output, expected).nonzero()[0].tolist())
    values = f"{number(float(output[index]))} where '{name}' gives {number(float(expected[index]))}"
    larger = Trial(trial.config, trial.sizes._replace(rows=2, length=3, seed=1))
    parts = computations(larger)
    output, expected = parts[0](), _like(larger, parts, trial.reference)[0]()
    factor = float((output * expected).sum() / expected.square().sum())
    scaled = not differences(output, factor * expected).any()
    detail = f"it is {number(factor)} times what '{name}' gives; " * scaled
    return f"{values}: {detail}'{name}': {meaning_of(trial.reference)}"
