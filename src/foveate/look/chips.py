"""A text whose words have colours, each with what might have stood there.

Does not live here: what the colours mean, and which words there are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from foveate.look import colors
from foveate.look.drawing import Drawing, Word, WordsDrawing
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 96  # letters of a line
LETTER = 0.0772  # inches of one letter of the monospaced font at `FONT_SIZE`
LINE = 0.19  # inches from line to line
NOTE = "#555555"
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
        height = (tallest + 2) * LINE
        heading = [*textwrap.wrap(self.title, WIDTH), self.told]
        top = 0.25 + LINE * len(heading)
        figure = Figure(figsize=(WIDTH * LETTER + 0.3, top + lines * height))
        size = figure.get_size_inches()
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, size[0]), ylim=(size[1], 0))
        ax.set_axis_off()
        for number, text in enumerate(heading):
            _write(ax, 0.15, 0.15 + number * LINE, text, NOTE if text is self.told else "black")
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
            _write(ax, x, y + row * LINE, text, NOTE)

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
        if x and x + gap + wide > WIDTH:
            x, line = 0, line + 1
        x += gap if x else 0
        places.append((x, line))
        x += wide
    return places, line + 1


def _write(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    ax.text(x, y, text, color=color, size=FONT_SIZE, family=FONT, va="center", parse_math=False)
