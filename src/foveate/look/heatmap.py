"""Attention as a heat map, as links between words, and over a picture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors, render_terminal
from foveate.look.capture import AttentionRecord, block_of
from foveate.look.drawing import AttentionDrawing, Drawing, visible
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FONT_SIZE = 9.0  # points
MOST_LABELS = 64  # above, only every k-th word is written
LINE = 0.16  # inches that a word takes from the next one below


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView(View):
    """The weights of one layer and head (or the mean of the heads) between words."""

    record: AttentionRecord
    name: str
    head: int | None
    scale: str

    @cached_property
    def array(self) -> NDArray[np.float32]:
        """The weights that are drawn, (T, S): rows are what is produced, columns the source."""
        heads = self.record.drawn(self.name)
        chosen: NDArray[np.float32] = heads[self.head] if self.head is not None else heads.mean(0)
        return chosen

    @property
    def rows(self) -> list[str]:
        """The words of the rows; their numbers where the record has no labels."""
        return self.record.axes(self.name)[0] or [str(t) for t in range(self.array.shape[0])]

    @property
    def columns(self) -> list[str]:
        """The words of the columns; their numbers where the record has no labels."""
        return self.record.axes(self.name)[1] or [str(s) for s in range(self.array.shape[1])]

    @property
    def layer(self) -> int:
        """The place of the map among the layers of its block, from 0."""
        return self.record.names(block_of(self.name)).index(self.name)

    @property
    def caption(self) -> str:
        """Which map this is, in words."""
        layers, heads = (
            len(self.record.names(block_of(self.name))),
            len(self.record.maps[self.name]),
        )
        parts = [block_of(self.name).replace("_", "-").replace(".", " ")]
        if layers > 1:
            parts.append(f"layer {self.layer} of 0–{layers - 1}")
        if heads > 1:
            parts.append(f"mean of {heads} heads" if self.head is None else f"head {self.head}")
        return " · ".join(parts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "weights": self.array,
            "rows": np.array(self.rows),
            "columns": np.array(self.columns),
            "map": np.array(self.name),
            "head": np.array("mean" if self.head is None else self.head),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        width = width or shutil.get_terminal_size().columns
        drawn = render_terminal.draw(
            self.array,
            self.rows,
            self.columns,
            scale=self.scale,
            width=width,
            ink=render_terminal.ability(color=color),
        )
        title = render_terminal.wrap([visible(self.record.title or self.caption)], width)
        notes = render_terminal.wrap(map(visible, self.record.notes), width)
        return "\n".join([*title, drawn, *notes])

    def drawings(self) -> list[Drawing]:
        from foveate.look.measure import drawing

        start = {"block": block_of(self.name), "layer": self.layer, "scale": self.scale}
        return [drawing(self.record, **start, head=self.head)]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        height, width = self.array.shape
        label = [
            max((len(visible(w)) for w in words), default=0) for words in (self.rows, self.columns)
        ]
        room = [0.075 * min(n, 24) + 0.4 for n in label]  # inches that the words take
        cell = min(0.36, 14 / max(height, width, 1))
        size = (max(cell * width + room[0] + 1.1, 3.4), max(cell * height + room[1] + 0.7, 2.6))
        figure = Figure(figsize=size, layout="constrained")
        self.plot(figure.add_subplot()).set_xlabel("")
        figure.supxlabel(self.caption, size=FONT_SIZE, color="#555555", parse_math=False)
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        paint(ax, self.array, self.scale, grid=True)
        ax.set_aspect("equal")
        write_words(ax, self.rows, self.columns)
        how = colors.scale(self.scale)
        bar = ax.figure.colorbar(ax.collections[0], ax=ax, shrink=0.8, aspect=24, pad=0.02)
        bar.set_ticks(list(how.marks), labels=list(how.marks.values()), size=FONT_SIZE - 2)
        bar.set_label(how.caption, size=FONT_SIZE - 2)
        bar.outline.set_visible(False)
        ax.set_ylabel(self.record.row_means(self.name), size=FONT_SIZE, color="#555555")
        ax.set_xlabel(self.caption, size=FONT_SIZE, color="#555555", labelpad=8)
        return ax


def paint(ax: Axes, weights: NDArray[np.float32], scale: str, grid: bool = False) -> None:
    """Fill axes with the cells of (T, S), the first row on top; blank cells stay blank."""
    levels = np.ma.masked_where(colors.is_blank(weights), colors.scale(scale).levels(weights))
    small = grid and max(weights.shape) <= MOST_LABELS
    mesh = ax.pcolormesh(levels, cmap="cividis", vmin=0, vmax=1, rasterized=True)
    if small:
        mesh.set(edgecolor="white", linewidth=0.6)
    ax.invert_yaxis()
    ax.set_facecolor("#eeeeee")
    for spine in ax.spines.values():
        spine.set_visible(False)


def write_words(ax: Axes, rows: list[str], columns: list[str], height: float = LINE) -> None:
    """Words at the centres of their rows and columns, the source on top and turned.

    ``height`` is that of a row in inches: where it is low, only every k-th row has its word.
    """
    for axis, words, least in ((ax.xaxis, columns, 1), (ax.yaxis, rows, ceil(LINE / height))):
        every = max(least, ceil(len(words) / MOST_LABELS))
        places = range(0, len(words), every)
        axis.set_ticks([k + 0.5 for k in places])
        text = [visible(words[k]) for k in places]
        axis.set_ticklabels([w if len(w) <= 24 else w[:23] + "…" for w in text], parse_math=False)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, pad=3, labelsize=FONT_SIZE)
    for label in ax.get_xticklabels():
        label.set(rotation=50, rotation_mode="anchor", horizontalalignment="left")


def attention(
    record: AttentionRecord,
    block: str = "cross_attention",
    layer: int = -1,
    head: int | None = None,
    scale: str = "row",
) -> AttentionView:
    """The picture of one layer of a block: of one head, or of the mean of all.

    ``scale`` says how weights become colours: ``"row"`` against the largest of the row (a long
    sentence stays legible), ``"absolute"`` from 0 to 1. Raises ``KeyError`` naming the blocks that
    exist, ``IndexError`` naming the layers or heads, ``ValueError`` naming the scales.
    """
    record.select(block, layer, head)  # says what is wrong now, not when it is drawn
    colors.scale(scale)
    return AttentionView(record, record.names(block)[layer], head, scale)


# ------------------------------------------------------------------------------------------- links
# Attention as lines between two columns of words: what each word looks at.

STEP = 0.24  # inches from word to word
LEAST = 0.05  # weights below are not drawn in a picture that nobody can point at
NOTE = "#555555"


@dataclass(frozen=True, eq=False, repr=False)
class LinksView(AttentionView):
    """The map of one layer and head; a line is as strong as its weight.

    In a browser the lines of one word are shown when it is pointed at.
    """

    def drawings(self) -> list[Drawing]:
        return [
            drawing.model_copy(update={"form": "links"})
            for drawing in super().drawings()
            if isinstance(drawing, AttentionDrawing)
        ]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        height = STEP * max(len(self.rows), len(self.columns)) + 0.9
        figure = Figure(figsize=(5.0, height), layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        count = max(len(self.rows), len(self.columns))
        down = [(count - len(words)) / 2 for words in (self.columns, self.rows)]
        for t, row in enumerate(self.array):
            for s, weight in enumerate(row):
                if weight >= LEAST:
                    ax.plot(
                        (0, 1), (s + down[0], t + down[1]), color=colors.line(0),
                        alpha=min(1.0, float(weight)), linewidth=0.6 + 2.4 * float(weight),
                    )  # fmt: skip
        for words, start, x, side in (
            (self.columns, down[0], -0.03, "right"),
            (self.rows, down[1], 1.03, "left"),
        ):
            for place, word in enumerate(words):
                text = visible(word)
                short = text if len(text) <= 24 else text[:23] + "…"
                ax.text(
                    x, place + start, short, size=FONT_SIZE, ha=side, va="center", parse_math=False
                )
        ax.set(xlim=(-0.9, 1.9), ylim=(count - 0.4, -0.6))
        ax.set_axis_off()
        means = self.record.row_means(self.name)
        told = f"read → {means}, weights from {LEAST:.0%}\n{self.caption}"
        ax.set_title(told, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
        return ax


def links(view: AttentionView) -> LinksView:
    """The same map as lines between words."""
    return LinksView(view.record, view.name, view.head, view.scale)


# ----------------------------------------------------------------------------------------- overlay
# Weights laid over a picture: it stays seen everywhere, in grey, and takes a tint where weight is.
#
#     y = (1 − a) g + a (dark + g (light − dark))
#
# g is the grey of a pixel and a the opacity of the weight on it, both 0 to 1: the tint has light
# and
# dark parts of its own, so that even under all the weight there is a picture. Orange beside grey
# is
# told apart with every kind of colour vision (Okabe & Ito, 2008). Nothing is drawn here.

Floats = NDArray[np.floating]
DARK, LIGHT = np.array([0.72, 0.26, 0.0]), np.array([1.0, 0.80, 0.42])  # of orange
EVEN = 6  # even shares that a weight must have to be drawn in full: looking nowhere stays pale


@dataclass(frozen=True)
class Overlay:
    """How weights become opacities, and how a legend says it.

    ``opacity`` takes the weights of one panel on all cells of the picture, (rows, columns).
    """

    caption: str
    opacity: Callable[[Floats], Floats]


def _by_panel(weights: Floats) -> Floats:
    full = max(float(weights.max(initial=0)), min(1.0, EVEN / max(1, weights.size)))
    return weights / full


OVERLAYS = {
    "row": Overlay(f"weight / the panel's largest (at least {EVEN} even shares)", _by_panel),
    "absolute": Overlay("weight", lambda weights: weights),
}


def tinted(grey: Floats, opacity: Floats) -> NDArray[np.float64]:
    """Colours (…, 3) from 0 to 1 of grey pixels under opacities of the same shape."""
    g, a = np.asarray(grey, np.float64)[..., None], np.asarray(opacity, np.float64)[..., None]
    return (1 - a) * g + a * (DARK + g * (LIGHT - DARK))


def enlarged(grid: Floats, height: int, width: int) -> Floats:
    """A grid of cells (rows, columns) as pixels (height, width): each has its cell's value."""
    rows = np.arange(height) * grid.shape[0] // height
    columns = np.arange(width) * grid.shape[1] // width
    return grid[np.ix_(rows, columns)]
