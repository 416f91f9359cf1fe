"""Error against horizon: how much a forecast errs at each step ahead, several forecasts together.

Does not live here: the forecasts and their errors (`foveate.tasks.forecasting`).
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOLD = 12  # steps that the text names at most


@dataclass(frozen=True, eq=False, repr=False)
class HorizonView(View):
    """Mean squared error of each step ahead, a line for each name."""

    curves: Mapping[str, Sequence[float]]
    title: str = ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.asarray(curve) for name, curve in self.curves.items()}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A row for some of the steps, a column for each line."""
        length = max(map(len, self.curves.values()), default=0)
        every = max(1, -(-length // TOLD))
        steps = sorted({*range(0, length, every), length - 1})
        wide = max(map(len, self.curves), default=0) + 2
        lines = [f"{'step':>6}" + "".join(f"{name:>{wide}}" for name in self.curves)]
        for step in steps:
            cells = (f"{c[step]:>{wide}.4f}" if step < len(c) else "" for c in self.curves.values())
            lines.append(f"{step + 1:>6}" + "".join(f"{cell:>{wide}}" for cell in cells))
        return "\n".join([self.title, *lines] if self.title else lines)

    def html(self) -> str:
        picture = io.StringIO()
        self.figure().savefig(picture, format="svg", metadata={"Date": None})
        drawing = picture.getvalue()
        title = html.escape(self.title or "Error against horizon")
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<body>{drawing[drawing.index('<svg') :]}</body></html>"
        )

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.5, 4.0), layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        for name, curve in self.curves.items():
            naive = "naive" in name or "last value" in name
            style: Any = {"ls": "--", "lw": 1.0} if naive else {"lw": 1.8}
            ax.plot(np.arange(1, len(curve) + 1), curve, label=name, **style)
        ax.set(xlabel="steps ahead", ylabel="mean squared error, scaled", title=self.title)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the lines
        ax.spines[["top", "right"]].set_visible(False)
        return ax
