"""Weights over the places of a picture, drawn over the picture: one panel for each word or layer.

Lives here: `over_picture` and its view, and the page around a drawing. The path of glimpses is
drawn by `path`; the same weights as a matrix by `heatmap`.
"""

from __future__ import annotations

import base64
import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.heatmap import FONT_SIZE, AttentionView, attention
from foveate.look.record import AttentionRecord, block_of
from foveate.look.view import View, picture_bytes
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDE = 1.7  # inches of one panel
ACROSS = 6  # panels in a row
MOST_NAMED = 4  # cells that a text names for each panel
_PLACE = re.compile(r"(\d+),(\d+)")


@dataclass(frozen=True)
class Panel:
    """One drawing: what looks, and its weight on each column of the record, (S,)."""

    title: str
    weights: NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class PictureView(View):
    """A picture, and beside it what was looked at in it."""

    matrix: AttentionView
    pixels: NDArray[np.uint8]  # (C, H, W)
    panels: list[Panel]
    scale: str

    @property
    def columns(self) -> list[str]:
        """The labels of the places; those that are no cell of the picture are not drawn."""
        return self.matrix.columns

    @property
    def caption(self) -> str:
        """Which maps these are, in words."""
        if self.matrix.rows != self.matrix.columns:
            return self.matrix.caption
        cells = _cells(self.columns)
        special = [label for i, label in enumerate(self.columns) if i not in cells]
        block = block_of(self.matrix.name).replace("_", "-").replace(".", " ")
        heads = "mean of all heads" if self.matrix.head is None else f"head {self.matrix.head}"
        return f"{block} · seen by {special[0] if special else 'all places, mean'} · {heads}"

    def grid(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Weights on the columns (S,) as (rows, columns) of the cells of the picture."""
        cells = _cells(self.columns)
        height, width = (1 + max(place[i] for place in cells.values()) for i in (0, 1))
        grid = np.zeros((height, width), np.float32)
        for column, place in cells.items():
            grid[place] = weights[column]
        return grid

    def elsewhere(self, weights: NDArray[np.float32]) -> str:
        """What lies on places that are no cell, such as the class token, in words."""
        cells = _cells(self.columns)
        others = [i for i in range(len(weights)) if i not in cells]
        return "".join(f"\n{self.columns[i]} {weights[i]:.0%}" for i in others)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "picture": self.pixels,
            "titles": np.array([panel.title for panel in self.panels]),
            "weights": np.stack([self.grid(panel.weights) for panel in self.panels]),
            "map": np.array(self.matrix.name),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """The cells that were looked at most, a line for each panel: a grid would be too coarse."""
        height, across = self.grid(self.panels[0].weights).shape if self.panels else (0, 0)
        lines = [
            visible(self.matrix.record.title),
            f"looked at most: row,column of {height}×{across} cells",
        ]
        longest = max((len(panel.title) for panel in self.panels), default=0)
        for panel in self.panels:
            best = np.argsort(-panel.weights, kind="stable")[:MOST_NAMED]
            named = (f"{self.columns[i]:>5} {panel.weights[i]:4.0%}" for i in best)
            lines.append(f"{visible(panel.title):<{longest}}  {'  '.join(named)}")
        return "\n".join([*lines, self.caption])

    def html(self) -> str:
        return page_of(self, self.matrix.record.title)

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        count = len(self.panels) + 1
        across = min(count, ACROSS)
        down = -(-count // across)
        size = (SIDE * across + 0.9, (SIDE + 0.35) * down + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(down, across, squeeze=False).flatten()
        for ax in axes:
            ax.set_axis_off()
        show_pixels(axes[0], self.pixels)
        titles = ["the picture", *(panel.title for panel in self.panels)]
        for ax, title in zip(axes, titles, strict=False):
            short = visible(title) if len(title) <= 24 else visible(title)[:23] + "…"
            ax.set_title(short, size=FONT_SIZE, parse_math=False)
        for ax, panel in zip(axes[1:], self.panels, strict=False):
            self._paint(ax, panel)
        self._legend(figure, list(axes[:count]))
        title = textwrap.fill(visible(self.matrix.record.title), 18 * across)
        figure.suptitle(title, size=FONT_SIZE + 1, parse_math=False)
        figure.supxlabel(self.caption, size=FONT_SIZE, color="#555555")
        return figure

    def _paint(self, ax: Axes, panel: Panel) -> None:
        """The picture in grey, and over it each cell in the colour of its weight."""
        _, height, width = self.pixels.shape
        show_pixels(ax, self.pixels.mean(axis=0, keepdims=True).astype(np.uint8))
        grid = self.grid(panel.weights)
        levels = colors.scale(self.scale).levels(grid.reshape(1, -1)).reshape(grid.shape)
        paint = np.concatenate([colors.table()[colors.indices(levels)] / 255, levels[..., None]], 2)
        paint[..., 3] = 0.15 + 0.7 * paint[..., 3]  # what has no weight leaves the picture seen
        ax.imshow(paint, extent=(0, width, height, 0), interpolation="nearest")
        note = self.elsewhere(panel.weights).strip()
        ax.text(0, height * 1.02, note, size=FONT_SIZE - 2, va="top", color="#555555")

    def _legend(self, figure: Figure, axes: list[Axes]) -> None:
        from matplotlib.cm import ScalarMappable

        how = colors.scale(self.scale)
        bar = figure.colorbar(ScalarMappable(cmap="cividis"), ax=axes, shrink=0.8, aspect=24)
        bar.set_ticks(list(how.marks), labels=list(how.marks.values()), size=FONT_SIZE - 2)
        bar.set_label(how.caption.replace("row", "panel"), size=FONT_SIZE - 2)
        bar.outline.set_visible(False)


def over_picture(
    record: AttentionRecord,
    pixels: NDArray[np.uint8],
    block: str | None = None,
    layer: int = -1,
    head: int | None = None,
    scale: str = "row",
) -> PictureView:
    """Where a model looked in a picture (C, H, W).

    Of a decoder's attention a panel for each word; of patches that look at patches a panel for
    each layer, showing what the class token looked at, or where there is none the mean of all.
    Without a ``block``: the attention to the picture that the record has. Raises as
    `foveate.look.attention` does, and ``ValueError`` where the columns are no places of a picture.
    """
    matrix = attention(record, block or _block(record), layer, head, scale)
    if not _cells(matrix.columns):
        raise ValueError(
            f'{matrix.name}: its columns are no places of a picture ("row,column"); its rows and '
            "columns can be drawn by foveate.look.attention"
        )
    return PictureView(matrix, pixels, _panels(matrix), scale)


def _block(record: AttentionRecord) -> str:
    """The block of the last map whose columns are places of the picture."""
    fitting = [name for name in record.maps if _cells(record.axes(name)[1])]
    return block_of((fitting or list(record.maps) or ["attention"])[-1])


def _panels(matrix: AttentionView) -> list[Panel]:
    if matrix.rows != matrix.columns:
        return [Panel(word, row) for word, row in zip(matrix.rows, matrix.array, strict=True)]
    panels = []
    for number, name in enumerate(matrix.record.names(block_of(matrix.name))):
        heads = matrix.record.drawn(name)
        weights = heads.mean(axis=0) if matrix.head is None else heads[matrix.head]
        special = [i for i in range(len(weights)) if i not in _cells(matrix.columns)]
        row = weights[special[0]] if special else weights.mean(axis=0)
        panels.append(Panel(f"layer {number}", row))
    return panels


def _cells(labels: Sequence[str]) -> dict[int, tuple[int, int]]:
    """The cell (row, column) of each label that names one."""
    found = {i: _PLACE.fullmatch(label) for i, label in enumerate(labels)}
    return {i: (int(m[1]), int(m[2])) for i, m in found.items() if m is not None}


def show_pixels(ax: Axes, pixels: NDArray[np.uint8]) -> None:
    """Fill axes with a picture (C, H, W), each pixel a field; grey where it has one channel."""
    channels, height, width = pixels.shape
    shown = pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)
    sharp = "nearest" if max(height, width) <= 64 else "antialiased"
    ax.imshow(
        shown, cmap="gray", vmin=0, vmax=255, extent=(0, width, height, 0), interpolation=sharp
    )


def page_of(view: View, title: str) -> str:
    """A page that holds the drawing itself; it needs no network and no script."""
    drawn = base64.b64encode(picture_bytes(view, "png")).decode()
    name = html.escape(visible(title))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        "<style>:root{color-scheme:light dark}body{font:16px system-ui;margin:2rem}"
        "img{max-width:100%;background:#fff}</style>"
        f'<h1 style="font-size:1.2rem">{name}</h1>'
        f'<img alt="{html.escape(view.text(width=100, color=False))}" '
        f'src="data:image/png;base64,{drawn}"></html>'
    )
