"""Sheets of numbers, words in colour, tables, and forecasts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from foveate.look import colors
from foveate.look.charts import CurvesView
from foveate.look.drawing import (
    Drawing,
    Numbers,
    SheetDrawing,
    TableDrawing,
    Word,
    WordsDrawing,
    visible,
)
from foveate.look.heatmap import FONT_SIZE, LINE, write_words
from foveate.look.view import View

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


# ------------------------------------------------------------------------------------------- chips
# A text whose words have colours, each with what might have stood there.

LINE_WIDTH = 96  # letters of a line
LETTER = 0.0772  # inches of one letter of the monospaced font at `FONT_SIZE`
LINE_HEIGHT = 0.19  # inches from line to line
FONT = ["DejaVu Sans Mono", "monospace"]


@dataclass(frozen=True, eq=False, repr=False)
class WordsView(View):
    """Words in their order, coloured by their values from ``least`` to ``most``.

    Values of both signs diverge from white at 0; ``told`` says what they are. Below a word stand
    its note and its alternatives.
    """

    words: Sequence[Word]
    told: str
    title: str = ""
    caption: str = ""
    least: float = 0.0
    most: float = 1.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        values = [np.nan if word.value is None else word.value for word in self.words]
        found: dict[str, NDArray[Any]] = {
            "words": np.array([word.text for word in self.words]),
            "values": np.array(values),
        }
        count = min((len(word.alternatives) for word in self.words), default=0)
        if count:
            ranked = [word.alternatives[:count] for word in self.words]
            found["alternatives"] = np.array([[choice.text for choice in row] for row in ranked])
            found["p"] = np.array([[choice.p for choice in row] for row in ranked])
        return found

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each word: its value, its note, its alternatives."""
        left = max((cell_len(word.text) for word in self.words), default=0)
        lines = [self.title, self.told] if self.title else [self.told]
        for word in self.words:
            value = "" if word.value is None else f"{word.value:.3f}"
            others = "  ".join(f"{choice.text} {choice.p:.3f}" for choice in word.alternatives)
            pad = " " * (left - cell_len(word.text))
            lines.append(f"{pad}{word.text} {value:>7}  {word.note}   {others}".rstrip())
        return "\n".join([*lines, self.caption] if self.caption else lines)

    def drawings(self) -> list[Drawing]:
        return [
            WordsDrawing(
                title=self.title, caption=self.caption, words=list(self.words), told=self.told,
                least=self.least, most=self.most,
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        cells, lines = _flow(self.words)
        tallest = max((len(_below(word)) for word in self.words), default=0)
        height = (tallest + 2) * LINE_HEIGHT
        heading = [*textwrap.wrap(self.title, LINE_WIDTH), self.told]
        top = 0.25 + LINE_HEIGHT * len(heading)
        figure = Figure(figsize=(LINE_WIDTH * LETTER + 0.3, top + lines * height))
        size = figure.get_size_inches()
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, size[0]), ylim=(size[1], 0))
        ax.set_axis_off()
        for number, text in enumerate(heading):
            _write(
                ax, 0.15, 0.15 + number * LINE_HEIGHT, text, NOTE if text is self.told else "black"
            )
        for word, (x, line) in zip(self.words, cells, strict=True):
            self._place(ax, word, 0.15 + x * LETTER, top + line * height)
        return figure

    def _place(self, ax: Axes, word: Word, x: float, y: float) -> None:
        """One word on its colour, and what stands below it."""
        from matplotlib.patches import Rectangle

        if word.value is not None:
            fill, ink = self._colors(word.value)
            wide = cell_len(word.text) * LETTER
            ax.add_patch(Rectangle((x - 0.02, y - 0.11), wide + 0.04, 0.2, color=fill, lw=0))
            _write(ax, x, y, word.text, ink)
        else:
            _write(ax, x, y, word.text, "black")
        for row, text in enumerate(_below(word), start=1):
            _write(ax, x, y + row * LINE_HEIGHT, text, NOTE)

    def _colors(self, value: float) -> tuple[Any, str]:
        """The colour of a value, and black or white, whichever is read better on it."""
        from matplotlib import colormaps

        level = (value - self.least) / ((self.most - self.least) or 1)
        if self.least < 0 < self.most:
            fill = colormaps["PuOr_r"](level)[:3]
        else:
            fill = tuple(colors.table()[int(np.clip(level, 0, 1) * 255)] / 255)
        return fill, "black" if np.dot(fill, (0.299, 0.587, 0.114)) > 0.5 else "white"


def _below(word: Word) -> list[str]:
    """The lines under a word of a picture."""
    others = [f"{choice.text} {choice.p:.2f}" for choice in word.alternatives]
    return [*([word.note] if word.note else []), *others]


def _flow(words: Sequence[Word]) -> tuple[list[tuple[int, int]], int]:
    """The place of each word, (letters from the left, line), and how many lines there are."""
    places, x, line = [], 0, 0
    for word in words:
        wide = max([cell_len(word.text), *map(cell_len, _below(word))])
        gap = 1 if word.space or _below(word) else 0
        if x and x + gap + wide > LINE_WIDTH:
            x, line = 0, line + 1
        x += gap if x else 0
        places.append((x, line))
        x += wide
    return places, line + 1


def _write(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    ax.text(x, y, text, color=color, size=FONT_SIZE, family=FONT, va="center", parse_math=False)


# ------------------------------------------------------------------------------------------- table
# Rows of figures and texts under names, such as an n-best list.

Cell = str | float | None
WIDEST = 64  # letters of a column; longer texts go on in the next line


@dataclass(frozen=True, eq=False, repr=False)
class TableView(View):
    """Rows under the names of their columns; numbers stand at the right, texts at the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    caption: str = ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        across = zip(self.columns, zip(*self.rows, strict=True), strict=True)
        return {name: np.array(cells) for name, cells in across}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title] if self.title else []
        return "\n".join([*lines, *self._lines(), *([self.caption] if self.caption else [])])

    def drawings(self) -> list[Drawing]:
        return [
            TableDrawing(
                title=visible(self.title), caption=self.caption, columns=list(self.columns),
                rows=[[_seen(cell) for cell in row] for row in self.rows],
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        lines = self._lines()
        width = max(map(cell_len, lines), default=1) * LETTER + 0.3
        figure = Figure(figsize=(max(4.0, width), 0.7 + LINE_HEIGHT * len(lines)))
        height = figure.get_figheight()
        how: Any = {"size": FONT_SIZE, "family": FONT, "va": "top", "parse_math": False}
        across = 0.15 / figure.get_figwidth()
        figure.text(across, 1 - 0.1 / height, visible(self.title), **how)
        figure.text(across, 1 - 0.4 / height, lines[0], color=NOTE, **how)
        for number, line in enumerate(lines[1:], start=1):
            figure.text(across, 1 - (0.4 + LINE_HEIGHT * number) / height, line, **how)
        return figure

    def _lines(self) -> list[str]:
        """The table as lines of text, the names of the columns first."""
        told = [[_told(cell) for cell in row] for row in self.rows]
        wide = [
            min(WIDEST, max(cell_len(name), *(cell_len(row[n]) for row in told)) if told else 0)
            for n, name in enumerate(self.columns)
        ]
        right = [all(not isinstance(row[n], str) for row in self.rows) for n in range(len(wide))]
        lines = []
        for row in (list(self.columns), *told):
            parts = [textwrap.wrap(cell, WIDEST) or [""] for cell in row]
            for k in range(max(map(len, parts))):
                cells = [part[k] if k < len(part) else "" for part in parts]
                placed = (
                    " " * (w - cell_len(c)) + c if r else c + " " * (w - cell_len(c))
                    for c, w, r in zip(cells, wide, right, strict=True)
                )
                lines.append("  ".join(placed).rstrip())
        return lines


def _seen(cell: Cell) -> Cell:
    """A text in which nothing is hidden; a number as it is."""
    return visible(cell) if isinstance(cell, str) and cell else cell


def _told(cell: Cell) -> str:
    if isinstance(cell, str):
        return str(_seen(cell))
    return "" if cell is None else f"{cell:.4g}"


# ---------------------------------------------------------------------------------------- forecast
# A forecast: the rows that were read, what came and what was said, and what was looked at.


@dataclass(frozen=True, eq=False, repr=False)
class ForecastView(View):
    """Lines over time with, below the time axis, a strip of what was looked at.

    ``strip`` (1, T) has a cell for each place of the lines, NaN where nothing could be looked at;
    None for a model without attention.
    """

    lines: CurvesView
    strip: Sheet | None = None

    @property
    def title(self) -> str:
        """What is forecast."""
        return self.lines.title

    def arrays(self) -> dict[str, NDArray[Any]]:
        seen = {} if self.strip is None else {"looked at": np.asarray(self.strip.values)}
        return self.lines.arrays() | seen

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        return self.lines.text(width, color)

    def drawings(self) -> list[Drawing]:
        strip = [] if self.strip is None else [self.strip.drawing()]
        return [*self.lines.drawings(), *strip]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        if self.strip is None:
            self.lines.plot(figure.add_subplot())
            return figure
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (12, 1)})
        self.lines.plot(above)
        x = np.asarray(self.lines.x)
        half = (x[1] - x[0]) / 2
        ends = np.append(x - half, x[-1] + half)
        shown = np.ma.masked_invalid(self.strip.values)
        below.pcolormesh(ends, (0, 1), shown, cmap="cividis", vmin=0, rasterized=True)
        below.set(yticks=[], facecolor="#eeeeee")
        below.spines[:].set_visible(False)
        above.set_xlabel("")
        above.tick_params(labelbottom=False)
        below.tick_params(labelsize=FONT_SIZE)
        below.set_xlabel(f"{self.lines.across}; strip: {self.strip.title}", size=FONT_SIZE)
        return figure
