"""What the pictures share: a drawing of one's own as a view, and small things about axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foveate.look.heatmap import FONT_SIZE
from foveate.look.sheets import NOTE, WIDTH
from foveate.look.view import View

Draw = Callable[[Path], View]


@dataclass(frozen=True, eq=False, repr=False)
class Drawing(View):
    """A figure that some lines of code draw when it is asked for."""

    draw: Callable[[], Figure]

    def figure(self) -> Figure:
        return self.draw()

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        return ""

    def drawings(self) -> list[Any]:
        return []

    def html(self) -> str:
        return ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}


def figure(height: float) -> Figure:
    """A figure as wide as all others."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def narrow(view: View, height: float, title: str = "") -> Drawing:
    """The figure of a view at the width of all others, under a title if one is given."""

    def draw() -> Figure:
        drawn = view.figure()
        drawn.set_size_inches(WIDTH, height)
        if title:
            drawn.suptitle(title, size=FONT_SIZE + 1, parse_math=False)
        return drawn

    return Drawing(draw)


def plain(ax: Axes, title: str = "") -> Axes:
    """Axes without a frame and without marks, under a title."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(title, size=FONT_SIZE, parse_math=False)
    return ax


def note(ax: Axes, x: float, y: float, text: str, **how: Any) -> None:
    """Words inside axes."""
    ax.text(x, y, text, **({"size": FONT_SIZE - 1, "color": NOTE, "parse_math": False} | how))
