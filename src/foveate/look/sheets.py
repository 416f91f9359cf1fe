"""Sheets of numbers side by side: position encodings, gates over time, who hears whom.

Does not live here: attention between words, whose picture has words and a scale of its own
(`heatmap`, `heads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look.drawing import Drawing, Numbers, SheetDrawing
from foveate.look.heatmap import FONT_SIZE, LINE, write_words
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.0  # inches of a figure: narrow enough for a telephone
BLANK = "#eeeeee"  # of cells that have no value
NOTE = "#555555"
SHADES = "·░▒▓█"  # from the least to the most
MOST_ROWS = 40


@dataclass(frozen=True, eq=False)
class Sheet:
    """Numbers (T, S), the first row on top; NaN stays blank.

    ``least`` and ``most`` are the ends of the colours, those of the values where absent; where
    they have different signs, colours diverge from white at 0. ``aspect`` is the height of a cell
    by its width.
    """

    title: str
    values: NDArray[np.floating]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    down: str = ""  # what the rows are
    across: str = ""  # what the columns are
    least: float | None = None
    most: float | None = None
    aspect: float = 1.0
    told: str = ""  # what the ends are called, where they should not be numbers
    written: bool = False  # whether the numbers stand in their cells

    @property
    def ends(self) -> tuple[float, float]:
        """The values of the first and the last colour; 0 in the middle where signs differ."""
        known = self.values[np.isfinite(self.values)]
        least = self.least if self.least is not None else float(known.min(initial=np.inf))
        most = self.most if self.most is not None else float(known.max(initial=-np.inf))
        if least < 0 < most:
            most = max(most, -least)
            least = -most
        return least, most

    @property
    def legend(self) -> str:
        """What the colours mean, in words."""
        least, most = self.ends
        return self.told or " … ".join(
            f"{end + 0.0:.3g}".replace("-", "−") for end in (least, most)
        )

    @property
    def heading(self) -> str:
        """What is written above."""
        return "\n".join(part for part in (self.title, self.legend) if part.strip())

    def drawing(self, before: str = "", caption: str = "") -> SheetDrawing:
        """For a browser, ``before`` in front of the title."""
        least, most = self.ends
        return SheetDrawing(
            title=" · ".join(part for part in (before, self.title) if part),
            caption=caption,
            values=Numbers.exact(self.values),
            rows=[visible(label) for label in self.rows],
            columns=[visible(label) for label in self.columns],
            down=self.down,
            across=self.across,
            least=least,
            most=most,
            told=self.told,
            aspect=self.aspect,
            cells=self.cells,
        )

    @property
    def cells(self) -> list[list[str]]:
        """What is written into the cells."""
        if not self.written:
            return []
        return [[f"{v:.2f}" if np.isfinite(v) else "" for v in row] for row in self.values]

    @property
    def marked(self) -> bool:
        """Whether the axes say which row and column a cell is of: only where they have a name."""
        return bool(self.down or self.across or self.rows or self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class SheetsView(View):
    """Sheets in rows of ``across``, each with colours of its own ends."""

    sheets: Sequence[Sheet]
    title: str = ""
    caption: str = ""
    across: int = 2

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {sheet.title: np.asarray(sheet.values) for sheet in self.sheets}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Each sheet in shades, a sign for a cell; of more cells than fit, every k-th."""
        parts = [self.title] if self.title else []
        for sheet in self.sheets:
            if sheet.written:
                parts += [sheet.title, *figures(sheet)]
                continue
            parts += [f"{sheet.title} ({sheet.legend}, {SHADES})", *shaded(sheet, width or 100)]
        return "\n".join([*parts, self.caption] if self.caption else parts)

    def drawings(self) -> list[Drawing]:
        last = self.sheets[-1]
        return [s.drawing(self.title, self.caption * (s is last)) for s in self.sheets]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        across = min(self.across, len(self.sheets))
        lines = [self.sheets[i : i + across] for i in range(0, len(self.sheets), across)]
        side = (WIDTH - 0.3) / across - (
            0.45 if any(sheet.marked for sheet in self.sheets) else 0.1
        )
        heights = [max(self._height(sheet, side) for sheet in line) for line in lines]
        headings = 0.26 * bool(self.title) + 0.24 * bool(self.caption)
        figure = Figure(figsize=(WIDTH, sum(heights) + headings + 0.1), layout="constrained")
        grid = figure.subplots(
            len(lines), across, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for ax in grid.flat[len(self.sheets) :]:
            ax.set_axis_off()
        for ax, sheet in zip(grid.flat, self.sheets, strict=False):
            paint(ax, sheet, side * sheet.aspect / sheet.values.shape[1])
        if self.title:
            figure.suptitle(self.title, size=FONT_SIZE + 1, parse_math=False)
        if self.caption:
            figure.supxlabel(self.caption, size=FONT_SIZE, color=NOTE, parse_math=False)
        return figure

    @staticmethod
    def _height(sheet: Sheet, side: float) -> float:
        """Inches of a sheet with what is written around it."""
        rows, columns = sheet.values.shape
        words = 0.075 * max(map(len, sheet.columns), default=0)
        title = 0.19 * len(sheet.heading.splitlines())
        marks = 0.2 * sheet.marked + 0.2 * bool(sheet.across)
        return side * sheet.aspect * rows / columns + words + title + marks + 0.1


def paint(ax: Axes, sheet: Sheet, height: float = LINE) -> None:
    """Fill axes with the cells of a sheet, rows so many inches high, and write what it is."""
    least, most = sheet.ends
    shown = np.ma.masked_invalid(sheet.values)
    hues = "PuOr_r" if least < 0 < most else "cividis"
    ax.pcolormesh(shown, cmap=hues, vmin=least, vmax=most, rasterized=True)
    ax.invert_yaxis()
    ax.set_facecolor(BLANK)
    ax.set_aspect(sheet.aspect)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=2, labelsize=FONT_SIZE - 1, color=NOTE)
    for t, row in enumerate(sheet.cells):
        for s, text in enumerate(row):
            bright = (sheet.values[t, s] - least) / ((most - least) or 1) > 0.5
            ink = "black" if bright or least < 0 else "white"
            ax.text(s + 0.5, t + 0.5, text, size=FONT_SIZE - 2, ha="center", va="center", color=ink)
    if not sheet.marked:
        ax.set(xticks=[], yticks=[])
    if sheet.columns or sheet.rows:
        write_words(ax, list(sheet.rows), list(sheet.columns), height)
    ax.set_xlabel(sheet.across, size=FONT_SIZE - 0.5, color=NOTE)
    ax.set_ylabel(sheet.down, size=FONT_SIZE - 0.5, color=NOTE)
    ax.set_title(sheet.heading, size=FONT_SIZE, parse_math=False)


def figures(sheet: Sheet) -> list[str]:
    """A sheet as a table of its numbers."""
    left = max(map(len, sheet.rows), default=0)
    wide = max(map(len, [*sheet.columns, "0.00"])) + 2
    lines = [" " * left + "".join(f"{name:>{wide}}" for name in sheet.columns)]
    for name, row in zip(sheet.rows, sheet.cells, strict=True):
        lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in row))
    return lines


def shaded(sheet: Sheet, width: int) -> list[str]:
    """A sheet as lines of signs, its rows' labels before them; blank cells are blanks."""
    least, most = sheet.ends
    labels = sheet.rows or [str(t) for t in range(len(sheet.values))]
    left = max(map(len, labels), default=0) + 1
    down = -(-len(labels) // MOST_ROWS) or 1
    across = -(-sheet.values.shape[1] // max(1, width - left)) or 1
    levels = (sheet.values[::down, ::across] - least) / ((most - least) or 1)
    signs = np.array([*SHADES, " "])
    steps = np.where(np.isnan(levels), len(SHADES), (levels * len(SHADES)).clip(0, 4))
    lines = ("".join(row) for row in signs[steps.astype(int)])
    return [f"{label:>{left - 1}} {row}" for label, row in zip(labels[::down], lines, strict=True)]
