"""The loss of a model that is changed: heads silenced, input shuffled, weights or states moved."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, product, takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.edits import edit, silence
from foveate.look.hooks import Call, ForcedPass, Where, calls_of, chosen, everywhere, hook_points
from foveate.look.records import LAYERS
from foveate.look.stages import backwards, called
from foveate.nn.context import probed
from foveate.nn.positions import NoPosition, Position
from foveate.nn.recurrent import Cell

Figures = NDArray[np.float64]


# What a model loses with each head: heads silenced one after the other (Michel et al., 2019).


def importance(passes: Sequence[ForcedPass], where: Where = everywhere) -> dict[str, Figures]:
    """Return how much each head is worth: by the name of its map, (H,) means over all scores of

        log p − log p with the head silent

    (for a forecast, how far it moves). Positive: the model is worse without the head. All passes
    must be of one model; each is run once for every head, and once more. Raises ``ConfigError``
    listing what exists if ``where`` matches nothing.
    """
    model, available = passes[0].model, chosen(passes[0].model, where)
    whole = [forced.scores() for forced in passes]
    heads = {name: len(weights) for name, weights in passes[0].maps(where).items()}
    lost: dict[str, Figures] = {}
    for name in (name for name in available if name in heads):
        lost[name] = np.zeros(heads[name])
        for head in range(heads[name]):
            with edit(model, {name: silence(head)}):
                moved = [p.difference(w, p.scores()) for p, w in zip(passes, whole, strict=True)]
            lost[name][head] = np.concatenate(moved).mean()
    return lost


# The loss around trained weights, over two random directions (Li et al., 2018).
#
# f(α, β) = L(θ + α δ + β η), where each filter (row of a weight) of δ and η has the norm of that of
# θ, so that surfaces of different models can be compared. Vectors (biases, norms) do not move. A
# plane shows little of millions of dimensions; a sharp valley says more than a smooth one.


def direction(model: nn.Module, random: torch.Generator) -> list[Tensor]:
    """Return a random direction, filter-normalised: d_i ← d_i ‖θ_i‖ / ‖d_i‖; zeros for vectors."""
    directions = []
    for parameter in model.parameters():
        drawn = torch.zeros(parameter.shape)
        if parameter.dim() > 1:
            drawn = torch.randn(parameter.shape, generator=random)
            sizes = parameter.detach().float().cpu().flatten(1).norm(dim=1)
            scale = sizes / drawn.flatten(1).norm(dim=1).clamp(min=1e-12)
            drawn = drawn * scale.view(-1, *[1] * (drawn.dim() - 1))
        directions.append(drawn.to(parameter))
    return directions


@torch.no_grad()
def surface(
    model: nn.Module, loss: Callable[[], float], steps: int = 11, reach: float = 1.0, seed: int = 0
) -> Figures:
    """Return the losses (β, α) on a ``steps`` × ``steps`` grid from −reach to reach, one run each.

    The model itself is in the middle; its weights are restored bit for bit. Raises ``ConfigError``
    for an even number of steps, whose grid would not contain the model itself.
    """
    if steps < 3 or steps % 2 == 0:
        raise ConfigError(
            f"steps = {steps}: give an odd number, so that the model is in the middle"
        )
    random = torch.Generator().manual_seed(seed)
    directions = [direction(model, random) for _ in range(2)]
    parameters = list(model.parameters())
    trained = [parameter.detach().clone() for parameter in parameters]
    places = np.linspace(-reach, reach, steps)
    losses = np.zeros((steps, steps))
    try:
        for (row, beta), (column, alpha) in product(enumerate(places), repeat=2):
            for p, start, first, second in zip(parameters, trained, *directions, strict=True):
                p.copy_(start + alpha * first + beta * second)
            losses[row, column] = loss()
    finally:
        for parameter, start in zip(parameters, trained, strict=True):
            parameter.copy_(start)
    return losses


# Does order matter? The input is shuffled; without positions, self-attention returns the same.
#
# A map f is equivariant if f(x_π) = f(x)_π: it reads a bag of vectors. Attention is; positions,
# recurrence and a causal mask are not (Vaswani et al., 2017; Lee et al., 2019).


def encodings(model: nn.Module) -> list[tuple[nn.Module, Position]]:
    """Return the parts of a model that have their own position encoding, and these encodings."""
    owners = [(part, dict(part.named_children()).get("position")) for part in model.modules()]
    return [
        (owner, position)
        for owner, position in owners
        if isinstance(position, Position) and not isinstance(position, NoPosition)
    ]


@contextmanager
def without_positions(model: nn.Module) -> Iterator[int]:
    """Remove the position encodings for the context; yields their number."""
    parts = encodings(model)
    try:
        for owner, _ in parts:
            owner.position = NoPosition(NoPosition.Config(), 1, 1)
        yield len(parts)
    finally:
        for owner, position in parts:
            owner.position = position


@torch.inference_mode()
def shuffled(forced: ForcedPass, seed: int = 0) -> tuple[Figures, float]:
    """Shuffle the output of the stem (embeddings, patches), before positions are added.

    Returns ‖f(x_π) − f(x)_π‖ / ‖f(x)_π‖ at each position (S,), in the order of the input, and the
    mean log p that the target loses.

    In a model with an encoder that is its source, else the text that the decoder reads. Raises
    ``ConfigError`` for a model without a stem whose output can be shuffled.
    """
    inside = next(iter(stems_of(forced.model)), "")
    if not inside:
        raise ConfigError("this model reads its input at once: it has no positions to shuffle")
    plain, before = _read(forced, inside, None)
    shuffle = torch.randperm(len(plain), generator=torch.Generator().manual_seed(seed))
    after, scores = _read(forced, inside, shuffle)
    back = shuffle.argsort()
    change = (after[back] - plain).norm(dim=-1) / plain.norm(dim=-1).clamp(min=1e-12)
    return change.double().cpu().numpy(), float(forced.difference(before, scores).mean())


def stems_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return what embeds the input of each side of a model, ours or of Hugging Face (one side)."""
    parts = {name: part for name, part in model.named_children() if name in ("encoder", "decoder")}
    stems = {name: dict(part.named_children()).get("stem") for name, part in parts.items()}
    embeddings = getattr(model, "get_input_embeddings", None)
    if not parts and embeddings is not None:
        stems = {next(iter(hook_points(model)), "encoder").partition(".")[0]: embeddings()}
    return {side: stem for side, stem in stems.items() if stem is not None}


def output_of(model: nn.Module) -> nn.Module | None:
    """Return the layer that scores all words or labels, None if there is none."""
    parts = dict(model.named_children())
    names = ("output", "lm_head", "classifier", "score")  # the last three are of Hugging Face
    return next((parts[name] for name in names if name in parts), None)


def _read(forced: ForcedPass, inside: str, shuffle: Tensor | None) -> tuple[Tensor, Figures]:
    """Return the outputs of a side, (S, D), and the scores."""
    side = forced.model.get_submodule(inside)

    def turn(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output if shuffle is None else output[:, shuffle.to(output.device)]

    stem = side.get_submodule("stem")
    with stem.register_forward_hook(turn), calls_of(side) as calls:
        scores = forced.run().double().cpu().numpy()
    output = calls[-1].output
    vectors: Tensor = output if isinstance(output, Tensor) else output.values  # a memory's
    return vectors[forced.row].float(), scores


def layers_of(model: nn.Module) -> nn.ModuleList | None:
    """Return the layers, in order, whose last one produces the output; None if there are none.

    They are the decoder's if there is one, else the encoder's; or those of a Hugging Face model.
    """
    parts = dict(model.named_children())
    side = parts.get("decoder", parts.get("encoder"))
    inside = model.named_modules() if side is None else side.named_children()
    lists = {name.split(".")[-1]: part for name, part in inside if isinstance(part, nn.ModuleList)}
    return next((lists[name] for name in LAYERS if lists.get(name)), None)


# Which state turns the answer: the states of one text are put into the run on another.
#
# Activation patching, or causal tracing (Vig et al., 2020; Meng et al., 2022).


@dataclass(frozen=True)
class StateStream:
    """A module whose output is a state at each position: a stem, a layer, or a cell.

    A cell is called once for each position, from the last one if ``reverse``.
    """

    name: str
    module: nn.Module
    reverse: bool = False

    @torch.inference_mode()
    def recorded(self, forced: ForcedPass) -> list[Call]:
        """Return the calls of the module in a run."""
        with stepwise(self.module), calls_of(self.module) as calls:
            forced.run()
        return calls

    @contextmanager
    def patched(self, theirs: Sequence[Call], positions: Collection[int]) -> Iterator[None]:
        """Put the states of another run at some positions into one run of the model."""
        steps, at = count(), list(positions)

        def hook(module: nn.Module, args: object, output: Tensor | tuple[Tensor, ...]) -> object:
            if isinstance(module, Cell):
                step = next(steps)
                place = len(theirs) - 1 - step if self.reverse else step
                return theirs[step].output if place in at else output
            own = output if isinstance(output, Tensor) else output[0]
            changed = own.clone()
            changed[:, at] = theirs[0].gave[0][:, at]
            return changed if isinstance(output, Tensor) else (changed, *output[1:])

        with stepwise(self.module), self.module.register_forward_hook(hook):
            yield


def stepwise(module: nn.Module) -> AbstractContextManager[None]:
    """Make a cell run step by step, not by a kernel."""
    return probed(module, lambda *stage: None) if isinstance(module, Cell) else nullcontext()


def streams(model: nn.Module) -> list[StateStream]:
    """Return the states of the side that reads the text, in order.

    They are the input of the first layer, then the output of each layer, or the state of each cell.
    Raises ``ConfigError`` for a model without such a side.
    """
    for name, stem in stems_of(model).items():
        side = dict(model.named_children()).get(name, model)
        cells = [(n, m) for n, m in side.named_modules(prefix=name) if isinstance(m, Cell)]
        layers = None if cells else layers_of(side)
        return [
            StateStream("input", stem),
            *(StateStream(f"layer {n}", layer) for n, layer in enumerate(layers or ())),
            *(StateStream(called(n), cell, backwards(n)) for n, cell in cells),
        ]
    raise ConfigError("this model has no states at positions that could be exchanged")


Answers = Sequence[ForcedPass]  # one text with the answers A and B, or with A alone


def margin(of: Answers, patch: Callable[[], AbstractContextManager[None]] = nullcontext) -> float:
    """Return log p(A) − log p(B) after a text, or log p(A) alone, each run within a patch."""
    log_p = []
    for forced in of:
        with patch():
            log_p.append(forced.scores().sum())
    return float(log_p[0] - sum(log_p[1:]))


def shared(of: Answers) -> list[str]:
    """Return what the model reads of the text itself, before the answers differ."""
    first, second = (next(iter(forced.read.values())) for forced in (of[0], of[-1]))
    pairs = zip(first, second, strict=False)
    return [a for a, b in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def restored(ours: Answers, theirs: Answers) -> Figures:
    """Return how much of B's answer each state of B's text brings into the run on A's, (L, S).

    (m(patched) − m(A)) / (m(B) − m(A)), with the margin m = log p(A) − log p(B): 0 is the answer as
    on A, 1 as on B. Raises ``ConfigError`` for texts of different lengths, or with equal margins.
    """
    low, high = margin(ours), margin(theirs)
    lengths = len(shared(ours)), len(shared(theirs))
    if lengths[0] != lengths[1]:
        raise ConfigError(
            f"the model reads {lengths[0]} tokens of one text and {lengths[1]} of the other: "
            "states are exchanged position by position, so give texts with as many tokens"
        )
    if low == high:
        raise ConfigError("both texts give the answers the same log p: there is nothing to restore")
    rows = []
    for stream in streams(ours[0].model):
        calls = stream.recorded(theirs[-1])
        patches = (partial(stream.patched, calls, [at]) for at in range(lengths[0]))
        rows.append([(margin(ours, patch) - low) / (high - low) for patch in patches])
    return np.array(rows)
