"""A beam search, step by step."""

import textwrap
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Label, visible
from foveate.look.draw.terminal import cut

STEP, RANK = 0.95, 0.34  # inches of a step and of a hypothesis in it
LONGEST_NODE = 18  # letters of a label
FAINT = "#b5b5b5"
LANE_MARKS = {"live": " ", "done": "■", "pruned": "×"}

LANES_CAPTION = (
    "each column is a step, with the best prefix on top; thick: the answer, ■ has ended, "
    "orange is greedy search; grey and dashed was dropped; numbers are scores"
)


class Node(DrawingPart):
    """A partial hypothesis of a beam at one step: its last token, and the one that it extends."""

    id: int
    parent: int | None
    text: Label
    log_p: float
    score: float
    state: Literal["live", "done", "pruned"]


class LanesDrawing(Drawing):
    """A beam search: a column for each step, in it the partial hypotheses, best first.

    ``best`` are the nodes of the answer, ``greedy`` those of greedy search, which the beam may have
    dropped; ``scored`` is how a score is computed, where it is not p.
    """

    kind: Literal["lanes"] = "lanes"
    steps: list[list[Node]]
    best: list[int] = Field([])
    greedy: list[int] = Field([])
    scored: str = ""

    def arrays(self) -> Arrays:
        """Return a row for each node: step, id, parent (−1 for none), log p, score, state, text."""
        rows = [(number, node) for number, step in enumerate(self.steps) for node in step]
        parents = [-1 if node.parent is None else node.parent for _, node in rows]
        return {
            "step": np.array([number for number, _ in rows], dtype=np.int64),
            "id": np.array([node.id for _, node in rows], dtype=np.int64),
            "parent": np.array(parents, dtype=np.int64),
            "log_p": np.array([node.log_p for _, node in rows]),
            "score": np.array([node.score for _, node in rows]),
            "state": np.array([node.state for _, node in rows]),
            "text": np.array([visible(node.text) for _, node in rows]),
            "best": np.array(self.best, dtype=np.int64),
            "greedy": np.array(self.greedy, dtype=np.int64),
        }

    def figure(self) -> Figure:
        tallest = max(map(len, self.steps), default=1)
        longest = max((len(n.text) for step in self.steps for n in step), default=0)
        step = max(STEP, 0.075 * min(longest, LONGEST_NODE) + 0.65)
        return self.own_figure(max(4.0, step * len(self.steps) + 0.4), RANK * tallest + 1.0)

    def fill(self, ax: Axes) -> None:
        steps, greedy = self.steps, dict.fromkeys(self.greedy, colors.line(1))
        inks = greedy | dict.fromkeys(self.best, colors.line(0))
        place = {
            n.id: (number, rank) for number, step in enumerate(steps) for rank, n in enumerate(step)
        }
        for node in (node for step in steps for node in step):
            ink, style = inks.get(node.id), "--" if node.state == "pruned" else "-"
            if node.parent is not None:
                ends = zip(place[node.parent], place[node.id], strict=True)
                wide, above = (2.4, 2) if ink else (0.9, 1)
                color, (x, y) = ink or FAINT, map(list, ends)
                ax.plot(x, y, color=color, linewidth=wide, linestyle=style, zorder=above)
            _write_node(ax, node, place[node.id], ink)
        tallest = max(map(len, steps), default=1)
        ax.set(xlim=(-0.55, len(steps) - 0.4), ylim=(tallest - 0.4, -0.6), yticks=[])
        ax.set_xticks(range(len(steps)), [str(n + 1) for n in range(len(steps))])
        ax.tick_params(length=0, labelsize=figures.FONT_SIZE - 1, color=figures.NOTE)
        ax.spines[:].set_visible(False)
        caption = textwrap.fill(self.caption, max(64, 15 * len(steps)))
        ax.set_xlabel(caption, loc="left", **figures.SMALL)
        if self.title:
            ax.set_title(self.title, size=figures.FONT_SIZE + 1, loc="left", parse_math=False)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a line for each step: its hypotheses, best first, the answer's in brackets."""
        lines = [self.title] if self.title else []
        for number, step in enumerate(self.steps):
            cells = "  ".join(_lane_cell(node, node.id in self.best) for node in step)
            lines.append(cut(f"{number + 1:>3}  {cells}", width or 100))
        caption = [] if self.caption == LANES_CAPTION else [self.caption_in(width)]
        return "\n".join([*lines, "[…] the answer, ■ has ended, × was dropped; scores", *caption])


def lanes(
    steps: Sequence[Sequence[Node]], best: Sequence[int] = (), title: str = "",
    greedy: Sequence[Node] = (),
) -> LanesDrawing:  # fmt: skip
    """Return a drawing of a beam, and of the path of greedy search, as far as the beam lacks it."""
    first = 1 + max((node.id for step in steps for node in step), default=-1)
    columns, path = [list(step) for step in steps], list[int]()
    for t, node in enumerate(greedy):
        columns += [[]] * (t == len(columns))
        parent = path[-1] if path else None
        same = [each.id for each in columns[t] if (each.parent, each.text) == (parent, node.text)]
        if not same:
            own: dict[str, object] = {"id": first + t, "parent": parent, "state": "pruned"}
            columns[t] = [*columns[t], node.model_copy(update=own)]
        path.append(same[0] if same else first + t)
    return LanesDrawing(
        title=title, caption=LANES_CAPTION, steps=columns, best=list(best), greedy=path
    )


def _write_node(ax: Axes, node: Node, place: tuple[int, int], ink: str | None) -> None:
    """Write the last token of a partial hypothesis in a box, with its score."""
    word = cut(node.text.removeprefix(" ") or node.text, LONGEST_NODE)
    mark = LANE_MARKS["done"] if node.state == "done" else ""
    dropped = node.state == "pruned"
    box = {
        "boxstyle": "round,pad=0.25", "facecolor": "white",
        "edgecolor": ink or FAINT, "linestyle": "--" if dropped else "-",
        "linewidth": 1.4 if ink else 0.7,
    }  # fmt: skip
    text = f"{word}{mark} {score_text(node, 1)}".replace("-", "−")
    size, weight = figures.FONT_SIZE - 1.5, "bold" if ink else "normal"
    color = figures.NOTE if dropped else "black"
    figures.write(ax, *place, text, color, ha="center", size=size, weight=weight, bbox=box)


def _lane_cell(node: Node, chosen: bool) -> str:
    word = visible(node.text.removeprefix(" ") or node.text)
    word = f"[{word}]" if chosen else word
    return f"{word} {score_text(node, 2)}{LANE_MARKS[node.state]}".rstrip()


def score_text(node: Node, digits: int) -> str:
    """Return a partial hypothesis' score: log p with ``digits`` digits, p (above 0) with more."""
    return f"{node.score:.{digits}f}" if node.score <= 0 else f"{node.score:.3g}".lstrip("0")
