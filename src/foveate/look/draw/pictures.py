"""Pictures, and the attention to them: weights on their cells, or a path of glimpses."""

import re
import textwrap
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from numpy.typing import NDArray
from pydantic import Field

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.errors import UserError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import ScaleName, Weights, attention
from foveate.look.draw.parts import Arrays, DrawingPart, Label, Numbers, Pixels, Text, visible
from foveate.look.draw.terminal import cut
from foveate.look.records import AttentionRecord, block_of, spaced

PICTURE_SIDE = 1.7  # inches of one panel
MOST_ACROSS = 6  # panels in a row
PATH_SIDE = 3.6  # inches of a picture with a path
MOST_NAMED = 4  # cells of a picture listed in a text for each panel
_PLACE = re.compile(r"(\d+),(\d+)")


class Overlay(DrawingPart):
    """Weights (rows, columns) over the cells of a picture."""

    title: Label
    weights: Numbers
    note: Text = ""


class PictureDrawing(Drawing):
    """A picture (C, H, W) and the attention to it: weights on its cells, or a path of glimpses.

    ``path`` are middles of glimpses as (x, y) in pixels, ``sides`` the widths that they see, one
    for each scale.
    """

    kind: Literal["picture"] = "picture"
    pixels: Pixels = Field(alias="image")
    width: int
    height: int
    overlays: list[Overlay] = Field([])
    scale: Literal["row", "absolute"] = "row"
    path: list[tuple[float, float]] = Field([])
    sides: list[int] = Field([])

    def arrays(self) -> Arrays:
        return {
            "picture": self.pixels,
            "places": np.array(self.path, np.float32).reshape(-1, 2),
            "sides": np.array(self.sides),
            "title": np.array(self.title),
        }

    def figure(self) -> Figure:
        """Draw the picture, and its glimpses in order: early ones dark and late ones bright."""
        made, (plain, ax) = figures.subplots((2 * PATH_SIDE, PATH_SIDE + 0.3), 2, 2)
        for each in (plain, ax):
            figures.show_pixels(each, self.pixels)
            each.set_axis_off()
        stroke = withStroke(linewidth=2.6, foreground="black")  # visible on bright pictures too
        edge: list[AbstractPathEffect] = [stroke]
        ax.plot(*zip(*self.path, strict=True), color="#cccccc", linewidth=1, path_effects=edge)
        shades = colors.table()[np.linspace(110, 255, len(self.path)).astype(int)] / 255
        sharp = self.sides[0]
        for t, ((x, y), shade) in enumerate(zip(self.path, shades, strict=True), start=1):
            corner = x - sharp / 2, y - sharp / 2
            frame = Rectangle(corner, sharp, sharp, fill=False, edgecolor=shade, linewidth=1.2)
            ax.add_patch(frame).set_path_effects(edge)
            ax.annotate(
                str(t), (x, y), size=figures.FONT_SIZE - 1, ha="center", va="center",
                color="black" if shade.mean() > 0.5 else "white",
                bbox={"boxstyle": "circle,pad=0.15", "facecolor": shade, "edgecolor": "black"},
            )  # fmt: skip
        ax.set(xlim=(0, self.width), ylim=(self.height, 0))
        widths = ", ".join(map(str, self.sides))
        plain.set_title(self.title, size=figures.FONT_SIZE, parse_math=False)
        ax.set_title(
            f"numbers show the order of glimpses; each sees {widths} pixels across",
            size=figures.FONT_SIZE,
        )
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title, "glimpse      x      y  (pixels from the left and the top)"]
        lines += [f"{t:>7}  {x:5.1f}  {y:5.1f}" for t, (x, y) in enumerate(self.path, start=1)]
        return "\n".join(lines)


def picture_drawing(
    pixels: NDArray[np.uint8], title: str = "", places: NDArray[np.floating] | None = None,
    sides: Sequence[int] = (),
) -> PictureDrawing:  # fmt: skip
    """Return a picture (C, H, W), with a path of glimpses centred at ``places`` (T, 2)."""
    _, height, width = pixels.shape
    path = [] if places is None else [(float(x), float(y)) for x, y in places]
    return PictureDrawing(
        title=title, pixels=pixels, width=width, height=height, path=path, sides=list(sides)
    )


class AttendedPicture(PictureDrawing):
    """A picture, and beside it the weights on its cells, a panel each.

    ``weights`` are those of each panel on the ``columns`` of the map, (S,); columns that are not
    cells, such as the class token, are in the notes of the overlays.
    """

    map_name: str = Field(exclude=True)
    columns: list[str] = Field(exclude=True)
    weights: list[Weights] = Field(exclude=True)

    def arrays(self) -> Arrays:
        return {
            "picture": self.pixels,
            "titles": np.array([overlay.title for overlay in self.overlays]),
            "weights": np.stack([overlay.weights.array for overlay in self.overlays]),
            "map": np.array(self.map_name),
        }

    def figure(self) -> Figure:
        count = len(self.overlays) + 1
        down = -(-count // MOST_ACROSS)
        across = -(-count // down)  # rows as even as possible
        size = (PICTURE_SIDE * across + 0.9, (PICTURE_SIDE + 0.35) * down + 0.5)
        title = textwrap.fill(visible(self.title), 18 * across)
        made, axes = figures.subplots(size, count, across, title, self.caption)
        figures.show_pixels(axes[0], self.pixels)
        titles = ["the picture", *(overlay.title for overlay in self.overlays)]
        for ax, title in zip(axes, titles, strict=True):
            ax.set_axis_off()
            short = cut(title, figures.LONGEST_LABEL)
            ax.set_title(short, size=figures.FONT_SIZE, parse_math=False)
        for ax, overlay in zip(axes[1:], self.overlays, strict=True):
            _overlay(ax, self, overlay)
        _tint_legend(made, axes, self.scale)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the cells with most weight, a line for each panel: a grid would be too coarse."""
        panels = list(zip(self.overlays, self.weights, strict=True))
        height, across = self.overlays[0].weights.shape if panels else (0, 0)
        lines = [visible(self.title), f"most attention: row,column of {height}×{across} cells"]
        longest = max((len(overlay.title) for overlay, _ in panels), default=0)
        for overlay, weights in panels:
            best = np.argsort(-weights, kind="stable")[:MOST_NAMED]
            named = (f"{self.columns[i]:>5} {weights[i]:4.0%}" for i in best)
            lines.append(f"{visible(overlay.title):<{longest}}  {'  '.join(named)}")
        return "\n".join([*lines, self.caption_in(width)])


def _overlay(ax: Axes, drawing: PictureDrawing, overlay: Overlay) -> None:
    """Draw the picture in grey, tinted by the weight of each cell, which is given below."""
    height, width, weights = drawing.height, drawing.width, overlay.weights.array
    opacity = colors.enlarged(colors.OVERLAYS[drawing.scale].levels(weights), height, width)
    figures.show_colours(ax, colors.tinted(drawing.pixels.mean(axis=0) / 255, opacity))
    size, below = figures.FONT_SIZE - 1.5, height * 1.03
    ax.text(0, below, f"most {weights.max():.0%}", size=size, va="top", color=figures.NOTE)
    ax.text(width, below, overlay.note, size=size, va="top", ha="right", color=figures.NOTE)


def _tint_legend(made: Figure, axes: list[Axes], scale: str) -> None:
    """Draw the tint from no weight to most, over black, grey and white."""
    bar = made.colorbar(ScalarMappable(), ax=axes, shrink=0.7, aspect=14, pad=0.02).ax
    levels, greys = np.meshgrid(np.linspace(1, 0, 256), [0, 0.5, 1], indexing="ij")
    bar.clear()
    tints = colors.tinted(greys, levels)
    bar.imshow(tints, extent=(0, 1, 0, 1), aspect="auto", interpolation="nearest")
    bar.set_xticks([])
    marks = {level: f"{level:.0%}" for level in (0, 0.25, 0.5, 0.75, 1)}
    bar.set_yticks(list(marks), labels=list(marks.values()), size=figures.FONT_SIZE - 1.5)
    bar.yaxis.set(ticks_position="right", label_position="right")
    bar.set_ylabel(colors.OVERLAYS[scale].caption, size=figures.FONT_SIZE - 1.5)
    bar.spines[:].set_visible(False)


def over_picture(
    record: AttentionRecord,
    pixels: NDArray[np.uint8],
    block: str | None = None,
    layer: int = -1,
    head: int | None = None,
    scale: ScaleName | None = None,
) -> AttendedPicture:
    """Draw the attention of a model to a picture (C, H, W).

    For a decoder's attention there is a panel for each word; for patches that attend to patches,
    one for each layer, with the weights of the class token, or else the mean of all. Without a
    ``block``, the record's attention to the picture is used. Without a ``scale``, tints are by
    panel: cells are many, and their weights small. Raises as `foveate.look.draw.attention` does,
    and `UserError` if the columns are not picture positions.
    """
    if block is None:  # that of the last map whose columns are positions of the picture
        fitting = [name for name in record.maps if _cells(record.axes(name)[1])]
        block = block_of((fitting or list(record.maps) or ["attention"])[-1])
    matrix = attention(record, block, layer, head, scale)
    columns, cells = matrix.columns, _cells(matrix.columns)
    if not cells:
        raise UserError(
            f'{matrix.name}: its columns are not positions ("row,column"); its rows and '
            "columns can be drawn by foveate.look.draw.attention"
        )
    others = [i for i in range(len(columns)) if i not in cells]
    caption, panels = matrix.caption, list(zip(matrix.rows, matrix.array, strict=True))
    if matrix.rows == columns:
        layers = range(len(record.names(matrix.block)))
        maps = [record.select(matrix.block, number, head) for number in layers]
        rows = [each[others[0]] if others else each.mean(axis=0) for each in maps]
        panels = [(f"layer {number}", row) for number, row in zip(layers, rows, strict=True)]
        seen_by = columns[others[0]] if others else "mean of all positions"
        which = "mean of all heads" if head is None else f"head {head}"
        caption = f"{spaced(matrix.block)} · seen by {seen_by} · {which}"
    shape = tuple(1 + max(place[i] for place in cells.values()) for i in (0, 1))
    overlays = []
    for title, row in panels:
        grid = np.zeros(shape, np.float32)
        for column, place in cells.items():
            grid[place] = row[column]
        note = "\n".join(f"{columns[i]} {row[i]:.0%}" for i in others)
        overlays.append(Overlay(title=title, weights=Numbers.weights(grid), note=note))
    return AttendedPicture(
        pixels=pixels, width=pixels.shape[2], height=pixels.shape[1], caption=caption,
        overlays=overlays, scale=scale or "row", map_name=matrix.name, columns=columns,
        weights=[row for _, row in panels], title=record.title,
    )  # fmt: skip


def _cells(labels: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return the cell (row, column) of each label that has one."""
    matches = {i: _PLACE.fullmatch(label) for i, label in enumerate(labels)}
    return {i: (int(m[1]), int(m[2])) for i, m in matches.items() if m is not None}
