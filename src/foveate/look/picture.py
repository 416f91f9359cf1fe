"""Figures of several maps, and the path of glimpses over a picture."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.capture import AttentionRecord, block_of
from foveate.look.drawing import Drawing, Numbers, Overlay, PictureDrawing, visible
from foveate.look.heatmap import FONT_SIZE, OVERLAYS, AttentionView, attention, enlarged, tinted
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIDE = 1.7  # inches of one panel
ACROSS = 6  # panels in a row
QUIET = "#555555"  # the colour of notes
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

    def drawings(self) -> list[Drawing]:
        overlays = [
            Overlay(
                title=visible(panel.title),
                weights=Numbers.weights(self.grid(panel.weights)),
                note=self.elsewhere(panel.weights).strip(),
            )
            for panel in self.panels
        ]
        title = visible(self.matrix.record.title)
        shown = picture_drawing(self.pixels, title=title, caption=self.caption)
        return [shown.model_copy(update={"overlays": overlays, "scale": self.scale})]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        count = len(self.panels) + 1
        down = -(-count // ACROSS)
        across = -(-count // down)  # rows as even as they can be
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
        figure.supxlabel(self.caption, size=FONT_SIZE, color=QUIET)
        return figure

    def _paint(self, ax: Axes, panel: Panel) -> None:
        """The picture in grey, tinted by the weight of each cell; below, how much that is."""
        _, height, width = self.pixels.shape
        cells = self.grid(panel.weights)
        opacity = OVERLAYS[self.scale].opacity(cells)
        _show(ax, tinted(self.pixels.mean(axis=0) / 255, enlarged(opacity, height, width)))
        most = f"most {cells.max():.0%}"
        ax.text(0, height * 1.03, most, size=FONT_SIZE - 1.5, va="top", color=QUIET)
        note = self.elsewhere(panel.weights).strip()
        ax.text(width, height * 1.03, note, size=FONT_SIZE - 1.5, va="top", ha="right", color=QUIET)

    def _legend(self, figure: Figure, axes: list[Axes]) -> None:
        """The tint from no weight to most, over black, grey and white."""
        from matplotlib.cm import ScalarMappable

        bar = figure.colorbar(ScalarMappable(), ax=axes, shrink=0.7, aspect=14, pad=0.02).ax
        levels, greys = np.meshgrid(np.linspace(1, 0, 256), [0, 0.5, 1], indexing="ij")
        bar.clear()
        shown = tinted(greys, levels)
        bar.imshow(shown, extent=(0, 1, 0, 1), aspect="auto", interpolation="nearest")
        bar.set_xticks([])
        marks = {level: f"{level:.0%}" for level in (0, 0.25, 0.5, 0.75, 1)}
        bar.set_yticks(list(marks), labels=list(marks.values()), size=FONT_SIZE - 1.5)
        bar.yaxis.set(ticks_position="right", label_position="right")
        bar.set_ylabel(OVERLAYS[self.scale].caption, size=FONT_SIZE - 1.5)
        for spine in bar.spines.values():
            spine.set_visible(False)


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
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:]))
    _show(ax, colours.transpose(1, 2, 0) / 255)


def _show(ax: Axes, colours: NDArray[np.float64]) -> None:
    """Fill axes with pixels (H, W, 3) of colours from 0 to 1."""
    height, width, _ = colours.shape
    sharp = "nearest" if max(height, width) <= 64 else "antialiased"
    ax.imshow(colours, extent=(0, width, height, 0), interpolation=sharp)


def picture_drawing(pixels: NDArray[np.uint8], **more: Any) -> PictureDrawing:
    """A picture (C, H, W) for a browser, its pixels as PNG; ``more`` are fields of the drawing."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)
    imsave(file, np.ascontiguousarray(colours), format="png")
    _, height, width = pixels.shape
    image = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return PictureDrawing(image=image, width=width, height=height, **more)


# -------------------------------------------------------------------------------------------- path
# The path of glimpses over a picture: where a model looked first, second, and so on.

PATH_SIDE = 3.6  # inches of the picture


@dataclass(frozen=True, eq=False, repr=False)
class PathView(View):
    """A picture with its glimpses in order, early ones dark and late ones bright.

    ``places`` (T, 2) are the middles as (x, y) in pixels; ``sides`` the widths in pixels of what a
    glimpse sees, one for each scale; a frame shows the sharpest one.
    """

    pixels: NDArray[np.uint8]  # (C, H, W)
    places: NDArray[np.float32]
    sides: tuple[int, ...]
    title: str

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "picture": self.pixels,
            "places": self.places,
            "sides": np.array(self.sides),
            "title": np.array(self.title),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title, "glimpse      x      y  (pixels from the left and the top)"]
        lines += [f"{t:>7}  {x:5.1f}  {y:5.1f}" for t, (x, y) in enumerate(self.places, start=1)]
        return "\n".join(lines)

    def drawings(self) -> list[Drawing]:
        path = [(float(x), float(y)) for x, y in self.places]
        title = visible(self.title)
        return [picture_drawing(self.pixels, title=title, path=path, sides=list(self.sides))]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

        _, height, width = self.pixels.shape
        figure = Figure(figsize=(2 * PATH_SIDE, PATH_SIDE + 0.3), layout="constrained")
        plain, drawn = figure.subplots(1, 2)
        for ax in (plain, drawn):
            show_pixels(ax, self.pixels)
            ax.set_axis_off()
        edge = [withStroke(linewidth=2.6, foreground="black")]  # seen on bright pictures too
        drawn.plot(*self.places.T, color="#cccccc", linewidth=1, path_effects=edge)
        shades = colors.table()[np.linspace(110, 255, len(self.places)).astype(int)] / 255
        sharp = self.sides[0]
        for t, ((x, y), shade) in enumerate(zip(self.places, shades, strict=True), start=1):
            corner = (float(x) - sharp / 2, float(y) - sharp / 2)
            frame = Rectangle(corner, sharp, sharp, fill=False, edgecolor=shade, linewidth=1.2)
            drawn.add_patch(frame).set_path_effects(edge)
            drawn.annotate(
                str(t), (float(x), float(y)), size=FONT_SIZE - 1, ha="center", va="center",
                color="black" if shade.mean() > 0.5 else "white",
                bbox={"boxstyle": "circle,pad=0.15", "facecolor": shade, "edgecolor": "black"},
            )  # fmt: skip
        drawn.set(xlim=(0, width), ylim=(height, 0))
        widths = ", ".join(map(str, self.sides))
        plain.set_title(self.title, size=FONT_SIZE, parse_math=False)
        drawn.set_title(f"glimpses in order; each sees {widths} pixels across", size=FONT_SIZE)
        return figure
