"""Words with colours, and tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pydantic import Field
from rich.cells import cell_len

import foveate.draw.colors as colors
import foveate.draw.figures as figures
from foveate.draw.drawings import Drawing
from foveate.draw.parts import Arrays, Cell, DrawingPart, Label, TableCell, Text, shown
from foveate.draw.terminal import visible, wrap

WIDEST = 64  # letters of a column of a table; longer texts go on in the next line


class Choice(DrawingPart):
    """A token that might have stood here, and its p."""

    text: Label
    p: float


class Word(DrawingPart):
    """A word or piece; ``value`` colours it, ``alternatives`` are shown when it is chosen.

    ``space`` says whether a space stands before it; ``note`` is what else there is to say of it.
    """

    text: Label
    value: float | None = None
    space: bool = True
    note: Text = ""
    alternatives: list[Choice] = Field([])


class WordsDrawing(Drawing):
    """A text whose words have colours; ``told`` says what of. Signs of both kinds diverge at 0."""

    kind: Literal["words"] = "words"
    words: list[Word]
    legend: str = Field("", alias="told")
    least: float = 0.0
    most: float = 1.0

    def arrays(self) -> Arrays:
        values = [np.nan if word.value is None else word.value for word in self.words]
        arrays: Arrays = {
            "words": np.array([visible(word.text) for word in self.words]),
            "values": np.array(values),
        }
        count = min((len(word.alternatives) for word in self.words), default=0)
        if count:
            ranked = [word.alternatives[:count] for word in self.words]
            arrays["alternatives"] = np.array([[visible(c.text) for c in row] for row in ranked])
            arrays["p"] = np.array([[choice.p for choice in row] for row in ranked])
        return arrays

    def figure(self) -> Figure:
        cells, lines = _flow(self.words)
        tallest = max((len(_below(word)) for word in self.words), default=0)
        height = (tallest + 2) * figures.LINE_HEIGHT
        heading = [*textwrap.wrap(self.title, figures.LETTERS_A_LINE), self.legend]
        top = 0.25 + figures.LINE_HEIGHT * len(heading)
        caption = wrap(self.caption.splitlines(), figures.LETTERS_A_LINE)
        bottom = top + lines * height
        made = Figure(
            figsize=(
                figures.LETTERS_A_LINE * figures.LETTER + 0.3,
                bottom + figures.LINE_HEIGHT * len(caption),
            )
        )
        size = made.get_size_inches()
        ax = made.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, size[0]), ylim=(size[1], 0))
        ax.set_axis_off()
        for number, text in enumerate(heading):
            ink = figures.NOTE if text is self.legend else "black"
            figures.write(ax, 0.15, 0.15 + number * figures.LINE_HEIGHT, text, ink)
        for word, (x, line) in zip(self.words, cells, strict=True):
            _place_word(ax, self, word, 0.15 + x * figures.LETTER, top + line * height)
        for number, text in enumerate(caption):
            figures.write(
                ax, 0.15, bottom + (number - 0.5) * figures.LINE_HEIGHT, text, figures.NOTE
            )
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each word: its value, its note, its alternatives."""
        words = [(visible(word.text), word) for word in self.words]
        left = max((cell_len(label) for label, _ in words), default=0)
        lines = [self.title, self.legend] if self.title else [self.legend]
        for label, word in words:
            value = "" if word.value is None else f"{word.value:.3f}"
            others = "  ".join(f"{visible(each.text)} {each.p:.3f}" for each in word.alternatives)
            pad = " " * (left - cell_len(label))
            lines.append(f"{pad}{label} {value:>7}  {shown(word.note)}   {others}".rstrip())
        return "\n".join([*lines, self.caption_in(width)] if self.caption else lines)


def _place_word(ax: Axes, drawing: WordsDrawing, word: Word, x: float, y: float) -> None:
    """A word on its colour, and what stands below it."""
    label, ink = visible(word.text), "black"
    if word.value is not None:
        fill, ink = fill_and_ink(drawing, word.value)
        wide = cell_len(label) * figures.LETTER
        ax.add_patch(Rectangle((x - 0.02, y - 0.11), wide + 0.04, 0.2, color=fill, lw=0))
    figures.write(ax, x, y, label, ink)
    if not word.space and _below(word):  # a piece of a word, apart from the one before it
        figures.write(ax, x - 1.2 * figures.LETTER, y, "‿", figures.NOTE)
    for row, text in enumerate(_below(word), start=1):
        figures.write(ax, x, y + row * figures.LINE_HEIGHT, text, figures.NOTE)


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
        if x and x + gap + wide > figures.LETTERS_A_LINE:
            x, line = 0, line + 1
        x += gap if x else 0
        places.append((x, line))
        x += wide
    return places, line + 1


class TableDrawing(Drawing):
    """Rows under the names of their columns; numbers stand at the right, texts at the left."""

    kind: Literal["table"] = "table"
    columns: list[str]
    rows: list[list[TableCell]]

    def arrays(self) -> Arrays:
        across = zip(self.columns, zip(*self.rows, strict=True), strict=True)
        return {name: np.array(cells) for name, cells in across}

    def figure(self) -> Figure:
        lines = table_lines(self)
        width = max(map(cell_len, lines), default=1) * figures.LETTER + 0.3
        caption = self.caption.splitlines()
        height = 0.7 + figures.LINE_HEIGHT * (len(lines) + len(caption))
        made = Figure(
            figsize=(
                max(4.0, width, *(len(line) * figures.LETTER + 0.3 for line in caption)),
                height,
            )
        )
        across = 0.15 / made.get_figwidth()
        style: Any = {
            "size": figures.FONT_SIZE,
            "family": figures.MONOSPACED,
            "va": "top",
            "parse_math": False,
        }
        made.text(across, 1 - 0.1 / height, visible(self.title), **style)
        made.text(across, 1 - 0.4 / height, lines[0], color=figures.NOTE, **style)
        for number, line in enumerate(lines[1:], start=1):
            made.text(across, 1 - (0.4 + figures.LINE_HEIGHT * number) / height, line, **style)
        for number, line in enumerate(caption, start=len(lines)):
            made.text(
                across,
                1 - (0.5 + figures.LINE_HEIGHT * number) / height,
                line,
                color=figures.NOTE,
                **style,
            )
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title] if self.title else []
        caption = [self.caption_in(width)] if self.caption else []
        return "\n".join([*lines, *table_lines(self), *caption])


def table_lines(drawing: TableDrawing) -> list[str]:
    """A table as lines of text, the names of the columns first."""
    rows = [[_table_cell(cell) for cell in row] for row in drawing.rows]
    wide = [
        min(WIDEST, max(cell_len(name), *(cell_len(row[n]) for row in rows)) if rows else 0)
        for n, name in enumerate(drawing.columns)
    ]
    right = [all(not isinstance(row[n], str) for row in drawing.rows) for n in range(len(wide))]
    lines = []
    for row in (list(drawing.columns), *rows):
        parts = [textwrap.wrap(cell, WIDEST) or [""] for cell in row]
        for k in range(max(map(len, parts))):
            cells = [part[k] if k < len(part) else "" for part in parts]
            padded = (
                " " * (w - cell_len(c)) + c if r else c + " " * (w - cell_len(c))
                for c, w, r in zip(cells, wide, right, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
    return lines


def _table_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return str(shown(cell))
    return "" if cell is None else f"{cell:.4g}"
