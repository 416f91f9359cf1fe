"""The film of learning: attention to one example at training steps, and its rendering.

The browser's renderer is ``web/src/core/film.ts``.
"""

from __future__ import annotations

import io
import shutil
import textwrap
import warnings
from collections.abc import Iterator
from math import ceil
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.layout import fit
from foveate.look.draw.maps import Block
from foveate.look.draw.parts import Arrays, DrawingPart, Floats, visible
from foveate.look.draw.sheets import ColorScale, SheetGrid, sheet

STRIP_FRAMES, STRIP_ACROSS = 8, 4  # frames of a film in a figure, and in a row of it
MOST_ANIMATED, FILM_TIME, LAST_FRAME = 60, 12_000, 3000  # frames; ms of all, and of the last one


class Snapshot(DrawingPart):
    """The maps of an example at a step of a training, and two losses, None where unknown.

    ``loss`` is −log p of a target of the example, ``validation`` that of the last validation.
    """

    step: int
    loss: float | None = None
    validation: float | None = None
    blocks: list[Block]

    @property
    def label(self) -> str:
        """The step and the losses as text."""
        losses = {"loss": self.loss, "validation": self.validation}
        known = (f"{name} {value:.2f}" for name, value in losses.items() if value is not None)
        return " · ".join((f"step {self.step:,}", *known))


class FilmDrawing(Drawing):
    """Attention to one example at steps of a training, and which map of it is shown first.

    ``head`` absent is the mean of all. Colours are absolute, so that frames can be compared.
    """

    kind: Literal["film"] = "film"
    frames: list[Snapshot]
    block: str = ""  # if empty the cross-attention, else the first
    layer: int = -1
    head: int | None = None
    live: bool = False  # a browser trains such a model in place of showing frames, if it can

    def few(self, most: int) -> FilmDrawing:
        """Return the film with at most ``most`` frames, evenly spread, including first and last."""
        count = min(most, len(self.frames))
        places = np.linspace(0, len(self.frames) - 1, count).round().astype(int)
        return self.model_copy(update={"frames": [self.frames[k] for k in places]})

    @property
    def first_block(self) -> Block:
        """The block that is shown first, as it is in the last frame."""
        blocks, name = self.frames[-1].blocks, self.block or "decoder.cross_attention"
        return next((each for each in blocks if each.name == name), blocks[0])

    def maps(self) -> Floats:
        """Return the map that is shown first, (F, T, S)."""
        name = self.first_block.name
        blocks = [next(b for b in frame.blocks if b.name == name) for frame in self.frames]
        heads = np.stack([block.layers[self.layer].array for block in blocks])
        return heads.mean(axis=1) if self.head is None else heads[:, self.head]

    def arrays(self) -> Arrays:
        return {
            "step": np.array([frame.step for frame in self.frames]),
            "loss": np.array([frame.loss for frame in self.frames], float),
            "validation loss": np.array([frame.validation for frame in self.frames], float),
            "weights": self.maps(),
            "rows": np.array(self.first_block.rows),
            "columns": np.array(self.first_block.columns),
        }

    def figure(self) -> Figure:
        """Draw frames side by side, with words at the first in a row and above the first row."""
        few, block = self.few(STRIP_FRAMES), self.first_block
        most = max(len(block.rows), len(block.columns))
        wide, high, left, above = _film_size(block, min(4.0, max(2.0, 1.1 * figures.LINE * most)))
        across, down = min(STRIP_ACROSS, len(few.frames)), ceil(len(few.frames) / STRIP_ACROSS)
        size = left + (wide + 0.2) * across + 1.2, above + (high + 0.45) * down + 0.6
        made, axes = figures.subplots(size, len(few.frames), across, self.title, self.caption)
        for k, (ax, frame, weights) in enumerate(zip(axes, few.frames, few.maps(), strict=True)):
            figures.paint(ax, weights, "absolute", grid=True)
            ax.set_aspect("equal")
            figures.write_words(
                ax, [] if k % across else block.rows, block.columns if k < across else []
            )
            ax.set_xlabel(frame.label.replace(" · ", "\n", 1), **figures.SMALL)
        figures.weight_bar(made, axes)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return some frames in shades, side by side if they fit, with the column names above."""
        few, width = self.few(STRIP_FRAMES), width or shutil.get_terminal_size().columns
        scale, block = ColorScale(0.0, 1.0), few.first_block
        rows, columns = block.rows, block.columns
        sheets = [
            sheet(frame.label, np.where(each > 0, each, np.nan), rows, columns, scale=scale)
            for frame, each in zip(few.frames, few.maps(), strict=True)
        ]
        title = f"{self.title}\ncolumns: {' '.join(map(visible, columns))}\n"
        grid = SheetGrid(title=title, sheets=sheets, across=4, caption=self.caption)
        return grid.text(width, color)

    def webp(self) -> bytes:
        """Return the frames as an animation, with the loss of the example below each."""
        from foveate.data.image import animation

        frames = list(_film_frames(self.few(MOST_ANIMATED)))
        return animation(frames, [FILM_TIME // len(frames)] * (len(frames) - 1) + [LAST_FRAME])


def _film_size(block: Block, side: float) -> tuple[float, float, float, float]:
    """Return inches: width and height of a map with the longer side given, and of its words."""
    height, width = len(block.rows), len(block.columns)
    axes = block.rows, block.columns
    words = [max(map(len, map(visible, axis)), default=0) for axis in axes]
    left, above = (0.075 * min(n, figures.LONGEST_LABEL) + 0.3 for n in words)
    cell = side / max(height, width, 1)
    return cell * width, cell * height, left, above


def _film_frames(drawing: FilmDrawing) -> Iterator[NDArray[np.uint8]]:
    """Yield the pixels of each frame: the map, and the loss of the example up to it below."""
    block, maps = drawing.first_block, drawing.maps()
    wide, high, left, above = _film_size(block, 4.0)
    size = max(left + wide + 0.9, 4.0), above + high + 1.6
    made = Figure(figsize=size, dpi=110, layout="constrained")
    ax, below = made.subplots(2, 1, height_ratios=(above + high, 0.8))
    figures.paint(ax, maps[0], "absolute", grid=True)
    ax.set_aspect("equal")
    figures.write_words(ax, block.rows, block.columns)
    figures.weight_bar(made, [ax])
    title = textwrap.fill(visible(drawing.title), int(13 * size[0]))
    made.suptitle(title, size=figures.FONT_SIZE + 1, parse_math=False)
    steps = [frame.step for frame in drawing.frames]
    losses = np.array([frame.loss for frame in drawing.frames], float)
    below.plot(steps, losses, color=figures.GRID, linewidth=1.5)
    [line] = below.plot([], [], color=colors.line(0), linewidth=1.8)
    below.set(xlim=(min(steps), max(*steps, 1)))
    figures.open_axes(below, "step", "loss", grid="y", size=figures.FONT_SIZE - 1)
    below.set_visible(bool(np.isfinite(losses).any()))
    longest = max((frame.label for frame in drawing.frames), key=len)
    heading = ax.set_xlabel(longest, size=figures.FONT_SIZE + 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        fit(made)
        made.draw_without_rendering()
        made.set_layout_engine("none")  # nothing moves between frames
        for k, (frame, weights) in enumerate(zip(drawing.frames, maps, strict=True)):
            heading.set_text(frame.label)
            ax.collections[0].set_array(np.ma.masked_where(weights == 0, weights))
            line.set_data(steps[: k + 1], losses[: k + 1])
            made.savefig(file := io.BytesIO(), format="rgba", dpi=made.dpi)
            across, down = made.canvas.get_width_height()
            yield np.frombuffer(file.getvalue(), np.uint8).reshape(down, across, 4)[..., :3].copy()
