"""Drawings as figures of matplotlib: `figure` makes one, `draw` draws into axes."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from functools import singledispatch
from math import ceil
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from rich.cells import cell_len

import foveate.draw.colors as colors
from foveate.draw.drawings import (
    BarsDrawing,
    Drawing,
    ForecastDrawing,
    LanesDrawing,
    LensDrawing,
    LinesDrawing,
    Node,
    Overlay,
    PanelGrid,
    PictureDrawing,
    SheetDrawing,
    SheetGrid,
    StatesDrawing,
    TableDrawing,
    Word,
    WordsDrawing,
    shown,
)
from foveate.draw.layout import fit
from foveate.draw.maps import AttendedPicture, AttentionView, HeadsView, LinksView
from foveate.draw.terminal import LANE_MARKS, cut, score_text, table_lines, wrap
from foveate.inspect.words import visible

FONT_SIZE = 9.0  # points
MONOSPACED = ["DejaVu Sans Mono", "monospace"]
LETTER, LINE_HEIGHT = 0.0772, 0.19  # inches of a letter of that font at `FONT_SIZE`, of a line
NOTE = "#555555"
BLANK = "#eeeeee"  # of cells that have no value
GRID = "#dddddd"
WIDTH = 5.0  # inches of a figure: narrow enough for a telephone
PANEL_SIZE = WIDTH, 3.4
MOST_LABELS = 64  # above, only every k-th word is written
LONGEST_LABEL = 24  # letters of a word on an axis
LINE = 0.16  # inches that a word takes from the next below


def picture_bytes(figure: Figure, form: str) -> bytes:
    """A figure as a file of the form png, svg or pdf."""
    file = io.BytesIO()
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    # Text stays text, and the names inside an SVG are the same at every drawing.
    forms: Any = {"svg.fonttype": "none", "svg.hashsalt": "foveate", "pdf.fonttype": 42}
    with rc_context(forms), warnings.catch_warnings():
        # `fit` names the scripts of which no font has glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        fit(figure, warn=form != "svg")  # text of an SVG stays text: its viewer has the fonts
        figure.savefig(file, format=form, dpi=200, metadata=stamp, bbox_inches=_bounds(figure))
    return file.getvalue()


def _bounds(figure: Figure) -> Bbox | None:
    """Inches from edge to edge where something is written beyond the figure's, else None."""
    figure.draw_without_rendering()
    drawn, own = figure.get_tightbbox(), Bbox.from_extents(0, 0, *figure.get_size_inches())
    whole = Bbox.union([own, drawn])
    return None if np.allclose(whole.extents, own.extents, atol=0.02) else whole.padded(0.05)


@singledispatch
def draw(drawing: Drawing, ax: Axes) -> None:
    """Draw into axes. Raises ``NotImplementedError`` for what needs a figure of its own."""
    raise NotImplementedError(f"{type(drawing).__name__} needs a figure of its own: use figure()")


@singledispatch
def figure(drawing: Drawing) -> Figure:
    """A figure of the drawing, unknown to ``pyplot``."""
    raise NotImplementedError(f"{type(drawing).__name__} is drawn by browsers alone")


def _alone(drawing: Drawing, width: float, height: float, caption: str = "") -> Figure:
    """A figure of one pair of axes, with a caption below."""
    made, [ax] = subplots((width, height))
    draw(drawing, ax)
    if caption:
        made.supxlabel(caption, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
    return made


def subplots(
    size: tuple[float, float], count: int = 1, across: int = 1, title: str | None = None,
    caption: str | None = None, heights: Sequence[float] | None = None, share_x: bool = False,
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """A figure of ``size`` inches and its ``count`` axes, ``across`` in a row.

    ``heights`` are the relative heights of the rows.
    """
    made = Figure(figsize=size, layout="constrained")
    down = ceil(count / across)
    grid = made.subplots(down, across, squeeze=False, sharex=share_x, height_ratios=heights)
    axes: list[Axes] = list(grid.flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    if title is not None:
        made.suptitle(title, size=FONT_SIZE + 1, parse_math=False)
    if caption is not None:
        made.supxlabel(caption, size=FONT_SIZE, color=NOTE, parse_math=False)
    return made, axes[:count]


def open_axes(
    ax: Axes, across: str, up: str, grid: Literal["y", "both"] | None, size: float = FONT_SIZE
) -> None:
    """Name the axes, write ticks of ``size``, and leave the frame open at the top and the right."""
    ax.set_xlabel(across, size=FONT_SIZE)
    ax.set_ylabel(up, size=FONT_SIZE)
    ax.tick_params(labelsize=size)
    if grid:
        ax.grid(axis=grid, color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


# ---------------------------------------------------------------------------------- bars and lines

MOST_UPRIGHT = 12  # labels; more are turned
LABEL_LETTERS = 76  # of the labels below an axis, together
POINT_STEP = 0.05  # from a point to that of the next curve at one place, where none are joined
DASHES: Sequence[Any] = ("-", "--", "-.", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), ":", (0, (1, 3)))


@figure.register
def _bars_figure(drawing: BarsDrawing) -> Figure:
    width = min(14.0, max(5.0, 1.2 + 0.3 * len(drawing.labels) * len(drawing.series)))
    return _alone(drawing, width, 3.6, drawing.caption)


@draw.register
def _bars(drawing: BarsDrawing, ax: Axes) -> None:
    count = len(drawing.series)
    places, wide = np.arange(len(drawing.labels)), 0.8 / max(1, count)
    for number, series in enumerate(drawing.series):
        x, values = places + (number - (count - 1) / 2) * wide, np.asarray(series.values)
        ax.bar(x, values, wide * 0.92, color=colors.line(number), label=series.name)
        if len(series.low):
            ends = np.stack([values - series.low, series.high - values]).clip(min=0)
            ax.errorbar(x, values, ends, fmt="none", ecolor=NOTE, elinewidth=1, capsize=2)
    if drawing.at is not None:
        ax.axhline(drawing.at, color=NOTE, linewidth=0.8, linestyle=(0, (4, 3)))
    short = [visible(label)[:LONGEST_LABEL] for label in drawing.labels]
    ax.set_xticks(places, short, size=FONT_SIZE, parse_math=False)
    if len(short) >= MOST_UPRIGHT or max(map(len, short), default=0) > 8:
        for label in ax.get_xticklabels():
            label.set(rotation=50, rotation_mode="anchor", horizontalalignment="right")
    title = textwrap.fill(str(shown(drawing.title)), max(60, 4 * len(drawing.labels)))
    ax.set_title(title, size=FONT_SIZE + 1, loc="left", parse_math=False)
    open_axes(ax, "", drawing.up, grid="y")
    if count > 1:
        ax.legend(frameon=False, fontsize=FONT_SIZE, ncols=count)


@figure.register
def _lines_figure(drawing: LinesDrawing) -> Figure:
    rows = -(-len(drawing.curves) // _legend_columns(drawing))
    return _alone(drawing, PANEL_SIZE[0], PANEL_SIZE[1] + 0.2 * rows, drawing.caption)


def _legend_columns(drawing: LinesDrawing) -> int:
    """How many names stand side by side in the legend."""
    longest = max((len(curve.name) for curve in drawing.curves), default=1)
    return max(1, min(len(drawing.curves), 52 // (longest + 5)))


@draw.register
def _lines(drawing: LinesDrawing, ax: Axes) -> None:
    x = np.asarray(drawing.x)
    for number, (curve, look) in enumerate(zip(drawing.curves, drawing.looks(), strict=True)):
        hue, dash = colors.line(look[0]), DASHES[look[1] % len(DASHES)]
        alone = "o" if np.isfinite(curve.y).sum() == 1 or not drawing.joined else None
        ax.plot(
            x if drawing.joined else x + POINT_STEP * number, curve.y, color=hue, marker=alone,
            ls=dash if drawing.joined else "", lw=1.2 if curve.faint else 1.8, label=curve.name,
            alpha=0.4 if curve.faint else 1.0,
        )  # fmt: skip
        if len(curve.low) and drawing.joined:
            ax.fill_between(x, curve.low, curve.high, color=hue, alpha=0.15, linewidth=0)
        elif len(curve.low):
            ax.vlines(x + POINT_STEP * number, curve.low, curve.high, color=hue, linewidth=1.2)
    _places(drawing, ax)
    legend = ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=_legend_columns(drawing), frameon=False,
        fontsize=FONT_SIZE, handlelength=2.6, borderaxespad=0.3, columnspacing=1.2,
        title=drawing.title or None, title_fontsize=FONT_SIZE + 1, alignment="left",
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _places(drawing: LinesDrawing, ax: Axes) -> None:
    """The axes of lines: their scales, ticks, marks and names."""
    if "x" in drawing.log:
        ax.set_xscale("log")
    if "y" in drawing.log:
        ax.set_yscale("log")
    x, labels = drawing.x, drawing.labels
    if labels:
        every = -(-len(x) // max(2, LABEL_LETTERS // (max(map(len, labels)) + 2)))
        ax.set_xticks(x[::every], labels[::every], parse_math=False)
    elif "x" in drawing.log and len(x) <= MOST_UPRIGHT:
        ax.set_xticks(x, [f"{place:g}" for place in x])
        ax.minorticks_off()
    if drawing.ends is not None:
        ax.set_xlim(drawing.ends)
    elif not drawing.joined:
        ax.margins(x=0.25)
    for mark in drawing.marks:
        ax.axvline(mark.x, color=NOTE, linewidth=0.8)
        ax.annotate(
            mark.label, (mark.x, 1), xycoords=ax.get_xaxis_transform(), xytext=(3, -3),
            textcoords="offset points", va="top", size=FONT_SIZE - 1, color=NOTE,
            parse_math=False,
        )  # fmt: skip
    open_axes(ax, drawing.across, drawing.up, grid="both")


@figure.register
def _panels_figure(drawing: PanelGrid) -> Figure:
    across = min(drawing.across, len(drawing.panels))
    width, height = PANEL_SIZE
    size = width * across, (height + 0.4) * ceil(len(drawing.panels) / across)
    made, axes = subplots(size, len(drawing.panels), across, drawing.title, drawing.caption or None)
    for ax, panel in zip(axes, drawing.panels, strict=True):
        draw(panel, ax)
    return made


@figure.register
def _forecast_figure(drawing: ForecastDrawing) -> Figure:
    size, lines = (8.0, 4.2), drawing.lines
    if drawing.strip is None:
        return _alone(lines, *size)
    made, (above, below) = subplots(size, 2, heights=(12, 1), share_x=True)
    draw(lines, above)
    x = np.asarray(lines.x)
    half = (x[1] - x[0]) / 2
    ends = np.append(x - half, x[-1] + half)
    strip = np.ma.masked_invalid(drawing.strip.values.array)
    below.pcolormesh(ends, (0, 1), strip, cmap="cividis", vmin=0, rasterized=True)
    below.set(yticks=[], facecolor=BLANK)
    below.spines[:].set_visible(False)
    above.set_xlabel("")
    above.tick_params(labelbottom=False)
    below.tick_params(labelsize=FONT_SIZE)
    below.set_xlabel(f"{lines.across}; strip: {drawing.strip.title}", size=FONT_SIZE)
    return made


@figure.register
def _states_figure(drawing: StatesDrawing) -> Figure:
    return _alone(drawing, 5.0, 4.6)


@draw.register
def _states(drawing: StatesDrawing, ax: Axes) -> None:
    """The path through the plane of the first two components; a large dot is the first place."""
    path = drawing.path
    x, y = path[:, 0], path[:, 1] if path.shape[1] > 1 else 0 * path[:, 0]
    ax.plot(x, y, color="#999999", linewidth=1)
    ax.plot(x, y, "o", color=colors.line(0), markersize=4)
    ax.plot(x[:1], y[:1], "o", color=colors.line(1), markersize=7)
    ax.margins(0.12)
    _label_points(ax, np.stack([x, y], axis=1), drawing.labels)
    names = [f"component {k + 1} ({share:.0%})" for k, share in enumerate(drawing.shares[:2])]
    ax.set_title(drawing.title, size=FONT_SIZE + 1, parse_math=False)
    open_axes(ax, names[0], names[1] if len(names) > 1 else "", grid=None, size=FONT_SIZE - 1)


CORNERS = ("left", "bottom"), ("left", "top"), ("right", "bottom"), ("right", "top")  # of labels


def _label_points(ax: Axes, points: NDArray[np.float64], labels: Sequence[str]) -> None:
    """A label at each point (T, 2), at the corner where it covers least of labels and points."""
    inch, size = ax.get_figure(root=True).dpi / 72, FONT_SIZE - 1  # type: ignore[union-attr]
    ax.autoscale_view()
    places = ax.transData.transform(points) / inch  # in points
    covered = [Bbox.from_bounds(px - 3, py - 3, 6, 6) for px, py in places]
    for (px, py), point, label in zip(places, points, map(visible, labels), strict=True):
        wide, boxes = 0.6 * size * cell_len(label), []
        for side, edge in CORNERS:
            left, low = px + 4 if side == "left" else px - 4 - wide, py + 4
            boxes.append(
                Bbox.from_bounds(left, low if edge == "bottom" else py - 4 - size, wide, size)
            )
        shared = [[Bbox.intersection(box, other) for other in covered] for box in boxes]
        areas = [sum(b.width * b.height for b in each if b is not None) for each in shared]
        best = int(np.argmin(areas))
        covered.append(boxes[best])
        side, edge = CORNERS[best]
        offset = 4 if side == "left" else -4, 4 if edge == "bottom" else -4
        ax.annotate(
            label, tuple(point), xytext=offset, textcoords="offset points", size=size,
            ha=side, va=edge, parse_math=False,
        )  # fmt: skip


# ------------------------------------------------------------------------------------------- beams

STEP, RANK = 0.95, 0.34  # inches of a step and of a hypothesis in it
LONGEST_NODE = 10  # letters of a label
FAINT = "#b5b5b5"


@figure.register
def _lanes_figure(drawing: LanesDrawing) -> Figure:
    tallest = max(map(len, drawing.steps), default=1)
    return _alone(drawing, max(4.0, STEP * len(drawing.steps) + 0.4), RANK * tallest + 1.0)


@draw.register
def _lanes(drawing: LanesDrawing, ax: Axes) -> None:
    steps, best = drawing.steps, set(drawing.best)
    place = {
        n.id: (number, rank) for number, step in enumerate(steps) for rank, n in enumerate(step)
    }
    for node in (node for step in steps for node in step):
        if node.parent is not None:
            _join(ax, node, place[node.parent], place[node.id], node.id in best)
        _write_node(ax, node, place[node.id], node.id in best)
    tallest = max(map(len, steps), default=1)
    ax.set(xlim=(-0.55, len(steps) - 0.4), ylim=(tallest - 0.4, -0.6), yticks=[])
    ax.set_xticks(range(len(steps)), [str(n + 1) for n in range(len(steps))])
    ax.tick_params(length=0, labelsize=FONT_SIZE - 1, color=NOTE)
    ax.spines[:].set_visible(False)
    caption = textwrap.fill(drawing.caption, max(64, 15 * len(steps)))
    ax.set_xlabel(caption, size=FONT_SIZE - 1, color=NOTE, loc="left")
    if drawing.title:
        ax.set_title(drawing.title, size=FONT_SIZE + 1, loc="left", parse_math=False)


def _join(ax: Axes, node: Node, start: tuple[int, int], end: tuple[int, int], chosen: bool) -> None:
    """A line from a partial hypothesis to the one that extends it."""
    ax.plot(
        *(list(pair) for pair in zip(start, end, strict=True)),
        color=colors.line(0) if chosen else FAINT,
        linewidth=2.4 if chosen else 0.9,
        linestyle="--" if node.state == "pruned" else "-",
        zorder=2 if chosen else 1,
    )


def _write_node(ax: Axes, node: Node, place: tuple[int, int], chosen: bool) -> None:
    """The last token of a partial hypothesis in a box, with its score."""
    word = cut(node.text.removeprefix(" ") or node.text, LONGEST_NODE)
    mark = LANE_MARKS["done"] if node.state == "done" else ""
    dropped = node.state == "pruned"
    box = {
        "boxstyle": "round,pad=0.25", "facecolor": "white",
        "edgecolor": colors.line(0) if chosen else FAINT,
        "linestyle": "--" if dropped else "-", "linewidth": 1.4 if chosen else 0.7,
    }  # fmt: skip
    ax.text(
        *place, f"{word}{mark} {score_text(node, 1)}".replace("-", "−"), size=FONT_SIZE - 1.5,
        ha="center", va="center", color=NOTE if dropped else "black",
        weight="bold" if chosen else "normal", parse_math=False, bbox=box,
    )  # fmt: skip


# --------------------------------------------------------------------------------------- attention

LINK_STEP = 0.24  # inches from word to word
LEAST_LINK = 0.05  # weights below are no line in a figure, which cannot be pointed at
HEAD_SIDE = 1.25  # inches of one small matrix


@figure.register
def _attention_figure(drawing: AttentionView) -> Figure:
    height, width = drawing.array.shape
    words = drawing.rows, drawing.columns
    letters = [max(map(len, map(visible, labels)), default=0) for labels in words]
    margins = [0.075 * min(n, LONGEST_LABEL) + 0.4 for n in letters]  # inches of the words
    cell = min(0.36, 14 / max(height, width, 1))
    size = max(cell * width + margins[0] + 1.1, 3.4), max(cell * height + margins[1] + 0.7, 2.6)
    made, [ax] = subplots(size, caption=drawing.caption)
    draw(drawing, ax)
    ax.set_xlabel("")
    return made


@draw.register
def _attention(drawing: AttentionView, ax: Axes) -> None:
    paint(ax, drawing.array, drawing.scale, grid=True)
    ax.set_aspect("equal")
    write_words(ax, drawing.rows, drawing.columns)
    weight_bar(ax.figure, [ax], drawing.scale, 0.8)
    ax.set_ylabel(drawing.record.row_means(drawing.name), size=FONT_SIZE, color=NOTE)
    ax.set_xlabel(drawing.caption, size=FONT_SIZE, color=NOTE, labelpad=8)


def paint(ax: Axes, weights: NDArray[np.float32], scale: str, grid: bool = False) -> None:
    """Fill axes with the cells of (T, S), the first row on top; blank cells stay blank."""
    levels = np.ma.masked_where(weights == 0, colors.scale(scale).levels(weights))
    mesh = ax.pcolormesh(levels, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    if grid and max(weights.shape) <= MOST_LABELS:
        mesh.set(edgecolor="white", linewidth=0.6)
    ax.invert_yaxis()
    ax.set_facecolor(BLANK)
    ax.spines[:].set_visible(False)


def weight_bar(made: Any, axes: list[Axes], name: str = "absolute", shrink: float = 0.6) -> None:
    """What the colours of weights mean, beside some axes."""
    scale = colors.scale(name)
    bar = made.colorbar(axes[0].collections[0], ax=axes, shrink=shrink, aspect=24, pad=0.02)
    bar.set_ticks(list(scale.marks), labels=list(scale.marks.values()), size=FONT_SIZE - 2)
    bar.set_label(scale.caption, size=FONT_SIZE - 2)
    bar.outline.set_visible(False)


def write_words(ax: Axes, rows: list[str], columns: list[str], height: float = LINE) -> None:
    """Words at the centres of their rows and columns, the source on top and turned.

    ``height`` is that of a row in inches: where it is low, only every k-th row has its word.
    """
    for axis, words, least in ((ax.xaxis, columns, 1), (ax.yaxis, rows, ceil(LINE / height))):
        every = max(least, ceil(len(words) / MOST_LABELS))
        places = range(0, len(words), every)
        axis.set_ticks([k + 0.5 for k in places])
        axis.set_ticklabels([cut(words[k], LONGEST_LABEL) for k in places], parse_math=False)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, pad=3, labelsize=FONT_SIZE)
    for label in ax.get_xticklabels():
        label.set(rotation=50, rotation_mode="anchor", horizontalalignment="left")


@figure.register
def _links_figure(drawing: LinksView) -> Figure:
    return _alone(drawing, 5.0, LINK_STEP * max(map(len, (drawing.rows, drawing.columns))) + 0.9)


@draw.register
def _links(drawing: LinksView, ax: Axes) -> None:
    rows, columns = drawing.rows, drawing.columns
    count = max(len(rows), len(columns))
    left, right = (count - len(rows)) / 2, (count - len(columns)) / 2
    for t, row in enumerate(drawing.array):
        for s in np.flatnonzero(row >= LEAST_LINK):
            weight = float(row[s])
            ax.plot(
                (0, 1), (t + left, s + right), color=colors.line(0), alpha=min(1.0, weight),
                linewidth=0.6 + 2.4 * weight,
            )  # fmt: skip
    for words, start, x, side in ((rows, left, -0.03, "right"), (columns, right, 1.03, "left")):
        for place, word in enumerate(words):
            label = cut(word, LONGEST_LABEL)
            ax.text(x, place + start, label, size=FONT_SIZE, ha=side, va="center", parse_math=False)
    ax.set(xlim=(-0.9, 1.9), ylim=(count - 0.4, -0.6))
    ax.set_axis_off()
    means = drawing.record.row_means(drawing.name)
    heading = f"{means} → attends to, weights from {LEAST_LINK:.0%}\n{drawing.caption}"
    ax.set_title(heading, size=FONT_SIZE - 1, color=NOTE, parse_math=False)


@figure.register
def _heads_figure(drawing: HeadsView) -> Figure:
    maps = [drawing.record.drawn(name) for name in drawing.names]
    kinds, across = list(drawing.kinds.values()), max(map(len, maps))
    size = HEAD_SIDE * across + 0.9, HEAD_SIDE * len(maps) + 0.9
    caption = f"{drawing.block_label.replace('_', '-')} · {colors.scale(drawing.scale).caption}"
    made, axes = subplots(size, len(maps) * across, across, caption=caption)
    for layer, heads in enumerate(maps):
        row = axes[layer * across : (layer + 1) * across]
        row[0].set_ylabel(f"layer {layer}", size=FONT_SIZE)
        for ax in row[len(heads) :]:
            ax.set_axis_off()
        for head, (ax, weights) in enumerate(zip(row, heads, strict=False)):
            ax.set(xticks=[], yticks=[])
            paint(ax, weights, drawing.scale)
            ax.set_xlabel(kinds[layer][head], size=FONT_SIZE - 2, color=NOTE, labelpad=2)
            if layer == 0:
                ax.set_title(f"head {head}", size=FONT_SIZE)
    return made


# ---------------------------------------------------------------------------------------- pictures

PICTURE_SIDE = 1.7  # inches of one panel
MOST_ACROSS = 6  # panels in a row
PATH_SIDE = 3.6  # inches of a picture with a path


@figure.register
def _attended_figure(drawing: AttendedPicture) -> Figure:
    count = len(drawing.overlays) + 1
    down = -(-count // MOST_ACROSS)
    across = -(-count // down)  # rows as even as they can be
    size = (PICTURE_SIDE * across + 0.9, (PICTURE_SIDE + 0.35) * down + 0.5)
    title = textwrap.fill(visible(drawing.heading), 18 * across)
    made, axes = subplots(size, count, across, title, drawing.caption)
    show_pixels(axes[0], drawing.pixels)
    titles = ["the picture", *(overlay.title for overlay in drawing.overlays)]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_axis_off()
        ax.set_title(cut(title, LONGEST_LABEL), size=FONT_SIZE, parse_math=False)
    for ax, overlay in zip(axes[1:], drawing.overlays, strict=True):
        _overlay(ax, drawing, overlay)
    _tint_legend(made, axes, drawing.scale)
    return made


def _overlay(ax: Axes, drawing: PictureDrawing, overlay: Overlay) -> None:
    """The picture in grey, tinted by the weight of each cell; below, how much that is."""
    height, width, weights = drawing.height, drawing.width, overlay.weights.array
    opacity = colors.enlarged(colors.OVERLAYS[drawing.scale].levels(weights), height, width)
    _show(ax, colors.tinted(drawing.pixels.mean(axis=0) / 255, opacity))
    size, below = FONT_SIZE - 1.5, height * 1.03
    ax.text(0, below, f"most {weights.max():.0%}", size=size, va="top", color=NOTE)
    ax.text(width, below, overlay.note, size=size, va="top", ha="right", color=NOTE)


def _tint_legend(made: Figure, axes: list[Axes], scale: str) -> None:
    """The tint from no weight to most, over black, grey and white."""
    bar = made.colorbar(ScalarMappable(), ax=axes, shrink=0.7, aspect=14, pad=0.02).ax
    levels, greys = np.meshgrid(np.linspace(1, 0, 256), [0, 0.5, 1], indexing="ij")
    bar.clear()
    tints = colors.tinted(greys, levels)
    bar.imshow(tints, extent=(0, 1, 0, 1), aspect="auto", interpolation="nearest")
    bar.set_xticks([])
    marks = {level: f"{level:.0%}" for level in (0, 0.25, 0.5, 0.75, 1)}
    bar.set_yticks(list(marks), labels=list(marks.values()), size=FONT_SIZE - 1.5)
    bar.yaxis.set(ticks_position="right", label_position="right")
    bar.set_ylabel(colors.OVERLAYS[scale].caption, size=FONT_SIZE - 1.5)
    bar.spines[:].set_visible(False)


def show_pixels(ax: Axes, pixels: NDArray[np.uint8]) -> None:
    """Fill axes with a picture (C, H, W), each pixel a field; grey where it has one channel."""
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    _show(ax, colours.transpose(1, 2, 0) / 255)


def _show(ax: Axes, colours: NDArray[np.float64]) -> None:
    """Fill axes with pixels (H, W, 3) of colours from 0 to 1."""
    height, width, _ = colours.shape
    sharp = "nearest" if max(height, width) <= 64 else "antialiased"
    ax.imshow(colours, extent=(0, width, height, 0), interpolation=sharp)


@figure.register
def _path_figure(drawing: PictureDrawing) -> Figure:
    """The picture, and its glimpses in order: early ones dark and late ones bright."""
    made, (plain, ax) = subplots((2 * PATH_SIDE, PATH_SIDE + 0.3), 2, 2)
    for each in (plain, ax):
        show_pixels(each, drawing.pixels)
        each.set_axis_off()
    stroke = withStroke(linewidth=2.6, foreground="black")  # seen on bright pictures too
    edge: list[AbstractPathEffect] = [stroke]
    ax.plot(*zip(*drawing.path, strict=True), color="#cccccc", linewidth=1, path_effects=edge)
    shades = colors.table()[np.linspace(110, 255, len(drawing.path)).astype(int)] / 255
    sharp = drawing.sides[0]
    for t, ((x, y), shade) in enumerate(zip(drawing.path, shades, strict=True), start=1):
        corner = x - sharp / 2, y - sharp / 2
        frame = Rectangle(corner, sharp, sharp, fill=False, edgecolor=shade, linewidth=1.2)
        ax.add_patch(frame).set_path_effects(edge)
        ax.annotate(
            str(t), (x, y), size=FONT_SIZE - 1, ha="center", va="center",
            color="black" if shade.mean() > 0.5 else "white",
            bbox={"boxstyle": "circle,pad=0.15", "facecolor": shade, "edgecolor": "black"},
        )  # fmt: skip
    ax.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    widths = ", ".join(map(str, drawing.sides))
    plain.set_title(drawing.title, size=FONT_SIZE, parse_math=False)
    ax.set_title(f"glimpses in order; each sees {widths} pixels across", size=FONT_SIZE)
    return made


# ------------------------------------------------------------------------------------------ sheets

LENS_CELL = 0.62, 0.3  # inches of a cell of a logit lens


@figure.register
def _grid_figure(drawing: SheetGrid) -> Figure:
    sheets, across = drawing.sheets, min(drawing.across, len(drawing.sheets))
    lines = [sheets[i : i + across] for i in range(0, len(sheets), across)]
    side = (WIDTH - 0.3) / across - (0.45 if any(sheet.marked for sheet in sheets) else 0.1)
    heights = [max(_sheet_height(sheet, side) for sheet in line) for line in lines]
    headings = 0.26 * bool(drawing.title) + 0.24 * bool(drawing.caption)
    size, title, caption = (WIDTH, sum(heights) + headings + 0.1), drawing.title, drawing.caption
    made, axes = subplots(size, len(sheets), across, title or None, caption or None, heights)
    for ax, sheet in zip(axes, sheets, strict=True):
        _sheet(sheet, ax, side * sheet.aspect / sheet.values.shape[1])
    return made


def _sheet_height(sheet: SheetDrawing, side: float) -> float:
    """Inches of a sheet with what is written around it."""
    rows, columns = sheet.values.shape
    words = 0.075 * max(map(len, sheet.columns), default=0)
    title = 0.19 * len(sheet.heading.splitlines())
    marks = 0.2 * sheet.marked + 0.2 * bool(sheet.across)
    return side * sheet.aspect * rows / columns + words + title + marks + 0.1


@draw.register
def _sheet(sheet: SheetDrawing, ax: Axes, height: float = LINE) -> None:
    """Fill axes with the cells of a sheet, rows so many inches high, and write what it is."""
    values, least, most = sheet.values.array, sheet.least, sheet.most
    hues = "PuOr_r" if least < 0 < most else "cividis"
    masked = np.ma.masked_invalid(values)
    ax.pcolormesh(masked, cmap=hues, vmin=least, vmax=most, rasterized=True)
    ax.invert_yaxis()
    ax.set_facecolor(BLANK)
    ax.set_aspect(sheet.aspect)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=2, labelsize=FONT_SIZE - 1, color=NOTE)
    letters = max((len(cut(text)) for row in sheet.cells for text in row), default=0)
    size = (FONT_SIZE - 2) * min(1.0, LETTERS_A_LINE / max(1, letters * values.shape[1]))
    for t, row in enumerate(sheet.cells):
        for s, text in enumerate(row):
            level = (values[t, s] - least) / ((most - least) or 1)
            dark = abs(level - 0.5) > 0.27 if least < 0 < most else level <= 0.5
            ink = "white" if dark and np.isfinite(level) else "black"
            ax.text(
                s + 0.5, t + 0.5, cut(text) if text else "", size=size, ha="center",
                va="center", color=ink, parse_math=False,
            )  # fmt: skip
    if not sheet.marked:
        ax.set(xticks=[], yticks=[])
    if sheet.columns or sheet.rows:
        write_words(ax, sheet.rows, sheet.columns, height)
    ax.set_xlabel(sheet.across, size=FONT_SIZE - 0.5, color=NOTE)
    ax.set_ylabel(sheet.down, size=FONT_SIZE - 0.5, color=NOTE)
    ax.set_title(sheet.heading, size=FONT_SIZE, parse_math=False)


@figure.register
def _lens_figure(drawing: LensDrawing) -> Figure:
    height, width = drawing.values.shape
    size = max(LENS_CELL[0] * width + 1.2, 5.0), LENS_CELL[1] * height + 1.6
    return _alone(drawing, *size, drawing.caption)


# ------------------------------------------------------------------------------- words and tables

LETTERS_A_LINE = 96


@figure.register
def _words_figure(drawing: WordsDrawing) -> Figure:
    cells, lines = _flow(drawing.words)
    tallest = max((len(_below(word)) for word in drawing.words), default=0)
    height = (tallest + 2) * LINE_HEIGHT
    heading = [*textwrap.wrap(drawing.title, LETTERS_A_LINE), drawing.legend]
    top = 0.25 + LINE_HEIGHT * len(heading)
    caption = wrap(drawing.caption.splitlines(), LETTERS_A_LINE)
    bottom = top + lines * height
    made = Figure(figsize=(LETTERS_A_LINE * LETTER + 0.3, bottom + LINE_HEIGHT * len(caption)))
    size = made.get_size_inches()
    ax = made.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, size[0]), ylim=(size[1], 0))
    ax.set_axis_off()
    for number, text in enumerate(heading):
        ink = NOTE if text is drawing.legend else "black"
        _write(ax, 0.15, 0.15 + number * LINE_HEIGHT, text, ink)
    for word, (x, line) in zip(drawing.words, cells, strict=True):
        _place_word(ax, drawing, word, 0.15 + x * LETTER, top + line * height)
    for number, text in enumerate(caption):
        _write(ax, 0.15, bottom + (number - 0.5) * LINE_HEIGHT, text, NOTE)
    return made


def _place_word(ax: Axes, drawing: WordsDrawing, word: Word, x: float, y: float) -> None:
    """A word on its colour, and what stands below it."""
    label, ink = visible(word.text), "black"
    if word.value is not None:
        fill, ink = fill_and_ink(drawing, word.value)
        wide = cell_len(label) * LETTER
        ax.add_patch(Rectangle((x - 0.02, y - 0.11), wide + 0.04, 0.2, color=fill, lw=0))
    _write(ax, x, y, label, ink)
    if not word.space and _below(word):  # a piece of a word, apart from the one before it
        _write(ax, x - 1.2 * LETTER, y, "‿", NOTE)
    for row, text in enumerate(_below(word), start=1):
        _write(ax, x, y + row * LINE_HEIGHT, text, NOTE)


def fill_and_ink(drawing: WordsDrawing, value: float) -> tuple[tuple[float, float, float], str]:
    """The colour of a value, and black or white, whichever is read better on it."""
    least, most = drawing.least, drawing.most
    level = (value - least) / ((most - least) or 1)
    if least < 0 < most:
        red, green, blue, _ = colormaps["PuOr_r"](level)
    else:
        red, green, blue = colors.table()[int(np.clip(level, 0, 1) * 255)] / 255
    light = np.dot((red, green, blue), (0.299, 0.587, 0.114))
    return (red, green, blue), "black" if light > 0.5 else "white"


def _below(word: Word) -> list[str]:
    """The lines under a word of a figure."""
    others = []
    for choice in word.alternatives:
        p = f"{choice.p:.2f}" if choice.p >= 0.005 else "<0.01"
        others.append(f"{visible(choice.text)} {p}")
    return [*([str(shown(word.note))] if word.note else []), *others]


def _flow(words: Sequence[Word]) -> tuple[list[tuple[int, int]], int]:
    """The place of each word, (letters from the left, line), and how many lines there are."""
    places, x, line = [], 0, 0
    for word in words:
        wide = max([cell_len(visible(word.text)), *map(cell_len, _below(word))])
        gap = 1 if word.space or _below(word) else 0
        if x and x + gap + wide > LETTERS_A_LINE:
            x, line = 0, line + 1
        x += gap if x else 0
        places.append((x, line))
        x += wide
    return places, line + 1


def _write(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    ax.text(
        x, y, text, color=color, size=FONT_SIZE, family=MONOSPACED, va="center", parse_math=False
    )


@figure.register
def _table_figure(drawing: TableDrawing) -> Figure:
    lines = table_lines(drawing)
    width = max(map(cell_len, lines), default=1) * LETTER + 0.3
    caption = drawing.caption.splitlines()
    height = 0.7 + LINE_HEIGHT * (len(lines) + len(caption))
    made = Figure(
        figsize=(max(4.0, width, *(len(line) * LETTER + 0.3 for line in caption)), height)
    )
    across = 0.15 / made.get_figwidth()
    style: Any = {"size": FONT_SIZE, "family": MONOSPACED, "va": "top", "parse_math": False}
    made.text(across, 1 - 0.1 / height, visible(drawing.title), **style)
    made.text(across, 1 - 0.4 / height, lines[0], color=NOTE, **style)
    for number, line in enumerate(lines[1:], start=1):
        made.text(across, 1 - (0.4 + LINE_HEIGHT * number) / height, line, **style)
    for number, line in enumerate(caption, start=len(lines)):
        made.text(across, 1 - (0.5 + LINE_HEIGHT * number) / height, line, color=NOTE, **style)
    return made
