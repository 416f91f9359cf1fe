"""A forecast: the rows that were read, what came and what was said, and what was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look.curves import CurvesView
from foveate.look.drawing import Drawing
from foveate.look.heatmap import FONT_SIZE
from foveate.look.sheets import Sheet
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class ForecastView(View):
    """Lines over time with, below the time axis, a strip of what was looked at.

    ``strip`` (1, T) has a cell for each place of the lines, NaN where nothing could be looked at;
    None for a model without attention.
    """

    lines: CurvesView
    strip: Sheet | None = None

    @property
    def title(self) -> str:
        """What is forecast."""
        return self.lines.title

    def arrays(self) -> dict[str, NDArray[Any]]:
        seen = {} if self.strip is None else {"looked at": np.asarray(self.strip.values)}
        return self.lines.arrays() | seen

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        return self.lines.text(width, color)

    def drawings(self) -> list[Drawing]:
        strip = [] if self.strip is None else [self.strip.drawing()]
        return [*self.lines.drawings(), *strip]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        if self.strip is None:
            self.lines.plot(figure.add_subplot())
            return figure
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (12, 1)})
        self.lines.plot(above)
        x = np.asarray(self.lines.x)
        half = (x[1] - x[0]) / 2
        ends = np.append(x - half, x[-1] + half)
        shown = np.ma.masked_invalid(self.strip.values)
        below.pcolormesh(ends, (0, 1), shown, cmap="cividis", vmin=0, rasterized=True)
        below.set(yticks=[], facecolor="#eeeeee")
        below.spines[:].set_visible(False)
        above.set_xlabel("")
        above.tick_params(labelbottom=False)
        below.tick_params(labelsize=FONT_SIZE)
        below.set_xlabel(f"{self.lines.across}; strip: {self.strip.title}", size=FONT_SIZE)
        return figure
