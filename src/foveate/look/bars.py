"""Bars for some labels: coverage of source words, probabilities of classes, figures by group.

Does not live here: what is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import BarsDrawing, Drawing, Series, listed
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]

WIDE = 40  # signs of the longest bar of a text
TURNED = 12  # labels from which they are written across
NOTE = "#555555"


@dataclass(frozen=True, eq=False, repr=False)
class BarsView(View):
    """A bar of each of the ``series`` for each label, beside each other; NaN where there is none.

    ``bands`` are the lower and upper ends of intervals around the bars of these names; ``at`` is
    a value that bars are compared with, drawn as a line.
    """

    labels: Sequence[str]
    series: Mapping[str, Floats]
    up: str = ""  # what the bars are
    title: str = ""
    caption: str = ""
    bands: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    at: float | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"labels": np.array(self.labels)}
        found |= {name: np.asarray(values) for name, values in self.series.items()}
        for name, (low, high) in self.bands.items():
            found |= {f"{name}, low": np.asarray(low), f"{name}, high": np.asarray(high)}
        return found

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each bar: its label, its value, and as many blocks as it is long."""
        left = max((len(visible(label)) for label in self.labels), default=0)
        known = np.concatenate([np.abs(values) for values in self.series.values()] or [np.zeros(1)])
        most = float(np.nanmax(known, initial=0)) or 1.0
        lines = [" · ".join(part for part in (self.title, self.up) if part)]
        for name, values in self.series.items():
            lines += [f"{name}:"] if len(self.series) > 1 else []
            for label, value in zip(self.labels, values, strict=True):
                bar = "█" * round(WIDE * abs(value) / most) if np.isfinite(value) else ""
                lines.append(f"{visible(label):>{left}} {value:>9.3g}  {bar}".rstrip())
        return "\n".join(line for line in (*lines, self.caption) if line)

    def drawings(self) -> list[Drawing]:
        nothing: tuple[list[float], list[float]] = ([], [])
        series = [
            Series(name=name, values=listed(values), low=listed(low), high=listed(high))
            for name, values in self.series.items()
            for low, high in [self.bands.get(name, nothing)]
        ]
        labels = [visible(label) for label in self.labels]
        return [
            BarsDrawing(
                title=visible(self.title), caption=self.caption, labels=labels, series=series,
                up=self.up,
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        width = min(14.0, max(5.0, 1.2 + 0.3 * len(self.labels) * len(self.series)))
        figure = Figure(figsize=(width, 3.6), layout="constrained")
        self.plot(figure.add_subplot())
        if self.caption:
            figure.supxlabel(self.caption, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        places, wide = np.arange(len(self.labels)), 0.8 / max(1, len(self.series))
        for number, (name, values) in enumerate(self.series.items()):
            x = places + (number - (len(self.series) - 1) / 2) * wide
            ax.bar(x, values, wide * 0.92, color=colors.line(number), label=name)
            if name in self.bands:
                low, high = self.bands[name]
                ends = np.stack([values - low, high - values]).clip(min=0)
                ax.errorbar(x, values, ends, fmt="none", ecolor=NOTE, elinewidth=1, capsize=2)
        if self.at is not None:
            ax.axhline(self.at, color=NOTE, linewidth=0.8, linestyle=(0, (4, 3)))
        short = [visible(label)[:24] for label in self.labels]
        ax.set_xticks(places, short, size=FONT_SIZE, parse_math=False)
        if len(short) >= TURNED or max(map(len, short), default=0) > 8:
            for label in ax.get_xticklabels():
                label.set(rotation=50, rotation_mode="anchor", horizontalalignment="right")
        ax.set_ylabel(self.up, size=FONT_SIZE)
        title = textwrap.fill(visible(self.title), max(60, 4 * len(self.labels)))
        ax.set_title(title, size=FONT_SIZE + 1, loc="left", parse_math=False)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if len(self.series) > 1:
            ax.legend(frameon=False, fontsize=FONT_SIZE, ncols=len(self.series))
        return ax
