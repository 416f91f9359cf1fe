"""What the pictures share: a drawing of one's own as a view, and small things about axes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import FONT_SIZE, NOTE, WIDTH

Draw = Callable[[Path], Drawing]


class OwnFigure(Drawing):
    """A figure that some lines of code draw when it is needed."""

    make: Callable[[], Figure]

    def figure(self) -> Figure:
        return self.make()

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


def narrow(view: Drawing, height: float, title: str = "") -> OwnFigure:
    """The figure of a view at the width of all others, under a title if one is given."""

    def draw() -> Figure:
        drawn = view.figure()
        drawn.set_size_inches(WIDTH, height)
        if title:
            drawn.suptitle(title, size=FONT_SIZE + 1, parse_math=False)
        return drawn

    return OwnFigure(make=draw)


def plain(ax: Axes, title: str = "") -> Axes:
    """Axes without a frame and without marks, under a title."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(title, size=FONT_SIZE, parse_math=False)
    return ax


def note(ax: Axes, x: float, y: float, text: str, **how: Any) -> None:
    """Words inside axes."""
    ax.text(x, y, text, **({"size": FONT_SIZE - 1, "color": NOTE, "parse_math": False} | how))
