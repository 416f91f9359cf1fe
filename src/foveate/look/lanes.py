"""A beam as it went: a lane of beginnings for each step, joined to what they extend.

Lives here: the view. What a search looked at is told by `foveate.decode.watch`; words as labels of
its nodes are made where the tokenizer is known.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import Drawing, LanesDrawing, Node
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP, RANK = 0.95, 0.34  # inches of a step and of a beginning in it
LONGEST = 10  # signs of a label in a figure
FAINT = "#b5b5b5"
NOTE = "#555555"
MARKS = {"live": " ", "done": "■", "pruned": "×"}


@dataclass(frozen=True, eq=False, repr=False)
class LanesView(View):
    """The beginnings of every step, best first, each with its parent, log p, score and fate.

    ``best`` are the ids of the nodes of the answer.
    """

    steps: Sequence[Sequence[Node]]
    best: Sequence[int] = ()
    title: str = ""

    @property
    def caption(self) -> str:
        """How to read it."""
        return (
            "each column is a step, best beginning on top; thick is the answer, ■ has ended, "
            "grey and dashed was dropped; numbers are scores"
        )

    def drawings(self) -> list[Drawing]:
        steps = [list(step) for step in self.steps]
        title, caption = self.title, self.caption
        return [LanesDrawing(title=title, caption=caption, steps=steps, best=list(self.best))]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """A row for each beginning: step, id, parent (−1 for none), log p, score, state, text."""
        rows = [(number, node) for number, step in enumerate(self.steps) for node in step]
        parents = [-1 if node.parent is None else node.parent for _, node in rows]
        return {
            "step": np.array([number for number, _ in rows], dtype=np.int64),
            "id": np.array([node.id for _, node in rows], dtype=np.int64),
            "parent": np.array(parents, dtype=np.int64),
            "log_p": np.array([node.log_p for _, node in rows]),
            "score": np.array([node.score for _, node in rows]),
            "state": np.array([node.state for _, node in rows]),
            "text": np.array([node.text for _, node in rows]),
            "best": np.array(self.best, dtype=np.int64),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each step: its beginnings, best first, the answer's in brackets."""
        lines = [self.title] if self.title else []
        for number, step in enumerate(self.steps):
            cells = "  ".join(self._cell(node) for node in step)
            line = f"{number + 1:>3}  {cells}"
            most = width or 100
            lines.append(line if len(line) <= most else line[: most - 1] + "…")
        return "\n".join([*lines, "[…] the answer, ■ has ended, × was dropped; scores"])

    def _cell(self, node: Node) -> str:
        word = visible(node.text.removeprefix(" ") or node.text)
        word = f"[{word}]" if node.id in self.best else word
        return f"{word} {node.score:.2f}{MARKS[node.state]}".rstrip()

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        tall = max(map(len, self.steps), default=1)
        size = max(4.0, STEP * len(self.steps) + 0.4), RANK * tall + 1.0
        figure = Figure(figsize=size, layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        place = {
            node.id: (number, rank)
            for number, step in enumerate(self.steps)
            for rank, node in enumerate(step)
        }
        best = set(self.best)
        for step in self.steps:
            for node in step:
                self._join(ax, node, place, node.id in best)
        for step in self.steps:
            for node in step:
                self._write(ax, node, place[node.id], node.id in best)
        tall = max(map(len, self.steps), default=1)
        ax.set(xlim=(-0.55, len(self.steps) - 0.4), ylim=(tall - 0.4, -0.6), yticks=[])
        ax.set_xticks(range(len(self.steps)), [str(n + 1) for n in range(len(self.steps))])
        ax.tick_params(length=0, labelsize=FONT_SIZE - 1, color=NOTE)
        ax.spines[:].set_visible(False)
        told = textwrap.fill(self.caption, max(64, 15 * len(self.steps)))
        ax.set_xlabel(told, size=FONT_SIZE - 1, color=NOTE, loc="left")
        if self.title:
            ax.set_title(self.title, size=FONT_SIZE + 1, loc="left", parse_math=False)
        return ax

    def _join(self, ax: Axes, node: Node, place: dict[int, tuple[int, int]], chosen: bool) -> None:
        """A line from a beginning to what it extends."""
        if node.parent is None:
            return
        pairs = zip(place[node.parent], place[node.id], strict=True)
        dropped = node.state == "pruned"
        ax.plot(
            *(list(pair) for pair in pairs),
            color=colors.line(0) if chosen else FAINT,
            linewidth=2.4 if chosen else 0.9,
            linestyle="--" if dropped else "-",
            zorder=2 if chosen else 1,
        )

    def _write(self, ax: Axes, node: Node, place: tuple[int, int], chosen: bool) -> None:
        """The token of a beginning in a box, with its score."""
        word = visible(node.text.removeprefix(" ") or node.text)
        word = word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
        mark = MARKS["done"] if node.state == "done" else ""
        dropped = node.state == "pruned"
        edge = colors.line(0) if chosen else FAINT
        ax.text(
            *place,
            f"{word}{mark} {node.score:.1f}".replace("-", "−"),
            size=FONT_SIZE - 1.5,
            ha="center",
            va="center",
            color=NOTE if dropped else "black",
            weight="bold" if chosen else "normal",
            parse_math=False,
            bbox={
                "boxstyle": "round,pad=0.25",
                "facecolor": "white",
                "edgecolor": edge,
                "linestyle": "--" if dropped else "-",
                "linewidth": 1.4 if chosen else 0.7,
            },
        )


def lanes(steps: Sequence[Sequence[Node]], best: Sequence[int] = (), title: str = "") -> LanesView:
    """The picture of a beam. Raises ``ValueError`` where a beginning extends what is not there."""
    known: set[int] = set()
    for step in steps:
        for node in step:
            if node.parent is not None and node.parent not in known:
                raise ValueError(f"node {node.id} extends {node.parent}, which no step before has")
        known |= {node.id for node in step}
    if lost := set(best) - known:
        raise ValueError(f"the answer has nodes that no step has: {sorted(lost)}")
    return LanesView(steps, best, title)
