"""How figures grow with a length: lines on logarithmic axes, where a square rises twice as steeply.

Does not live here: what is measured (`foveate.bench.length`).
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

Curves = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, eq=False, repr=False)
class GrowthView(View):
    """Panels of lines over ``lengths``: ``panels`` names what is drawn, then the lines in it.

    ``None`` is a figure that was not taken. A name ending in "causal" is drawn with dashes.
    """

    lengths: Sequence[int]
    panels: Mapping[str, Curves]
    title: str = ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"lengths": np.asarray(self.lengths)}
        for panel, curves in self.panels.items():
            for name, curve in curves.items():
                found[f"{panel}: {name}"] = np.asarray(curve, dtype=float)
        return found

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A table for each panel, a row for each line."""
        lines = [self.title] if self.title else []
        for panel, curves in self.panels.items():
            wide = max(map(len, curves), default=0)
            lines.append(f"{panel:<{wide}}" + "".join(f"{n:>10,}" for n in self.lengths))
            for name, curve in curves.items():
                cells = ("-" if figure is None else f"{figure:.4g}" for figure in curve)
                lines.append(f"{name:<{wide}}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines)

    def html(self) -> str:
        picture = io.StringIO()
        self.figure().savefig(picture, format="svg", metadata={"Date": None})
        drawing = picture.getvalue()
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8">'
            f"<title>{html.escape(self.title or 'Growth')}</title>"
            f"<body>{drawing[drawing.index('<svg') :]}</body></html>"
        )

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.2 * len(self.panels), 4.8), layout="constrained")
        for number, panel in enumerate(self.panels, start=1):
            axes = figure.add_subplot(1, len(self.panels), number)
            self.plot(axes, panel)
        figure.axes[-1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.suptitle(self.title)
        return figure

    def plot(self, ax: Axes, panel: str) -> Axes:
        """Draw one panel into the axes given, and return them."""
        colors: dict[str, str] = {}
        for name, curve in self.panels[panel].items():
            base = name.removesuffix(", causal")
            color = colors.setdefault(base, f"C{len(colors)}")
            style = "--" if name != base else "-"
            known = np.asarray(curve, dtype=float)
            ax.loglog(self.lengths, known, style, marker=".", color=color, label=name, lw=1.4)
        ax.set(xlabel="length", ylabel=panel)
        ax.spines[["top", "right"]].set_visible(False)
        return ax
