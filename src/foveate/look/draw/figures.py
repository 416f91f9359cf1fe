"""Shared parts of matplotlib figures: fonts, sizes, axes, words on them, colours of weights."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import foveate.look.draw.colors as colors
from foveate.look.draw.layout import fit
from foveate.look.draw.terminal import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

FONT_SIZE = 9.0  # points
MONOSPACED = ["DejaVu Sans Mono", "monospace"]
LETTER, LINE_HEIGHT = 0.0772, 0.19  # inches: a letter of that font at `FONT_SIZE`, a line
NOTE = "#555555"
BLANK = "#eeeeee"  # of cells without a value
OUTLINE = "#d55e00"  # around cells
SMALL: dict[str, Any] = {"size": FONT_SIZE - 1, "color": NOTE}  # of notes
GRID = "#dddddd"
WIDTH = 5.0  # inches of a figure, narrow enough for a telephone
PANEL_SIZE = WIDTH, 3.4
MOST_LABELS = 64  # above it, only every k-th word is written
LONGEST_LABEL = 24  # letters of a word on an axis
LINE = 0.16  # inches from one word to the next below


def picture_bytes(figure: Figure, form: str) -> bytes:
    """Return a figure as a file in the format png, svg or pdf."""
    from matplotlib import rc_context

    file = io.BytesIO()
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    # Text stays text, and the names inside an SVG are reproducible.
    forms: Any = {"svg.fonttype": "none", "svg.hashsalt": "foveate", "pdf.fonttype": 42}
    with rc_context(forms), warnings.catch_warnings():
        # `fit` reports the scripts for which no font has glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        fit(figure, warn=form != "svg")  # text in an SVG stays text: its viewer has the fonts
        figure.savefig(file, format=form, dpi=200, metadata=stamp, bbox_inches=_bounds(figure))
    return file.getvalue()


def _bounds(figure: Figure) -> Bbox | None:
    """Return edges in inches if something extends beyond the figure's, else None."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    drawn, own = figure.get_tightbbox(), Bbox.from_extents(0, 0, *figure.get_size_inches())
    whole = Bbox.union([own, drawn])
    return None if np.allclose(whole.extents, own.extents, atol=0.02) else whole.padded(0.05)


def subplots(
    size: tuple[float, float], count: int = 1, across: int = 1, title: str | None = None,
    caption: str | None = None, heights: Sequence[float] | None = None, share_x: bool = False,
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """Return a figure of ``size`` inches and its ``count`` axes, ``across`` in a row.

    ``heights`` are the relative heights of the rows.
    """
    from matplotlib.figure import Figure

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
    """Label the axes, write ticks of ``size``, and leave the frame open at the top and right."""
    ax.set_xlabel(across, size=FONT_SIZE)
    ax.set_ylabel(up, size=FONT_SIZE)
    ax.tick_params(labelsize=size)
    if grid:
        ax.grid(axis=grid, color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


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
    """Draw a legend of weight colours beside some axes."""
    scale = colors.scale(name)
    bar = made.colorbar(axes[0].collections[0], ax=axes, shrink=shrink, aspect=24, pad=0.02)
    bar.set_ticks(list(scale.marks), labels=list(scale.marks.values()), size=FONT_SIZE - 2)
    bar.set_label(scale.caption, size=FONT_SIZE - 2)
    bar.outline.set_visible(False)


def write_words(ax: Axes, rows: list[str], columns: list[str], height: float = LINE) -> None:
    """Write words at the centres of their rows and columns, the source rotated on top.

    ``height`` is that of a row in inches: if it is low, only every k-th row has its word.
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


def show_pixels(ax: Axes, pixels: NDArray[np.uint8]) -> None:
    """Fill axes with a picture (C, H, W), one cell per pixel; grey if it has one channel."""
    show_colours(ax, np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0) / 255)


def show_colours(ax: Axes, colours: NDArray[np.float64]) -> None:
    """Fill axes with pixels (H, W, 3) of colours from 0 to 1."""
    height, width, _ = colours.shape
    sharp = "nearest" if max(height, width) <= 64 else "antialiased"
    ax.imshow(colours, extent=(0, width, height, 0), interpolation=sharp)


LETTERS_A_LINE, TYPED = 96, 110


def page(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure with coordinates in inches from the left and the top."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height))
    ax = made.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    return made, ax


def write(ax: Axes, x: float, y: float, text: str, color: str = "black", **style: Any) -> None:
    """Write a text literally, mathematics or not, vertically centred at y."""
    look = {"size": FONT_SIZE, "va": "center", "parse_math": False, **style}
    ax.text(x, y, text, color=color, **look)


def ink(value: float, least: float, most: float) -> str:
    """Return black or white, whichever is legible on the colour of a value in a cell."""
    level = (value - least) / ((most - least) or 1)
    dark = abs(level - 0.5) > 0.27 if least < 0 < most else level <= 0.5
    return "white" if dark and np.isfinite(level) else "black"


def typed(lines: Sequence[str]) -> Figure:
    """Return a page of lines in a monospaced font, `TYPED` letters wide."""
    made, ax = page(TYPED * LETTER + 0.3, (len(lines) + 1) * LINE_HEIGHT)
    write_lines(ax, 0.15, 0.15, lines)
    return made


def write_lines(ax: Axes, x: float, y: float, lines: Sequence[str], color: str = "black") -> None:
    """Write lines in a monospaced font, one below the other from y on."""
    for number, line in enumerate(lines):
        write(ax, x, y + number * LINE_HEIGHT, line, color, family=MONOSPACED)
