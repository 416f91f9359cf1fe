"""Inside a model: gates, hidden states, gradients over time, logit lens, importance of heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.drawings import (
    Curve,
    LensDrawing,
    LinesDrawing,
    Numbers,
    SheetGrid,
    StatesDrawing,
    line_chart,
    sheet,
)
from foveate.look.edits import edit, silence
from foveate.look.records import ForcedPass, Where, block_of, calls_of, chosen, spaced
from foveate.look.words import visible
from foveate.nn.probe import probed
from foveate.nn.recurrent import Cell

Figures = NDArray[np.float64]
Gates = dict[str, Tensor]  # by name, each (B, T, H), from 0 (shut) to 1 (open)
UNITS_SHOWN = 24


@dataclass
class CellSteps:
    """The hidden states h (B, T, H) of a recurrent cell, and its gates (B, T, H) by name.

    Steps are in the order of computation: those of a layer that reads backwards begin with the last
    word. An Elman network has no gates.
    """

    states: Tensor
    gates: Gates


@contextmanager
def capture_cells(model: nn.Module) -> Iterator[dict[str, CellSteps]]:
    """Collect the states and the gates of every recurrent cell, by its dotted name.

    They are there after the context. Meanwhile cells run step by step, as their equations; outputs
    differ from those of a kernel by rounding.
    """
    captured: dict[str, CellSteps] = {}
    stages: dict[str, dict[str, list[Tensor]]] = {}

    def record(cell: str, stage: str, values: Tensor, frame: FrameType) -> None:
        if stage == "state" or stage.endswith(" gate"):
            steps = stages.setdefault(cell, {}).setdefault(stage.removesuffix(" gate"), [])
            steps.append(values.detach().float())

    with ExitStack() as stack:
        for name, part in model.named_modules():
            if isinstance(part, Cell):
                stack.enter_context(probed(part, partial(record, name)))
        yield captured
    for name, steps in stages.items():
        joined = {stage: torch.stack(values, dim=1) for stage, values in steps.items()}
        captured[name] = CellSteps(joined.pop("state"), joined)


def gates(
    opened: Gates, words: Sequence[str], units: int = UNITS_SHOWN, title: str = ""
) -> SheetGrid:
    """The picture of one layer's gates (1, T, H) over the words that were read, a row a unit.

    The ``units`` that change most over the text (the standard deviation of their gates, summed),
    the same ones in every sheet. Raises ``ValueError`` where a cell has no gates, or where there is
    not one word for each step.
    """
    if not opened:
        raise ValueError("this cell has no gates to draw; an LSTM and a GRU have")
    over: dict[str, NDArray[np.float32]] = {n: g[0].T.cpu().numpy() for n, g in opened.items()}
    steps = next(iter(over.values())).shape[1]
    if steps != len(words):
        raise ValueError(f"{len(words)} words for {steps} steps; give one for each step")
    lively = sum(gate.std(axis=1) for gate in over.values())
    shown = np.sort(np.argsort(-np.asarray(lively), kind="stable")[:units])
    drawn = [
        sheet(
            f"{name} gate", gate[shown], columns=words, down="unit", least=0.0, most=1.0,
            scale_label="0 shut … 1 open", rows=[str(unit) for unit in shown], aspect=0.35,
        )
        for name, gate in over.items()
    ]  # fmt: skip
    caption = f"{len(shown)} units of {len(lively)}, those that change most over the text"
    return SheetGrid(sheets=drawn, title=title, across=1, caption=caption)


# ------------------------------------------------------------------------------------------ states
# Hidden states of recurrent cells over time: a path through the plane in which they move most.

Floats = NDArray[np.floating]
SHOWN = 3  # components


def backwards(name: str) -> bool:
    """Whether a cell of this name reads from the end: the second direction of a layer."""
    return name.endswith(".1.cell")


def called(name: str) -> str:
    """A cell in words: ``decoder cell 0``, ``encoder cell 1, backwards``."""
    number = next(filter(str.isdecimal, name.split(".")), "")
    return f"{name.split('.')[0]} cell {number}".strip() + ", backwards" * backwards(name)


def principal(states: Floats) -> tuple[Figures, Figures]:
    """Principal components of states (T, H): coordinates (T, min(T, H)), shares of the variance.

    The largest coordinate of each component is positive, so that pictures are the same.
    """
    centred = states - states.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    path = left * sizes
    signs = np.sign(path[np.abs(path).argmax(axis=0), np.arange(path.shape[1])])
    squares = sizes**2
    return path * np.where(signs == 0, 1, signs), squares / max(squares.sum(), 1e-12)


def states(hidden: Floats, words: Sequence[str], title: str = "") -> StatesDrawing:
    """The drawing of states (T, H) over the words that were read; a large dot is the first.

    Raises ``ValueError`` where there is not one word for each of at least two steps.
    """
    if len(hidden) != len(words) or len(words) < 2:
        raise ValueError(f"{len(words)} words for {len(hidden)} steps; give one for each, and two")
    path, shares = principal(hidden)
    percent = ", ".join(f"{share:.0%}" for share in shares[:SHOWN])
    count = min(SHOWN, path.shape[1])
    return StatesDrawing(
        title=title, x=np.arange(len(path), dtype=float), across="read", up="coordinate",
        curves=[Curve(name=f"component {k + 1}", y=path[:, k]) for k in range(count)],
        labels=list(words), path=path, shares=shares,
        caption=f"principal components of the hidden state; shares of the variance: {percent}",
    )  # fmt: skip


# --------------------------------------------------------------------------------------- gradients
# The gradient's norm against distance in time: how far back a model can learn.
#
#     g_k = mean over places t and draws of v of ‖∂(v · h_t) / ∂e_{t−k}‖,   v ~ N(0, I / D)
#
# In a recurrent network this is a product of k Jacobians, which vanishes or explodes with k
# (Bengio, Simard & Frasconi, 1994; Hochreiter, 1991); in attention it is one step, whatever k.

DRAWS = 4  # directions v


def influence(run: Callable[[], Tensor], stem: nn.Module, draws: int = DRAWS) -> Figures:
    """Norms ‖∂(v · h_t) / ∂e_s‖ of every output t and input s: (T, S), root mean square.

    ``run`` makes the model read one sequence and returns its outputs h, (1, T, D); ``stem`` is the
    module that gives the embeddings e, (1, S, D), when it does. 0 where t does not depend on s.
    Directions are drawn from a generator of their own, so the same model gives the same numbers.
    """
    random = torch.Generator().manual_seed(0)
    inputs: list[Tensor] = []

    def track(module: nn.Module, args: object, embedded: Tensor) -> None:
        inputs.append(embedded.requires_grad_())

    with torch.enable_grad(), stem.register_forward_hook(track):
        outputs = run()[0]
    squares = torch.zeros(len(outputs), inputs[0].shape[1], dtype=torch.float64)
    for t, output in enumerate(outputs):
        for _ in range(draws):
            v = torch.randn(output.shape, generator=random) / output.shape[0] ** 0.5
            product = output @ v.to(output)
            gradient = torch.autograd.grad(
                product, inputs[:1], retain_graph=True, allow_unused=True, materialize_grads=True
            )[0][0]
            squares[t] += gradient.double().square().sum(dim=-1).cpu() / draws
    norms: Figures = squares.sqrt().numpy()
    return norms


def by_distance(norms: Figures) -> Figures:
    """g_k for k = 0 … T − 1: the mean of the norms (T, S) along each diagonal t − s = k."""
    length = norms.shape[0]
    return np.array([norms.diagonal(-k).mean() for k in range(length)])


def gradients(norms: Mapping[str, Figures]) -> LinesDrawing:
    """The picture of some models together: a line for each, g_k / g_0 over k, g logarithmic.

    ``norms`` are those of `influence`. What is 0 is left out of the lines.
    """
    curves = {name: by_distance(matrix) for name, matrix in norms.items()}
    longest = max(map(len, curves.values()))
    drawn = {
        name: np.pad(
            np.where(curve > 0, curve, np.nan) / curve[0],
            (0, longest - len(curve)),
            constant_values=np.nan,
        )
        for name, curve in curves.items()
    }
    return line_chart(
        np.arange(longest, dtype=float), drawn, "distance k in tokens",
        "gradient norm / that at k = 0", "The gradient against distance in time", "y",
    )  # fmt: skip


# -------------------------------------------------------------------------------------------- lens
# The logit lens: the output of a model if its layers ended here (nostalgebraist, 2020).
#
# The output of layer l replaces that of the last one and passes through the model's own last norm
# and output layer. Early layers were never trained to be read so: their tokens are a hint.

CELL_ASPECT = 0.3 / 0.62  # height by width of a cell
CAPTION = "most probable token if the layers ended here; colour: its p (nostalgebraist, 2020)"


@torch.inference_mode()
def lens(forced: ForcedPass, title: str = "") -> LensDrawing:
    """The top token of each layer at each place that produces something; the last is the model's.

    One pass for each layer. Raises ``ConfigError`` for a model whose output is no tokens, or
    without a stack of layers, one after the other, of vectors of one size.
    """
    layers, names = layers_of(forced.model), forced.token
    output = dict(forced.model.named_children()).get("output")
    if names is None or layers is None or output is None:
        raise ConfigError(
            "a logit lens reads tokens (or labels) from a stack of layers, as Transformers have; "
            "this model has none"
        )
    with calls_of(*layers) as calls:
        forced.run()
    streams = [calls[0].args[0], *(call.output for call in calls)]
    tokens, p, target_p = [], [], []
    for stream in streams:
        replacing = layers[-1].register_forward_hook(partial(lambda stream, *call: stream, stream))
        with replacing, calls_of(output) as calls:
            scores = forced.run()
        logits = calls[-1].output[forced.row]
        rows = logits.reshape(-1, logits.shape[-1])
        rows = rows[forced.first : forced.first + len(forced.produced)].float().softmax(dim=-1)
        best = rows.max(dim=-1)
        tokens.append([names(i) for i in best.indices.tolist()])
        p.append(best.values.double().cpu().numpy())
        target_p.append(scores.exp().double().cpu().numpy())
    layer_names = ["input", *(f"after layer {n}" for n in range(len(p) - 1))]
    return LensDrawing(
        title=title, caption=CAPTION, values=Numbers.exact(np.stack(p)), rows=layer_names,
        columns=list(forced.produced), across="produced", least=0.0, most=1.0,
        scale_label="p: 0 … 1", aspect=CELL_ASPECT,
        cells=[[visible(token) for token in row] for row in tokens], tokens=tokens,
        target_p=np.stack(target_p),
    )  # fmt: skip


def layers_of(model: nn.Module) -> nn.ModuleList | None:
    """The layers, one after the other, whose last one the output is read from; None without.

    They are the decoder's where there is one, else the encoder's.
    """
    parts = dict(model.named_children())
    side = parts.get("decoder", parts.get("encoder"))
    layers = None if side is None else dict(side.named_children()).get("layers")
    return layers if isinstance(layers, nn.ModuleList) and len(layers) else None


# -------------------------------------------------------------------------------------- importance
# What a model loses with each head: heads silenced one after the other (Michel et al., 2019).


def importance(
    passes: Sequence[ForcedPass], where: Where = lambda name: True
) -> dict[str, Figures]:
    """How much each head is worth: by the name of its map (H,) means over all scores of

        log p − log p with the head silent

    (of a forecast how far it moves). Positive: the model is worse without the head. All passes are
    of one model; each is run once for every head, and once more. Raises ``ConfigError`` naming
    what exists where ``where`` fits nothing.
    """
    model, available = passes[0].model, chosen(passes[0].model, where)
    whole = [forced.scores() for forced in passes]
    heads = {name: len(weights) for name, weights in passes[0].maps(where).items()}
    lost: dict[str, Figures] = {}
    for name in (name for name in available if name in heads):
        lost[name] = np.zeros(heads[name])
        for head in range(heads[name]):
            with edit(model, {name: silence(head)}):
                moved = [
                    forced.difference(before, forced.scores())
                    for forced, before in zip(passes, whole, strict=True)
                ]
            lost[name][head] = np.concatenate(moved).mean()
    return lost


def importances(
    lost: Mapping[str, Figures], passes: Sequence[ForcedPass], title: str = ""
) -> SheetGrid:
    """The picture of `importance`: for each block a sheet, layers down and heads across."""
    blocks: dict[str, list[Figures]] = {}
    for name, figures in lost.items():
        blocks.setdefault(block_of(name), []).append(figures)
    most = max((float(np.abs(figures).max()) for figures in lost.values()), default=0.0)
    sheets = []
    for block, layers in blocks.items():
        values = np.full((len(layers), max(map(len, layers))), np.nan)
        for row, figures in zip(values, layers, strict=True):
            row[: len(figures)] = figures
        sheets.append(
            sheet(
                spaced(block), values, down="layer", across="head",
                rows=[str(n) for n in range(len(layers))],
                columns=[str(n) for n in range(values.shape[1])],
                least=-most, most=most, aspect=0.6,
            )
        )  # fmt: skip
    count = sum(len(forced.produced) for forced in passes)
    caption = f"how far the forecast moves without the head, mean of {count} steps"
    if passes[0].score_name == "log p":
        caption = f"log p lost without the head, mean of {count} (+: the model is worse without it)"
    return SheetGrid(sheets=sheets, title=title, caption=caption)
