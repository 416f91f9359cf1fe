"""Lines over one axis: learning rates over steps, gradients over distance, memory over length.

Does not live here: what is drawn; error against horizon has a view of its own (`horizon`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.heatmap import FONT_SIZE
from foveate.look.picture import page_of
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOLD = 12  # places that the text names at most
SIZE = 5.0, 3.4  # inches: narrow enough for a telephone
DASHES: Sequence[Any] = ("-", "--", "-.", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), ":", (0, (1, 3)))


@dataclass(frozen=True, eq=False, repr=False)
class CurvesView(View):
    """A line for each name, all over the same places ``x`` (N,); NaN where a line has no value.

    Lines differ in colour and in dash, so that they can be told apart without colour.
    """

    x: NDArray[np.floating]
    curves: Mapping[str, NDArray[np.floating]]
    across: str = ""  # what x is
    up: str = ""  # what the lines are
    title: str = ""
    log: str = ""  # "", "x", "y" or "xy": which axes are logarithmic

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"x": np.asarray(self.x), **{n: np.asarray(c) for n, c in self.curves.items()}}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A row for some of the places, a column for each line."""
        every = max(1, -(-len(self.x) // TOLD))
        places = sorted({*range(0, len(self.x), every), len(self.x) - 1} & set(range(len(self.x))))
        wide = max(9, max(map(len, self.curves), default=0)) + 2
        lines = [f"{self.across:>12}" + "".join(f"{name:>{wide}}" for name in self.curves)]
        for place in places:
            cells = (f"{curve[place]:>{wide}.3g}" for curve in self.curves.values())
            lines.append(f"{self.x[place]:>12g}" + "".join(cells))
        heading = " · ".join(part for part in (self.title, self.up) if part)
        return "\n".join([heading, *lines] if heading else lines)

    def html(self) -> str:
        return page_of(self, self.title or self.up)

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        rows = -(-len(self.curves) // self._columns)
        figure = Figure(figsize=(SIZE[0], SIZE[1] + 0.2 * rows), layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    @property
    def _columns(self) -> int:
        """How many names stand side by side in the legend."""
        longest = max(map(len, self.curves), default=1)
        return max(1, min(len(self.curves), 52 // (longest + 5)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        for number, (name, curve) in enumerate(self.curves.items()):
            hue, dash = colors.line(number), DASHES[number % len(DASHES)]
            ax.plot(self.x, curve, color=hue, linestyle=dash, linewidth=1.8, label=name)
        for axis in self.log:
            getattr(ax, f"set_{axis}scale")("log")
        if "x" in self.log and len(self.x) <= TOLD:
            ax.set_xticks(self.x, [f"{place:g}" for place in self.x])
            ax.minorticks_off()
        ax.set_xlabel(self.across, size=FONT_SIZE)
        ax.set_ylabel(self.up, size=FONT_SIZE)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        legend = ax.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=self._columns, frameon=False,
            fontsize=FONT_SIZE, handlelength=2.6, borderaxespad=0.3, columnspacing=1.2,
            title=self.title or None, title_fontsize=FONT_SIZE + 1, alignment="left",
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)
        return ax
