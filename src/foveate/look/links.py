"""Attention as lines between two columns of words: what each word looks at.

Does not live here: the same weights as a matrix (`heatmap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foveate.look import colors
from foveate.look.drawing import AttentionDrawing, Drawing
from foveate.look.heatmap import FONT_SIZE, AttentionView
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP = 0.24  # inches from word to word
LEAST = 0.05  # weights below are not drawn in a picture that nobody can point at
NOTE = "#555555"


@dataclass(frozen=True, eq=False, repr=False)
class LinksView(AttentionView):
    """The map of one layer and head; a line is as strong as its weight.

    In a browser the lines of one word are shown when it is pointed at.
    """

    def drawings(self) -> list[Drawing]:
        return [
            drawing.model_copy(update={"form": "links"})
            for drawing in super().drawings()
            if isinstance(drawing, AttentionDrawing)
        ]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        height = STEP * max(len(self.rows), len(self.columns)) + 0.9
        figure = Figure(figsize=(5.0, height), layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        count = max(len(self.rows), len(self.columns))
        down = [(count - len(words)) / 2 for words in (self.columns, self.rows)]
        for t, row in enumerate(self.array):
            for s, weight in enumerate(row):
                if weight >= LEAST:
                    ax.plot(
                        (0, 1), (s + down[0], t + down[1]), color=colors.line(0),
                        alpha=min(1.0, float(weight)), linewidth=0.6 + 2.4 * float(weight),
                    )  # fmt: skip
        for words, start, x, side in (
            (self.columns, down[0], -0.03, "right"),
            (self.rows, down[1], 1.03, "left"),
        ):
            for place, word in enumerate(words):
                text = visible(word)
                short = text if len(text) <= 24 else text[:23] + "…"
                ax.text(
                    x, place + start, short, size=FONT_SIZE, ha=side, va="center", parse_math=False
                )
        ax.set(xlim=(-0.9, 1.9), ylim=(count - 0.4, -0.6))
        ax.set_axis_off()
        means = self.record.row_means(self.name)
        told = f"read → {means}, weights from {LEAST:.0%}\n{self.caption}"
        ax.set_title(told, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
        return ax


def links(view: AttentionView) -> LinksView:
    """The same map as lines between words."""
    return LinksView(view.record, view.name, view.head, view.scale)
