"""Analyses of whole models: attention flow, loss surface, positions, permutations, schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.drawings import (
    LinesDrawing,
    SheetDrawing,
    SheetGrid,
    line_chart,
    sheet,
)
from foveate.look.records import (
    AttentionRecord,
    ForcedPass,
    Maps,
    calls_of,
    capture,
    hook_points,
    tapped,
)
from foveate.nn.attention import BaseAttention
from foveate.nn.positions import NoPosition, Position
from foveate.nn.scores import Dot, ScaledDot

# -------------------------------------------------------------------------------------------- flow
# How attention flows through all layers, and how much it contributed to the output.

Figures = NDArray[np.float64]
TINY = 1e-12

ROLLOUT = (
    "rollout: mean of the heads, half of each layer its residual, multiplied from the first layer "
    "up (Abnar & Zuidema, 2020)"
)
RELEVANCE = (
    "relevance: weights that a gradient of the answer calls for, (∇A ⊙ A)⁺, added up through the "
    "layers; rows sum to 1 (Chefer et al., 2021)"
)


def rolled(maps: Maps) -> dict[str, NDArray[np.float32]]:
    """R_l = (½ A_l + ½ I) R_{l−1}, R_0 = I, for each self-attention, A_l the mean of the heads.

    Cross-attention attends to outputs of the encoder: A_l R, R the encoder's last. Shapes:
    (H, T, S) to (1, T, S), by the same names.
    """
    products: dict[str, NDArray[np.float32]] = {}
    last: dict[str, Figures] = {}  # by the side of the model
    for name, weights in maps.items():
        mean: Figures = weights.mean(axis=0, dtype=np.float64)
        side = "encoder" if name.startswith("encoder") else "decoder"
        if name.endswith("self_attention"):
            mixed = (mean + np.eye(len(mean))) / 2
            last[side] = mixed @ last[side] if side in last else mixed
            products[name] = last[side][None].astype(np.float32)
        else:
            seen = last.get("encoder")
            products[name] = (mean if seen is None else mean @ seen)[None].astype(np.float32)
    return products


def rollout(forced: ForcedPass) -> AttentionRecord:
    """What each place has of each input after each layer, by `rolled`, with words on its axes."""
    return forced.labelled(rolled(forced.maps()), ROLLOUT)


@dataclass
class Relevance:
    """The relevance of inputs to places, by the rules of Chefer et al. (2021), layer after layer.

    Ā = E_h[(∇A ⊙ A)⁺]. Self-attention: R += Ā R, and for a decoder R_source += Ā R_source.
    Cross-attention: R_source += R̂_tᵀ Ā R̂_s, where R̂ is I + (R − I) with rows that sum to 1.
    """

    encoder: Figures | None = None  # (S, S)
    decoder: Figures | None = None  # (T, T)
    source: Figures | None = None  # (T, S)

    def add(self, name: str, weights: Figures) -> None:
        """One attention more, Ā (T, S), in the order of the model."""
        if not name.endswith("self_attention"):
            rows = np.eye(len(weights)) if self.decoder is None else _evened(self.decoder)
            columns = np.eye(weights.shape[1]) if self.encoder is None else _evened(self.encoder)
            change = rows.T @ weights @ columns
            self.source = change if self.source is None else self.source + change
        elif name.startswith("encoder"):
            before = np.eye(len(weights)) if self.encoder is None else self.encoder
            self.encoder = before + weights @ before
        else:
            before = np.eye(len(weights)) if self.decoder is None else self.decoder
            self.decoder = before + weights @ before
            if self.source is not None:
                self.source = self.source + weights @ self.source


def relevance(forced: ForcedPass) -> AttentionRecord:
    """How relevant each input is to each output, with words on its axes; rows sum to 1.

    Of a target, ``decoder.cross_attention`` is its words over the source's, and
    ``decoder.self_attention`` over what was written before; of a label, ``relevance`` is one row.
    A place's relevance to itself that comes of the residual is left out. One backward pass for
    each score. Raises ``ConfigError`` for a forecast, and for a model without attention.
    """
    if forced.score_name != "log p":
        raise ConfigError("relevance needs an output with a probability; a forecast has none")
    matrices: dict[str, Figures] = {}
    for t, gathered in enumerate(_gathered(forced)):
        for name, (place, rows) in _answered(forced, gathered, t).items():
            whole = matrices.setdefault(name, np.zeros_like(rows))
            whole[place] = rows[place] / max(rows[place].sum(), TINY)
    maps = {name: whole[None].astype(np.float32) for name, whole in matrices.items()}
    return forced.labelled(maps, RELEVANCE)


def _answered(forced: ForcedPass, of: Relevance, t: int) -> dict[str, tuple[int, Figures]]:
    """By the name of a map the row that score t was read from, and the matrix that it is of."""
    rows_of: dict[str, tuple[int, Figures]] = {}
    if of.decoder is not None:
        rows_of["decoder.self_attention"] = forced.first + t, of.decoder - np.eye(len(of.decoder))
    if of.source is not None:
        name = "decoder.cross_attention" if "decoder" in forced.read else "relevance"
        rows_of[name] = t, of.source
    if rows_of or of.encoder is None:
        return rows_of
    own = of.encoder - np.eye(len(of.encoder))
    if forced.first:  # a token at each place, behind the start
        return {"encoder.self_attention": (forced.first + t, own)}
    row = own.mean(axis=0) if forced.answer_at is None else own[forced.answer_at]
    return {"relevance": (0, row[None])}


def _gathered(forced: ForcedPass) -> Iterator[Relevance]:
    """What was relevant for each score, in their order.

    Ā = E_h[(∇A ⊙ A)⁺], (T, S), of the calls of one attention, is joined along the queries.
    """
    attentions = hook_points(forced.model)
    names: list[str] = []
    calls: list[Tensor] = []

    def tap(name: str, weights: Tensor) -> Tensor:
        names.append(name)
        calls.append(weights if weights.requires_grad else weights.detach().requires_grad_())
        return calls[-1]

    taps = {name: partial(tap, name) for name in attentions}
    with torch.enable_grad(), tapped(taps, attentions):
        scores = forced.run()
    if not calls:
        raise ConfigError("this model has no attention, and so no relevance by attention")
    for score in scores:
        gradients = torch.autograd.grad(
            score, calls, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        parts: dict[str, list[Tensor]] = {}
        for name, weights, gradient in zip(names, calls, gradients, strict=True):
            positive = (gradient * weights).detach()[forced.row].clamp(min=0)
            parts.setdefault(name, []).append(positive.double().mean(dim=0))
        of = Relevance()
        for name in (name for name in attentions if name in parts):
            of.add(name, torch.cat(parts[name]).cpu().numpy())
        yield of


def _evened(relevances: Figures) -> Figures:
    """I + (R − I) with rows that sum to 1."""
    eye = np.eye(len(relevances))
    rest = relevances - eye
    return eye + rest / np.maximum(rest.sum(axis=-1, keepdims=True), TINY)


# ----------------------------------------------------------------------------------------- surface
# The loss around trained weights, over two random directions (Li et al., 2018).
#
# f(α, β) = L(θ + α δ + β η), where each filter (row of a weight) of δ and η has the norm of that of
# θ, so that surfaces of different models can be compared. Vectors (biases, norms) stay. A plane
# shows little of millions of dimensions; a sharp valley says more than a smooth one.


def direction(model: nn.Module, random: torch.Generator) -> list[Tensor]:
    """A random direction, filter-normalised: d_i ← d_i ‖θ_i‖ / ‖d_i‖; zeros for vectors."""
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
    """Losses (β, α) on a grid of ``steps`` × ``steps`` from −reach to reach, a run for each.

    The model itself is in the middle; its weights are put back bit for bit. Raises ``ConfigError``
    for an even number of steps, whose grid would not hold the model itself.
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


def surfaces(losses: Mapping[str, Figures], reach: float = 1.0, title: str = "") -> SheetGrid:
    """The picture of some models side by side; one scale of colours, the logarithm of the loss.

    ``losses`` are those of `surface`, by the names of the models.
    """
    known = np.concatenate([grid[np.isfinite(grid)] for grid in losses.values()])
    least, most = max(float(known.min()), 1e-12), float(known.max())
    sheets = []
    for name, grid in losses.items():
        places = [f"{place:.2g}" for place in np.linspace(-reach, reach, len(grid))]
        above = np.log10(np.where(np.isfinite(grid), grid, np.nan) / least)
        middle = len(grid) // 2
        label = f"log₁₀ (loss / {least:.3g}); loss {least:.3g} … {most:.3g}, "
        label += f"middle {grid[middle, middle]:.3g}"
        ends = 0.0, float(np.log10(most / least))
        sheets.append(sheet(name, above, places, places, "β", "α", *ends, scale_label=label))
    count = sum(grid.size for grid in losses.values())
    caption = f"filter-normalised directions, {count} runs (Li et al., 2018)"
    return SheetGrid(sheets=sheets, title=title, caption=caption)


# --------------------------------------------------------------------------------------- positions
# Position encodings as heat maps: the encoding of each position, and the bias of each pair.
#
# An encoding of any kind is drawn by the methods that it overrides (`foveate.nn.positions`).

HEADS_SHOWN = 4


def sheets(position: Position, length: int, hidden_size: int, num_heads: int) -> list[SheetDrawing]:
    """The sheets of an encoding; empty where it distinguishes no places.

    ``embed``: the vector of each place, (T, D), and the products of the vectors of two places,
    (T, S), divided by the largest, which the title says. ``rotate``: the same of a vector of ones
    that is turned. ``bias``: what each head adds to the score of a pair, (T, S); some
    heads from first to last.
    """
    at = torch.arange(length)
    drawn: list[SheetDrawing] = []
    with torch.no_grad():
        nothing = torch.zeros(1, length, position.config.token_size(hidden_size))
        embedded = position.embed(nothing, at)[0]
        if not torch.equal(embedded, embedded[:1].expand_as(embedded)):
            drawn += _vectors("added to place t", embedded)
        ones = torch.ones(1, 1, length, hidden_size // num_heads)
        turned = position.rotate(ones, at)[0, 0]
        if not torch.equal(turned, ones[0, 0]):
            drawn += _vectors("ones, turned at place t", turned)
        bias = position.bias(at, at)
    if bias is None:
        return drawn
    picked = torch.linspace(0, len(bias) - 1, min(len(bias), HEADS_SHOWN)).round().long()
    return drawn + [_pairs(f"head {head} adds to score", bias[head]) for head in picked.tolist()]


def positions(
    position: Position, length: int = 64, hidden_size: int = 64, num_heads: int = 4
) -> SheetGrid:
    """The picture of an encoding over ``length`` places, of vectors of ``hidden_size`` numbers.

    Raises ``ValueError`` for one that distinguishes no places, or whose table is shorter than
    ``length``.
    """
    drawn = sheets(position, length, hidden_size, num_heads)
    if not drawn:
        raise ValueError(
            f'position = "{position.config.kind}" tells no two places apart: nothing to draw'
        )
    return SheetGrid(sheets=drawn, title=f"Positions: {position.config.kind}")


def _vectors(title: str, vectors: Tensor) -> list[SheetDrawing]:
    """The vectors themselves, (T, D), and their products, (T, S)."""
    products = vectors @ vectors.mT
    most, (length, size) = float(products.abs().max()), vectors.shape
    return [
        sheet(title, vectors.numpy(), down="place t", across="dimension", aspect=size / length),
        _pairs(f"product of two places / the largest ({most:.3g})", products / most),
    ]


def _pairs(title: str, values: Tensor) -> SheetDrawing:
    return sheet(title, values.numpy(), down="place t", across="place s")


# ------------------------------------------------------------------------------------- permutation
# Does order matter? The input is shuffled; without positions self-attention gives the same.
#
# A map f is equivariant where f(x_π) = f(x)_π: it reads a bag of vectors. Attention is, positions,
# recurrence and a causal mask are not (Vaswani et al., 2017; Lee et al., 2019).


@dataclass(frozen=True)
class Shuffled:
    """How a shuffled input changes a model, in the order of the input.

    ``outputs`` (S,): ‖f(x_π) − f(x)_π‖ / ‖f(x)_π‖ of each position. ``attention`` (S,): ½ Σ_s
    |a'_ts − a_ts|, the mean of all layers and heads; None without self-attention. ``lost``: the
    mean log p that the target loses.
    """

    outputs: Figures
    attention: Figures | None
    lost: float


def encodings(model: nn.Module) -> list[tuple[nn.Module, Position]]:
    """The parts of a model that have a position encoding of their own, and the encodings."""
    owners = [(part, dict(part.named_children()).get("position")) for part in model.modules()]
    return [
        (owner, position)
        for owner, position in owners
        if isinstance(position, Position) and not isinstance(position, NoPosition)
    ]


@contextmanager
def _replaced(
    name: str, parts: Sequence[tuple[nn.Module, nn.Module]], other: Callable[[], nn.Module]
) -> Iterator[int]:
    """Other modules under a name of their owners for the context; yields how many."""
    try:
        for owner, _ in parts:
            setattr(owner, name, other())
        yield len(parts)
    finally:
        for owner, part in parts:
            setattr(owner, name, part)


def without_positions(model: nn.Module) -> AbstractContextManager[int]:
    """Remove the position encodings for the context, which gives their number."""
    return _replaced("position", encodings(model), lambda: NoPosition(NoPosition.Config(), 1, 1))


def without_scaling(model: nn.Module) -> AbstractContextManager[int]:
    """Score by qᵀk in place of qᵀk / √K for the context, which gives the number of attentions."""
    scaled = [
        (part, part.score)
        for part in model.modules()
        if isinstance(part, BaseAttention) and isinstance(part.score, ScaledDot)
    ]
    return _replaced("score", scaled, lambda: Dot(Dot.Config(), 1, 1))


@torch.inference_mode()
def shuffled(forced: ForcedPass, seed: int = 0) -> Shuffled:
    """Shuffle the output of the stem (embeddings, patches), before positions are added.

    Of a model with an encoder its source, else the text that the decoder reads. Raises
    ``ConfigError`` where there is no stem to shuffle behind.
    """
    inside = side_of(forced.model)
    if not inside:
        raise ConfigError("this model reads its input at once: there are no places to shuffle")
    plain, before, maps = _read(forced, inside, None)
    random = torch.Generator().manual_seed(seed)
    shuffle = torch.randperm(len(plain), generator=random)
    after, scores, turned = _read(forced, inside, shuffle)
    back = shuffle.argsort()
    put_back = after[back]
    change = (put_back - plain).norm(dim=-1) / plain.norm(dim=-1).clamp(min=1e-12)
    moved = [
        (turned[name][:, back][:, :, back] - weights).abs().sum(dim=-1).mean(dim=0) / 2
        for name, weights in maps.items()
    ]
    return Shuffled(
        change.double().cpu().numpy(),
        torch.stack(moved).mean(dim=0).double().cpu().numpy() if moved else None,
        float(forced.difference(before, scores).mean()),
    )


def side_of(model: nn.Module) -> str:
    """The name of the side whose input can be shuffled behind its stem; nothing without one."""
    parts = dict(model.named_children())
    side = next((name for name in ("encoder", "decoder") if name in parts), "")
    return side if side and "stem" in dict(parts[side].named_children()) else ""


def _read(
    forced: ForcedPass, inside: str, shuffle: Tensor | None
) -> tuple[Tensor, Figures, dict[str, Tensor]]:
    """What a side of the model leaves, (S, D), the scores, and its maps (H, S, S) by name."""
    side = forced.model.get_submodule(inside)

    def turn(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output if shuffle is None else output[:, shuffle.to(output.device)]

    def own(name: str) -> bool:
        return name.startswith(inside) and name.endswith("self_attention")

    stem = side.get_submodule("stem")
    with (
        stem.register_forward_hook(turn),
        calls_of(side) as calls,
        capture(forced.model, own) as maps,
    ):
        scores = forced.run().double().cpu().numpy()
    output = calls[-1].output
    vectors: Tensor = output if isinstance(output, Tensor) else output.values  # of a memory
    of_row = {name: weights[forced.row] for name, weights in maps.items()}
    return vectors[forced.row].float(), scores, of_row


def permutation(forced: ForcedPass, title: str = "", seed: int = 0) -> LinesDrawing:
    """The picture: how much each position changes when the input is shuffled.

    With the position encodings of the model, and without them where it has any; 0 everywhere means
    that order does not matter. The model was not trained without them: only the shape counts.
    """
    results = {"as it is": shuffled(forced, seed)}
    with without_positions(forced.model) as count:
        if count:
            results["without positions"] = shuffled(forced, seed)
    curves: dict[str, Figures] = {}
    for name, result in results.items():
        curves[f"outputs, {name}"] = result.outputs
        if result.attention is not None:
            curves[f"attention, {name}"] = result.attention
    moved = "lost" if forced.score_name == "log p" else "moved by"
    lost = [
        f"{name} {forced.score_name} {moved} {result.lost:.2f}" for name, result in results.items()
    ]
    places = len(next(iter(curves.values())))
    labels = list(forced.read.get(side_of(forced.model), ()))
    return line_chart(
        np.arange(places, dtype=float), curves, "place", "change when shuffled",
        title or "Does order matter?", labels=labels if len(labels) == places else (),
        caption="shuffled input: " + "; ".join(lost),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- schedule
# Learning-rate curves of the schedules (`foveate.train.optim`).

POINTS = 400  # places at which a curve is drawn


def schedule(
    rates: Mapping[str, Callable[[int], float]],
    steps: int,
    up: str = "learning rate",
    title: str = "",
) -> LinesDrawing:
    """The picture of some schedules from step 1 to ``steps``, a line for each name.

    Any function of the step can be drawn: ``up`` names its values. Raises
    ``ValueError`` for less than one step.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps: a curve begins with step 1")
    places = np.unique(np.linspace(1, steps, min(steps, POINTS)).round()).astype(int)
    curves = {name: np.array([rate(int(step)) for step in places]) for name, rate in rates.items()}
    return line_chart(places.astype(float), curves, "step", up, title)
