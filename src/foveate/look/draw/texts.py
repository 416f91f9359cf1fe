"""Coloured words, and tables."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pydantic import Field
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Label, TableCell, Text, shown, visible

WIDEST = 64  # letters in a table column; longer texts are wrapped


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
    """A text whose words have colours; ``told`` says what of. Signs of both kinds diverge at 0.

    With a ``total``, values are probabilities, written below their words: it is their product;
    ``condition`` is what they depend on besides the words before.
    """

    kind: Literal["words"] = "words"
    words: list[Word]
    legend: str = Field("", alias="told")
    least: float = 0.0
    most: float = 1.0
    total: Text = ""
    condition: Text = ""

    def arrays(self) -> Arrays:
        arrays: Arrays = {
            "words": np.array([visible(word.text) for word in self.words]),
            "values": np.array([word.value for word in self.words], float),
        }
        count = min((len(word.alternatives) for word in self.words), default=0)
        if count:
            ranked = [word.alternatives[:count] for word in self.words]
            arrays["alternatives"] = np.array([[visible(c.text) for c in row] for row in ranked])
            arrays["p"] = np.array([[choice.p for choice in row] for row in ranked])
        return arrays

    def figure(self) -> Figure:
        """Draw the words as in a text, a line for each, on their colours."""
        made = figures.typed(self.text(figures.TYPED).split("\n"))
        labels = [visible(word.text) for word in self.words]
        left, before = max(map(cell_len, labels), default=0), 2 if self.title else 1
        for number, (label, word) in enumerate(zip(labels, self.words, strict=True), start=before):
            if word.value is not None:
                fill, ink = fill_and_ink(self, word.value)
                wide, y = cell_len(label) * figures.LETTER, 0.15 + number * figures.LINE_HEIGHT
                x = 0.15 + left * figures.LETTER - wide
                box = Rectangle((x - 0.02, y - 0.11), wide + 0.04, 0.2, color=fill, lw=0, zorder=3)
                made.axes[0].add_patch(box)
                figures.write_lines(made.axes[0], x, y, [label], ink)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a line for each word: its value, its note, its alternatives."""
        words = [(visible(word.text), word) for word in self.words]
        left = max((cell_len(label) for label, _ in words), default=0)
        lines = [self.title, self.legend] if self.title else [self.legend]
        for label, word in words:
            value = "" if word.value is None else f"{word.value:.3f}"
            others = "  ".join(f"{visible(each.text)} {each.p:.3f}" for each in word.alternatives)
            pad = " " * (left - cell_len(label))
            lines.append(f"{pad}{label} {value:>7}  {shown(word.note)}   {others}".rstrip())
        return "\n".join([*lines, self.caption_in(width)] if self.caption else lines)


def total_of(logs: Sequence[float]) -> str:
    """Return a product of probabilities, and below it minus the sum of their logarithms."""
    log_p = sum(logs)
    exact = (n for n in (1, 2) if abs(sum(round(x, n) for x in logs) - round(log_p, n)) < 1e-9)
    places = 2 if log_p > -3 else next(exact, 2)  # at which the terms add up as written
    terms = " + ".join(f"{abs(x):.{places}f}" for x in logs)
    digits, _, power = f"{np.exp(log_p):.1e}".partition("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    p = f"{np.exp(log_p):.2f}" if log_p > -3 else f"{digits} · 10{raised}"
    terms = f"{terms} = " if len(terms) < 48 else ""  # else too long for a line
    return f"= {p}; −Σ log p = {terms}{-log_p:.{places}f}"


def fill_and_ink(drawing: WordsDrawing, value: float) -> tuple[tuple[float, float, float], str]:
    """Return the colour of a value, and black or white, whichever is more legible on it."""
    least, most = drawing.least, drawing.most
    level = (value - least) / ((most - least) or 1)
    if least < 0 < most:
        red, green, blue, _ = colormaps["PuOr_r"](level)
    else:
        red, green, blue = colors.table()[int(np.clip(level, 0, 1) * 255)] / 255
    light = np.dot((red, green, blue), (0.299, 0.587, 0.114))
    return (red, green, blue), "black" if light > 0.5 else "white"


class TableDrawing(Drawing):
    """Rows under the names of their columns; numbers stand at the right, texts at the left."""

    kind: Literal["table"] = "table"
    columns: list[str]
    rows: list[list[TableCell]]

    def arrays(self) -> Arrays:
        across = zip(self.columns, zip(*self.rows, strict=True), strict=True)
        return {name: np.array(cells) for name, cells in across}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title] if self.title else []
        caption = [self.caption_in(width)] if self.caption else []
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for number, name in enumerate(self.columns):
            right = all(not isinstance(row[number], str) for row in self.rows)
            justify: Literal["right", "left"] = "right" if right else "left"
            table.add_column(name, justify=justify, max_width=WIDEST, overflow="fold")
        for row in self.rows:
            cells = ("" if c is None else c if isinstance(c, str) else f"{c:.4g}" for c in row)
            table.add_row(*(str(shown(cell)) for cell in cells))
        wide = Console(width=10**5, color_system=None, markup=False, emoji=False, highlight=False)
        with wide.capture() as captured:
            wide.print(table)
        rows = captured.get().removesuffix("\n").split("\n")
        return "\n".join([*lines, *map(str.rstrip, rows), *caption])
