"""The colours of weights, the same in every output: a table, two scales, the tint of pictures.

The table is cividis, which reads the same with and without colour vision (Nuñez et al., 2018).
Lines have the hues of Okabe & Ito (2008), which remain distinct without red or green vision.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from foveate.errors import UserError

Floats = NDArray[np.floating]
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")


class Hue(IntEnum):
    """The use of a colour in a scene: a vector of an attention, a state, a gradient, a layer."""

    KEY, QUERY, VALUE, OUTPUT, LAYER, WEIGHT, INPUT = range(7)
    STATE, GRADIENT = VALUE, QUERY  # of networks without attention, and of a training step


def line(number: int) -> str:
    """Return the colour of the n-th line of a drawing, counted from 0; colours repeat."""
    return LINES[number % len(LINES)]


@cache
def table(name: str = "cividis") -> NDArray[np.uint8]:
    """Return 256 colours of a matplotlib table from least to most, (256, 3): red, green, blue.

    "PuOr_r" goes from violet through white to orange.
    """
    from matplotlib import colormaps

    return colormaps[name](np.arange(256), bytes=True)[:, :3]


@dataclass(frozen=True)
class Scale:
    """A map from weights to levels (or opacities) from 0 to 1, and its caption in a legend."""

    caption: str
    levels: Callable[[Floats], Floats]
    marks: dict[float, str] = field(default_factory=dict)  # level to its label in the legend


def _by_row(weights: Floats) -> Floats:
    most = weights.max(axis=-1, keepdims=True, initial=0)
    return np.sqrt(weights / np.where(most > 0, most, 1)).clip(0, 1).astype(np.float64)


SCALES = {
    "row": Scale(
        "by row: weight / the largest of its row (square root)",
        _by_row,
        {0.0: "0", 0.05**0.5: "5 %", 0.5: "25 %", 0.5**0.5: "50 %", 1.0: "100 %"},
    ),
    "absolute": Scale(
        "weight, from 0 to 1",
        lambda weights: weights.clip(0, 1).astype(np.float64),
        {v: f"{v:g}" for v in (0.0, 0.25, 0.5, 0.75, 1.0)},
    ),
}


def scale(name: str) -> Scale:
    """Return the scale with a name. Raises `UserError` with the existing ones."""
    if name not in SCALES:
        raise UserError(f"no scale {name!r}; there are: {', '.join(SCALES)}")
    return SCALES[name]


def indices(levels: Floats) -> NDArray[np.uint8]:
    """Return rows of the table for levels from 0 to 1."""
    return np.rint(levels * 255).astype(np.uint8)


# A picture stays visible everywhere in grey, and is tinted by its weights.
#
#     y = (1 − a) g + a (dark + g (light − dark))
#
# g is the grey of a pixel and a the opacity of the weight on it, both from 0 to 1: the tint has
# light and dark parts, so that the picture is visible even under the whole weight. Orange and
# grey are distinct for every kind of colour vision (Okabe & Ito, 2008).

DARK, LIGHT = np.array([0.72, 0.26, 0.0]), np.array([1.0, 0.80, 0.42])  # of orange
EVEN = 6  # multiple of an even share that is drawn at full strength: even attention stays pale


OVERLAYS = {
    "row": Scale(
        f"weight / the panel's largest (at least {EVEN} even shares)",
        lambda w: w / max(float(w.max(initial=0)), min(1.0, EVEN / max(1, w.size))),
    ),
    "absolute": Scale("weight", lambda weights: weights),
}


def tinted(grey: Floats, opacity: Floats) -> NDArray[np.float64]:
    """Return colours (…, 3) from 0 to 1 of grey pixels under opacities of the same shape."""
    g, a = np.asarray(grey, np.float64)[..., None], np.asarray(opacity, np.float64)[..., None]
    return (1 - a) * g + a * (DARK + g * (LIGHT - DARK))


def enlarged(grid: Floats, height: int, width: int) -> Floats:
    """Return a grid of cells (rows, columns) as pixels (height, width) with their cells' values."""
    rows = np.arange(height) * grid.shape[0] // height
    return grid[np.ix_(rows, np.arange(width) * grid.shape[1] // width)]
