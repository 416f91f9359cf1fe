"""Pictures of analyses: gates, states, gradients, lens, heads, loss surface, positions."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import foveate.look.perturbations as changes
from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.charts import Curve, LinesDrawing, line_chart
from foveate.look.draw.parts import Numbers, visible
from foveate.look.draw.scene import CELL, WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import ColorScale, LensDrawing, SheetDrawing, SheetGrid, sheet
from foveate.look.hooks import ForcedPass, calls_of
from foveate.look.records import block_of, spaced
from foveate.look.relevance import Figures, by_distance
from foveate.look.stages import Gates
from foveate.nn.positions import Position

Floats = NDArray[np.floating]
UNITS_SHOWN = 24
MOST = 12  # positions of a shuffled text that are drawn


def gates(
    opened: Gates, words: Sequence[str], units: int = UNITS_SHOWN, title: str = ""
) -> SheetGrid:
    """Draw one layer's gates (1, T, H) over the words that were read, with one row per unit.

    The rows are the ``units`` that change most over the text (by the sum of their gates' standard
    deviations), the same in every sheet. Raises `UserError` if a cell has no gates.
    """
    if not opened:
        raise UserError("this cell has no gates to draw; LSTM and GRU cells have")
    over: dict[str, NDArray[np.float32]] = {n: g[0].T.cpu().numpy() for n, g in opened.items()}
    lively = sum(gate.std(axis=1) for gate in over.values())
    shown = np.sort(np.argsort(-np.asarray(lively), kind="stable")[:units])
    drawn = [
        sheet(
            f"{name} gate", gate[shown], [str(unit) for unit in shown], words, "unit", "read",
            ColorScale(0.0, 1.0, "0 closed … 1 open"), aspect=0.35,
        )
        for name, gate in over.items()
    ]  # fmt: skip
    caption = f"{len(shown)} of {len(lively)} units, those that change most over the text"
    return SheetGrid(sheets=drawn, title=title, across=1, caption=caption)


def principal(states: Floats) -> tuple[Figures, Figures]:
    """Return the principal components of states (T, H) and their shares of the variance.

    The coordinates are (T, min(T, H)). The largest of each component is positive, for equal
    pictures.
    """
    centred = states - states.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    path = left * sizes
    signs = np.sign(path[np.abs(path).argmax(axis=0), np.arange(path.shape[1])])
    squares = sizes**2
    return path * np.where(signs == 0, 1, signs), squares / max(squares.sum(), 1e-12)


def states(hidden: Floats, words: Sequence[str], title: str = "") -> LinesDrawing:
    """Draw the path of states (T, H), word by word, in the plane of two principal components.

    Raises `UserError` for fewer than two steps.
    """
    if len(hidden) < 2:
        raise UserError(f"{len(hidden)} states: a path needs two or more")
    path, shares = (np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)])
                    for values in principal(hidden))  # fmt: skip
    across, up = (f"component {k + 1}, {shares[k]:.0%} of the variance" for k in (0, 1))
    return LinesDrawing(
        title=title, x=path[:, 0], curves=[Curve(name="state", y=path[:, 1])], across=across, up=up,
        labels=list(words), named=True, caption="principal components of the hidden state",
    )  # fmt: skip


def gradients(norms: Mapping[str, Figures], most: int | None = None) -> LinesDrawing:
    """Draw some models together: a line for each, g_k / g_0 over k, with g on a logarithmic axis.

    ``norms`` are those of `influence`. Zeros are left out of the lines, and k from ``most`` on.
    """
    curves = {name: by_distance(matrix)[:most] for name, matrix in norms.items()}
    drawn = {name: np.where(y > 0, y, np.nan) / y[0] for name, y in curves.items()}
    return line_chart(
        range(max(map(len, drawn.values()))), drawn, "distance k in tokens",
        "gradient norm relative to k = 0", "The gradient against distance in time", "y",
    )  # fmt: skip


# The logit lens: the output of a model if its layers ended here (nostalgebraist, 2020).
#
# The output of layer l replaces that of the last one and passes through the model's own last norm
# and output layer. Early layers were never trained for this: their tokens are only a hint.

CELL_ASPECT = 0.3 / 0.62  # height of a cell by its width
CAPTION = "most probable token if the model ended here; colour: its p (nostalgebraist, 2020)"


@torch.inference_mode()
def lens(forced: ForcedPass, title: str = "") -> LensDrawing:
    """Draw each layer's top token at each position with output; the last layer's is the model's.

    This takes one pass per layer. Raises ``ConfigError`` for a model that outputs no tokens, or
    has no stack of consecutive layers with vectors of one size.
    """
    layers, names = changes.layers_of(forced.model), forced.token
    output = changes.output_of(forced.model)
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
        rows = forced.scored(calls[-1].output).softmax(dim=-1)
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


def importances(
    lost: Mapping[str, Figures], passes: Sequence[ForcedPass], title: str = ""
) -> SheetGrid:
    """Draw the results of `importance`: a sheet for each block, layers down and heads across."""
    blocks: dict[str, list[Figures]] = {}
    for name, figures in lost.items():
        blocks.setdefault(block_of(name), []).append(figures)
    most = max((float(np.abs(figures).max()) for figures in lost.values()), default=0.0)
    scale = ColorScale(-most, most, " ")
    count, sheets = sum(len(forced.produced) for forced in passes), []
    lost_is, caption = "change of the forecast without each head", f"mean of {count} steps"
    if passes[0].score_name == "log p":
        lost_is = "log p lost for each token, on average"
        caption = f"mean of {count} tokens (+: the model is worse without the head)"
    for block, layers in blocks.items():
        values = np.full((len(layers), max(map(len, layers))), np.nan)
        for row, figures in zip(values, layers, strict=True):
            row[: len(figures)] = figures
        rows = [f"layer {n}" for n in range(len(layers))]
        heads = [f"head {n}" for n in range(values.shape[1])]
        sheets += [sheet(spaced(block), values, rows, heads, "", lost_is, scale, 0.6, written=True)]
    return SheetGrid(sheets=sheets, title=f"{title}: {lost_is}", caption=caption)


def surfaces(losses: Mapping[str, Figures], reach: float = 1.0, title: str = "") -> SheetGrid:
    """Draw the loss surfaces of some models side by side, with one logarithmic colour scale.

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
        sheets.append(sheet(name, above, places, places, "β", "α", ColorScale(*ends, label)))
    count = sum(grid.size for grid in losses.values())
    caption = f"filter-normalised directions, {count} runs (Li et al., 2018)"
    return SheetGrid(sheets=sheets, title=title, caption=caption)


# Position encodings as heat maps: the encoding of each position, and the bias of each pair.
#
# An encoding of any kind is drawn by the methods that it overrides (`foveate.nn.positions`).

HEADS_SHOWN = 4
FEW = 64  # how many numbers may be written into their cells


def sheets(position: Position, length: int, hidden_size: int, num_heads: int) -> list[SheetDrawing]:
    """Return the sheets of an encoding; none if it does not distinguish positions.

    ``embed``: the vector of each position, (T, D), and the cosines of all pairs, (T, S).
    ``rotate``: the same for a vector of ones that is rotated. ``bias``: what each head adds to the
    score of a pair, (T, S), for some heads from first to last.
    """
    at = torch.arange(length)
    drawn: list[SheetDrawing] = []
    with torch.no_grad():
        nothing = torch.zeros(1, length, position.config.token_size(hidden_size))
        embedded = position.embed(nothing, at)[0]
        if not torch.equal(embedded, embedded[:1].expand_as(embedded)):
            drawn += _vectors("added to position t", embedded)
        ones = torch.ones(1, 1, length, hidden_size // num_heads)
        turned = position.rotate(ones, at)[0, 0]
        if not torch.equal(turned, ones[0, 0]):
            drawn += _vectors("ones, rotated at position t", turned)
        bias = position.bias(at, at)
    if bias is None:
        return drawn
    picked = torch.linspace(0, len(bias) - 1, min(len(bias), HEADS_SHOWN)).round().long()
    return drawn + [_pairs(f"head {head} adds to score", bias[head]) for head in picked.tolist()]


def positions(
    position: Position, length: int = 64, hidden_size: int = 64, num_heads: int = 4
) -> SheetGrid:
    """Draw an encoding over ``length`` positions, with vectors of ``hidden_size`` numbers.

    Raises `UserError` for one that does not distinguish positions, or whose table is shorter than
    ``length``.
    """
    drawn = sheets(position, length, hidden_size, num_heads)
    if not drawn:
        raise UserError(
            f'position = "{position.config.kind}" does not distinguish positions: nothing to draw'
        )
    return SheetGrid(
        sheets=drawn, title=f"Positions: {str(position.config.kind).replace('_', ' ')}"
    )


def _vectors(title: str, vectors: Tensor) -> list[SheetDrawing]:
    """Return sheets of the vectors themselves, (T, D), and of their dot products, (T, S)."""
    units = vectors / vectors.norm(dim=1, keepdim=True)
    length, size = vectors.shape
    few = length * size <= FEW
    rows, columns = ([str(n) for n in range(count if few else 0)] for count in (length, size))
    table = sheet(
        title, vectors.numpy(), rows, columns, "position t", "dimension",
        aspect=0.5 if few else size / length, written=few,
    )  # fmt: skip
    return [table, _pairs("similarity (cosine)", units @ units.mT)]


def _pairs(title: str, values: Tensor) -> SheetDrawing:
    return sheet(title, values.numpy(), down="position t", across="position s")


def permutation(forced: ForcedPass, title: str = "", seed: int = 0) -> SceneDrawing:
    """Draw how much each position changes when the input is shuffled.

    The model runs with its position encodings, and without them if it has any; 0 everywhere means
    that order does not matter. It was not trained without them: only the shape of the curve counts.
    """
    results = {"with positions": changes.shuffled(forced, seed)}
    with changes.without_positions(forced.model) as count:
        if count:
            results["without them"] = changes.shuffled(forced, seed)
    curves = {name: outputs for name, (outputs, _) in results.items()}
    what = f"{forced.score_name} {'lost' if forced.score_name == 'log p' else 'change'}"
    lost = [f"{name} {what} {mean:.2f}" for name, (_, mean) in results.items()]
    words = forced.words(next(iter(changes.stems_of(forced.model))), len(curves["with positions"]))
    order = torch.randperm(len(words), generator=torch.Generator().manual_seed(seed)).tolist()
    made, count = SceneMaker(), min(len(words), MOST)
    middles = made.row("read", [""], words[:count], 46)
    after = made.row("shuffled", ["shuffled"], [words[k] for k in order[:count]], 320, up=24)
    wide = float(min(130, np.diff(middles, append=2 * WIDE).min() - 8))
    moved = sorted((place, k) for k, place in enumerate(order[:count]) if place < count)
    for row, (name, outputs) in enumerate(curves.items()):
        y = 370 + 110.0 * row
        made.label(name, "", (0, y - 15, 228, 80), texts=["change", name])
        for place, k in moved:
            box, fill = (after[k] - wide / 2, y, wide, CELL), {"level": outputs[place], "hue": row}
            made.node(f"{name} of {place}", "", box, texts=[f"{outputs[place]:.2f}"], **fill)
    for place, k in moved:
        x, u = middles[place], after[k]
        made.edge(f"moved {k}", (x, 50), (x, 160), (u, 160), (u, 270), weight=0.2, hue=5, tag="")
    made.stop("shuffled", "Change of each word’s vector, relative to its norm.", [])
    return made.drawing(title or "Does order matter?", caption="; ".join(lost))
