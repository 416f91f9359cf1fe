"""The path of glimpses over a picture: where a model looked first, second, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import Drawing
from foveate.look.heatmap import FONT_SIZE
from foveate.look.picture import picture_drawing, show_pixels
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 3.6  # inches of the picture


@dataclass(frozen=True, eq=False, repr=False)
class PathView(View):
    """A picture with its glimpses in order, early ones dark and late ones bright.

    ``places`` (T, 2) are the middles as (x, y) in pixels; ``sides`` the widths in pixels of what a
    glimpse sees, one for each scale; a frame shows the sharpest one.
    """

    pixels: NDArray[np.uint8]  # (C, H, W)
    places: NDArray[np.float32]
    sides: tuple[int, ...]
    title: str

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "picture": self.pixels,
            "places": self.places,
            "sides": np.array(self.sides),
            "title": np.array(self.title),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        lines = [self.title, "glimpse      x      y  (pixels from the left and the top)"]
        lines += [f"{t:>7}  {x:5.1f}  {y:5.1f}" for t, (x, y) in enumerate(self.places, start=1)]
        return "\n".join(lines)

    def drawings(self) -> list[Drawing]:
        path = [(float(x), float(y)) for x, y in self.places]
        title = visible(self.title)
        return [picture_drawing(self.pixels, title=title, path=path, sides=list(self.sides))]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

        _, height, width = self.pixels.shape
        figure = Figure(figsize=(2 * SIDE, SIDE + 0.3), layout="constrained")
        plain, drawn = figure.subplots(1, 2)
        for ax in (plain, drawn):
            show_pixels(ax, self.pixels)
            ax.set_axis_off()
        edge = [withStroke(linewidth=2.6, foreground="black")]  # seen on bright pictures too
        drawn.plot(*self.places.T, color="#cccccc", linewidth=1, path_effects=edge)
        shades = colors.table()[np.linspace(110, 255, len(self.places)).astype(int)] / 255
        sharp = self.sides[0]
        for t, ((x, y), shade) in enumerate(zip(self.places, shades, strict=True), start=1):
            corner = (float(x) - sharp / 2, float(y) - sharp / 2)
            frame = Rectangle(corner, sharp, sharp, fill=False, edgecolor=shade, linewidth=1.2)
            drawn.add_patch(frame).set_path_effects(edge)
            drawn.annotate(
                str(t), (float(x), float(y)), size=FONT_SIZE - 1, ha="center", va="center",
                color="black" if shade.mean() > 0.5 else "white",
                bbox={"boxstyle": "circle,pad=0.15", "facecolor": shade, "edgecolor": "black"},
            )  # fmt: skip
        drawn.set(xlim=(0, width), ylim=(height, 0))
        widths = ", ".join(map(str, self.sides))
        plain.set_title(self.title, size=FONT_SIZE, parse_math=False)
        drawn.set_title(f"glimpses in order; each sees {widths} pixels across", size=FONT_SIZE)
        return figure
