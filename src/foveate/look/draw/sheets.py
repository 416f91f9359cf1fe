"""Numbers as colours: sheets, grids of sheets, the logit lens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, Floats, Numbers, Text
from foveate.look.draw.terminal import SHADES, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENS_CELL = 0.62, 0.3  # inches of a cell of a logit lens
MOST_SHEET_ROWS = 40


class SheetDrawing(Drawing):
    """Numbers (T, S) as colours, the first row on top; they diverge from white at 0 where ends do.

    NaN stays blank. ``cells`` are texts that stand in the cells, ``told`` says what the ends are
    where they should not be numbers. ``aspect`` is the height of a cell by its width. ``dots`` are
    places (row, column) that are marked, between cells unless they are whole numbers; ``outlines``
    are rectangles around cells: top, left, height, width.
    """

    kind: Literal["sheet"] = "sheet"
    values: Numbers
    rows: list[Text] = Field([])  # some may be empty
    columns: list[Text] = Field([])
    down: str = ""  # what the rows are
    across: str = ""  # what the columns are
    least: float
    most: float
    scale_label: str = Field("", alias="told")
    aspect: float = 1.0
    cells: list[list[Text]] = Field([])
    dots: list[tuple[float, float]] = Field([])
    outlines: list[tuple[float, float, float, float]] = Field([])

    @property
    def legend(self) -> str:
        """The meaning of the colours, in words."""
        ends = (f"{end + 0.0:.3g}".replace("-", "−") for end in (self.least, self.most))
        return self.scale_label or " … ".join(ends)

    @property
    def heading(self) -> str:
        """The text above the sheet."""
        return "\n".join(part for part in (self.title, self.legend) if part.strip())

    @property
    def marked(self) -> bool:
        """True if the axes have names or labels."""
        return bool(self.down or self.across or self.rows or self.columns)

    def arrays(self) -> Arrays:
        return {self.title: self.values.array}

    def fill(self, ax: Axes, height: float = 0.16) -> None:
        """Fill axes with the cells of a sheet, with rows ``height`` inches high, and label them."""
        values, least, most = self.values.array, self.least, self.most
        least, most = (-max(most, -least), max(most, -least)) if least < 0 < most else (least, most)
        hues = "PuOr_r" if least < 0 < most else "cividis"
        masked = np.ma.masked_invalid(values)
        ax.pcolormesh(masked, cmap=hues, vmin=least, vmax=most, rasterized=True)
        ax.invert_yaxis()
        ax.set_facecolor(figures.BLANK)
        ax.set_aspect(self.aspect)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=2, labelsize=figures.FONT_SIZE - 1, color=figures.NOTE)
        letters = max((len(cut(text)) for row in self.cells for text in row), default=0)
        size = (figures.FONT_SIZE - 2) * min(
            1.0, figures.LETTERS_A_LINE / max(1, letters * values.shape[1])
        )
        for t, row in enumerate(self.cells):
            for s, text in enumerate(row):
                ink, word = figures.ink(values[t, s], least, most), cut(text) if text else ""
                figures.write(ax, s + 0.5, t + 0.5, word, ink, size=size, ha="center")
        for y, x in self.dots:
            ax.plot(x + 0.5, y + 0.5, "o", color="white", markeredgecolor="black")
        for top, left, height_of, width_of in self.outlines:
            right, bottom = left + width_of, top + height_of
            around = [left, right, right, left, left], [top, top, bottom, bottom, top]
            ax.plot(*around, color=figures.OUTLINE, linewidth=1.5)
        if not self.marked:
            ax.set(xticks=[], yticks=[])
        if self.columns or self.rows:
            figures.write_words(ax, self.rows, self.columns, height)
        ax.set_xlabel(self.across, size=figures.FONT_SIZE - 0.5, color=figures.NOTE)
        ax.set_ylabel(self.down, size=figures.FONT_SIZE - 0.5, color=figures.NOTE)
        ax.set_title(self.heading, size=figures.FONT_SIZE, parse_math=False)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return cells as shades, a character each (or for every k-th), or the texts of cells."""
        if not self.cells:
            legend = ", ".join(part for part in (self.legend, SHADES) if part.strip())
            return "\n".join([f"{self.title} ({legend})", *_shaded(self, width or 100)])
        names = self.rows or [""] * len(self.cells)
        left = max(map(len, names))
        lines = [self.title]
        table = [self.columns, *self.cells]
        wide = [max(map(len, column)) + 2 for column in zip(*table, strict=True)]
        for name, row in zip(["", *names], table, strict=True):
            cells = (f"{cell:>{room}}" for cell, room in zip(row, wide, strict=True))
            lines.append(f"{name:>{left}}" + "".join(cells))
        return "\n".join(lines)


@dataclass(frozen=True)
class ColorScale:
    """The colours of a sheet: the numbers at their ends, or those of its values, and a label."""

    least: float | None = None
    most: float | None = None
    label: str = ""


SHARES = ColorScale(0.0, 1.0, " ")  # with no label


def sheet(
    title: str, values: Floats, rows: Sequence[str] = (), columns: Sequence[str] = (),
    down: str = "", across: str = "", scale: ColorScale = ColorScale(), aspect: float = 1.0,
    written: bool = False, cells: Sequence[list[str]] = (),
) -> SheetDrawing:  # fmt: skip
    """A sheet of numbers (T, S).

    0 is in the middle of the colours if the ends have different signs. With ``written`` the numbers
    are written in their cells, or else ``cells`` are.
    """
    known = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    least = float(known.min()) if scale.least is None else scale.least
    most = float(known.max()) if scale.most is None else scale.most
    if least < 0 < most:
        most = max(most, -least)
        least = -most
    if written:
        cells = [["" if np.isnan(v) else f"{round(v, 2) + 0.0:.2f}" for v in row] for row in values]
    return SheetDrawing(
        title=title, values=Numbers.exact(values), rows=list(rows), columns=list(columns),
        down=down, across=across, least=least, most=most, aspect=aspect,
        scale_label=scale.label, cells=list(cells),
    )  # fmt: skip


def alike(sheets: Sequence[SheetDrawing]) -> list[SheetDrawing]:
    """Return sheets with the same colours for the same numbers, 0 in the middle."""
    most = max(max(each.most, -each.least) for each in sheets)
    return [each.model_copy(update={"least": -most, "most": most}) for each in sheets]


class LensDrawing(SheetDrawing):
    """The most probable token of each layer (rows) at each position, and its p as the colour.

    ``tokens[l][t]`` has p = values[l, t]; ``target_p`` (L + 1, T) is p of the produced token.
    """

    tokens: list[list[str]] = Field(exclude=True)
    target_p: NDArray[np.float64] = Field(exclude=True)

    def arrays(self) -> Arrays:
        return {
            "tokens": np.array(self.tokens),
            "p": self.values.array,
            "p of the produced token": self.target_p,
            "produced": np.array(self.columns),
        }

    def figure(self) -> Figure:
        height, width = self.values.shape
        size = max(LENS_CELL[0] * width + 1.2, 5.0), LENS_CELL[1] * height + 1.6
        return self.own_figure(*size, self.caption)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the tokens, each with its p."""
        rows = zip(self.cells, self.values.array, strict=True)
        cells = [[f"{token} {p:.2f}" for token, p in zip(*row, strict=True)] for row in rows]
        table = SheetDrawing.text(self.model_copy(update={"cells": cells}))
        return table + "\n" + self.caption.replace("colour", "number")


class SheetGrid(Drawing):
    """Sheets in rows of ``across``, each with its own colour scale."""

    sheets: list[SheetDrawing]
    across: int = 2

    def arrays(self) -> Arrays:
        return {sheet.title: sheet.values.array for sheet in self.sheets}

    def drawings(self) -> list[Drawing]:
        titles = [" · ".join(part for part in (self.title, s.title) if part) for s in self.sheets]
        captions = [""] * (len(self.sheets) - 1) + [self.caption]
        return [
            sheet.model_copy(update={"title": title, "caption": caption})
            for sheet, title, caption in zip(self.sheets, titles, captions, strict=True)
        ]

    def figure(self) -> Figure:
        sheets, across = self.sheets, min(self.across, len(self.sheets))
        lines = [sheets[i : i + across] for i in range(0, len(sheets), across)]
        marks = 0.45 if any(sheet.marked for sheet in sheets) else 0.1
        side = (figures.WIDTH - 0.3) / across - marks
        heights = [max(_sheet_height(sheet, side) for sheet in line) for line in lines]
        headings = 0.26 * bool(self.title) + 0.24 * bool(self.caption)
        size = figures.WIDTH, sum(heights) + headings + 0.1
        heading = self.title or None, self.caption or None
        made, axes = figures.subplots(size, len(sheets), across, *heading, heights)
        for ax, sheet in zip(axes, sheets, strict=True):
            sheet.fill(ax, side * sheet.aspect / sheet.values.shape[1])
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [sheet.text(width, color) for sheet in self.sheets]
        return "\n".join(part for part in (self.title, *lines, self.caption_in(width)) if part)


def _sheet_height(sheet: SheetDrawing, side: float) -> float:
    """Return the height of a sheet in inches, including the text around it."""
    rows, columns = sheet.values.shape
    words = 0.075 * max(map(len, sheet.columns), default=0)
    title = 0.19 * len(sheet.heading.splitlines())
    marks = 0.2 * sheet.marked + 0.2 * bool(sheet.across)
    return side * sheet.aspect * rows / columns + words + title + marks + 0.1


def _shaded(sheet: SheetDrawing, width: int) -> list[str]:
    """Return a sheet as lines of characters, after its row labels; blank cells are spaces."""
    values = sheet.values.array
    labels = sheet.rows or [str(t) for t in range(len(values))]
    left = max(map(len, labels), default=0) + 1
    down = -(-len(labels) // MOST_SHEET_ROWS) or 1
    across = -(-values.shape[1] // max(1, width - left)) or 1
    levels = (values[::down, ::across] - sheet.least) / ((sheet.most - sheet.least) or 1)
    signs = np.array([*SHADES, " "])
    steps = np.where(np.isnan(levels), len(SHADES), (levels * len(SHADES)).clip(0, 4))
    lines = ("".join(row) for row in signs[steps.astype(int)])
    return [f"{label:>{left - 1}} {row}" for label, row in zip(labels[::down], lines, strict=True)]
