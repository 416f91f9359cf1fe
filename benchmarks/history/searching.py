"""The picture of searches: what greedy and beam search see of a model that is a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from foveate.decode.beam import Beam, Greedy
from foveate.decode.search import Search
from foveate.look import colors
from foveate.look.render_matplotlib import FONT_SIZE
from history.drawing import Draw, OwnFigure, figure, plain

TOKENS = ("A", "B", "C", "end")
END = 3
Prefix = tuple[int, ...]

TOY = {  # p of A, B, C and the end after what is written
    (): (0.5, 0.2, 0.3, 0.0),
    (0,): (0.25, 0.4, 0.3, 0.05),
    (0, 1): (0.3, 0.3, 0.4, 0.0),
    (0, 1, 2): (0.2, 0.1, 0.1, 0.6),
    (0, 2): (0.2, 0.6, 0.2, 0.0),
    (0, 2, 1): (0.2, 0.1, 0.1, 0.6),
}


def after(prefix: Prefix) -> Sequence[float]:
    """p(next token | prefix)."""
    return TOY.get(prefix, (0.3, 0.3, 0.3, 0.1))


def probability(prefix: Prefix) -> float:
    """Π_t p(y_t | y_<t)."""
    return prod(after(prefix[:t])[token] for t, token in enumerate(prefix))


class Watched:
    """The table as `Steps`; notes every beginning that the search goes on from."""

    device, enters = torch.device("cpu"), False

    def __init__(self) -> None:
        self.now: list[Prefix] = []
        self.seen: list[Prefix] = []

    def step(self, ids: Tensor) -> Tensor:
        pairs = zip(self.now, ids.tolist(), strict=True)
        self.now = [(*prefix, token) for prefix, token in pairs] if self.seen else [()]
        self.seen += self.now
        return torch.tensor([after(prefix) for prefix in self.now]).log()

    def reorder(self, rows: Tensor) -> None:
        self.now = [self.now[row] for row in rows.tolist()]

    def select(self, sources: Tensor) -> None:
        """There is one source."""


def watched(search: Search) -> tuple[list[Prefix], Prefix]:
    """The beginnings that a search goes on from, and its answer with the end."""
    steps = Watched()
    ((best, *_),) = search(steps, [4], 9, END)
    return steps.seen, (*best.ids, END)


def beam(folder: Path) -> Drawing:
    """The beginnings that two beams keep, and where greedy search goes."""
    saved, result = watched(Beam.Config(beam_size=2, length_penalty=0.0).build())
    _, greedy = watched(Greedy.Config().build())
    nodes = sorted({p[:t] for p in (*saved, result, greedy) for t in range(1, len(p) + 1)})
    ends = [p for p in nodes if not any(q[: len(p)] == p and q != p for q in nodes)]

    def height(prefix: Prefix) -> float:
        under = [i for i, end in enumerate(ends) if end[: len(prefix)] == prefix]
        return -sum(under) / len(under)

    def draw() -> Figure:
        drawn = figure(3.1)
        ax = plain(drawn.subplots(), "Greedy takes the best token, two beams the best output")
        for prefix in nodes:
            ink, width = "#777777", 1.2
            for path, hue in ((greedy, 1), (result, 0)):
                if path[: len(prefix)] == prefix:
                    ink, width = colors.line(hue), 2.4
            shared = greedy[: len(prefix)] == prefix and result[: len(prefix)] == prefix
            ink = "#000000" if shared else ink
            t, y, before = len(prefix), height(prefix), height(prefix[:-1])
            ax.plot((t - 0.8, t - 0.2), (before, y), color=ink, lw=width)
            p = after(prefix[:-1])[prefix[-1]]
            ax.text(t - 0.5, (before + y) / 2, f"{p:g}", size=FONT_SIZE - 1, ha="center",
                    va="center", bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
            ax.text(t, y, TOKENS[prefix[-1]], size=FONT_SIZE, ha="center", va="center", color=ink)
        for path, hue, name in ((greedy, 1, "greedy"), (result, 0, "2 beams")):
            output = f"{name}\n{probability(path):.3f}"
            ax.text(len(path) + 0.25, height(path), output, size=FONT_SIZE, color=colors.line(hue),
                    va="center")  # fmt: skip
        ax.text(0, height(()), "start", size=FONT_SIZE, ha="center", va="center")
        ax.set_xlim(-0.3, 5.0)
        ax.margins(y=0.12)
        return drawn

    return OwnFigure(make=draw)


DRAWN: dict[str, Draw] = {"beam": beam}
