"""Rows of figures and texts under names, such as an n-best list.

Does not live here: the figures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from foveate.look.chips import FONT, LETTER, LINE, NOTE
from foveate.look.drawing import Drawing, TableDrawing
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        figure = Figure(figsize=(max(4.0, width), 0.7 + LINE * len(lines)))
        height = figure.get_figheight()
        how: Any = {"size": FONT_SIZE, "family": FONT, "va": "top", "parse_math": False}
        across = 0.15 / figure.get_figwidth()
        figure.text(across, 1 - 0.1 / height, visible(self.title), **how)
        figure.text(across, 1 - 0.4 / height, lines[0], color=NOTE, **how)
        for number, line in enumerate(lines[1:], start=1):
            figure.text(across, 1 - (0.4 + LINE * number) / height, line, **how)
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
