"""Lines over one axis: learning rates over steps, gradients over distance, errors over horizons.

Lives here: one drawing of lines, and several of them as panels of one picture. Does not live here:
what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import Curve, Drawing, LinesDrawing, Mark, listed
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]

TOLD = 12  # places that the text names at most
LETTERS = 76  # of the labels below an axis, together
SIZE = 5.0, 3.4  # inches: narrow enough for a telephone
NOTE = "#555555"
DASHES: Sequence[Any] = ("-", "--", "-.", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), ":", (0, (1, 3)))


@dataclass(frozen=True, eq=False, repr=False)
class CurvesView(View):
    """A line for each name, all over the same places ``x`` (N,); NaN where a line has no value.

    Lines differ in colour and in dash, so that they can be told apart without colour. ``bands``
    are the lower and upper ends around the lines of these names; ``labels`` are what the places
    are called where they are no numbers; ``marks`` are places with names.
    """

    x: Floats
    curves: Mapping[str, Floats]
    across: str = ""  # what x is
    up: str = ""  # what the lines are
    title: str = ""
    log: str = ""  # "", "x", "y" or "xy": which axes are logarithmic
    bands: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    labels: Sequence[str] = ()
    marks: Mapping[str, float] = field(default_factory=dict)
    caption: str = ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"x": np.asarray(self.x)}
        found |= {name: np.asarray(curve) for name, curve in self.curves.items()}
        for name, (low, high) in self.bands.items():
            found |= {f"{name}, low": np.asarray(low), f"{name}, high": np.asarray(high)}
        return found | ({"labels": np.array(self.labels)} if self.labels else {})

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A row for some of the places, a column for each line."""
        every = max(1, -(-len(self.x) // TOLD))
        places = sorted({*range(0, len(self.x), every), len(self.x) - 1} & set(range(len(self.x))))
        wide = max(9, max(map(len, self.curves), default=0)) + 2
        names = [self.labels[k] if self.labels else f"{self.x[k]:g}" for k in places]
        left = max([12, *map(len, names), len(self.across)])
        lines = [f"{self.across:>{left}}" + "".join(f"{name:>{wide}}" for name in self.curves)]
        for name, place in zip(names, places, strict=True):
            cells = (_cell(curve[place]) for curve in self.curves.values())
            lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in cells))
        heading = " · ".join(part for part in (self.title, self.up) if part)
        return "\n".join(part for part in (heading, *lines, self.caption) if part)

    def drawings(self) -> list[Drawing]:
        nothing: tuple[list[float], list[float]] = ([], [])
        curves = [
            Curve(name=name, y=listed(curve), low=listed(low), high=listed(high))
            for name, curve in self.curves.items()
            for low, high in [self.bands.get(name, nothing)]
        ]
        return [
            LinesDrawing(
                title=self.title or self.up, caption=self.caption,
                x=[float(place) for place in self.x],
                curves=curves, across=self.across, up=self.up, log=self.log,
                labels=list(self.labels),
                marks=[Mark(x=x, label=label) for label, x in self.marks.items()],
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        rows = -(-len(self.curves) // self._columns)
        figure = Figure(figsize=(SIZE[0], SIZE[1] + 0.2 * rows), layout="constrained")
        self.plot(figure.add_subplot())
        if self.caption:
            figure.supxlabel(self.caption, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
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
            alone = "o" if np.isfinite(curve).sum() == 1 else None
            ax.plot(self.x, curve, color=hue, ls=dash, lw=1.8, label=name, marker=alone)
            if name in self.bands:
                ax.fill_between(self.x, *self.bands[name], color=hue, alpha=0.15, linewidth=0)
        self._axes(ax)
        legend = ax.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=self._columns, frameon=False,
            fontsize=FONT_SIZE, handlelength=2.6, borderaxespad=0.3, columnspacing=1.2,
            title=self.title or None, title_fontsize=FONT_SIZE + 1, alignment="left",
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)
        return ax

    def _axes(self, ax: Axes) -> None:
        """What stands around the lines."""
        for axis in self.log:
            getattr(ax, f"set_{axis}scale")("log")
        if self.labels:
            most = max(2, LETTERS // (max(map(len, self.labels)) + 2))
            every = -(-len(self.x) // most)
            ax.set_xticks(self.x[::every], list(self.labels)[::every], parse_math=False)
        elif "x" in self.log and len(self.x) <= TOLD:
            ax.set_xticks(self.x, [f"{place:g}" for place in self.x])
            ax.minorticks_off()
        for label, place in self.marks.items():
            ax.axvline(place, color=NOTE, linewidth=0.8)
            ax.annotate(
                label, (place, 1), xycoords=ax.get_xaxis_transform(), xytext=(3, -3),
                textcoords="offset points", va="top", size=FONT_SIZE - 1, color=NOTE,
                parse_math=False,
            )  # fmt: skip
        ax.set_xlabel(self.across, size=FONT_SIZE)
        ax.set_ylabel(self.up, size=FONT_SIZE)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False, repr=False)
class PanelsView(View):
    """Drawings of lines side by side, ``across`` in a row."""

    panels: Sequence[CurvesView]
    title: str = ""
    across: int = 2

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{panel.title or panel.up}: {name}": array
            for panel in self.panels
            for name, array in panel.arrays().items()
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        texts = [panel.text(width, color) for panel in self.panels]
        return "\n\n".join([self.title, *texts] if self.title else texts)

    def drawings(self) -> list[Drawing]:
        return [drawing for panel in self.panels for drawing in panel.drawings()]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        across = min(self.across, len(self.panels))
        down = -(-len(self.panels) // across)
        width, height = SIZE
        figure = Figure(figsize=(width * across, (height + 0.4) * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).flatten()
        for ax, panel in zip(grid, self.panels, strict=False):
            panel.plot(ax)
        for ax in grid[len(self.panels) :]:
            ax.set_axis_off()
        figure.suptitle(self.title, size=FONT_SIZE + 1, parse_math=False)
        return figure


def _cell(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "-"
