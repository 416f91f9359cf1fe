"""Weights laid over a picture: it stays seen everywhere, in grey, and takes a tint where weight is.

    y = (1 − a) g + a (dark + g (light − dark))

g is the grey of a pixel and a the opacity of the weight on it, both 0 to 1: the tint has light and
dark parts of its own, so that even under all the weight there is a picture. Orange beside grey is
told apart with every kind of colour vision (Okabe & Ito, 2008). Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
DARK, LIGHT = np.array([0.72, 0.26, 0.0]), np.array([1.0, 0.80, 0.42])  # of orange
EVEN = 6  # even shares that a weight must have to be drawn in full: looking nowhere stays pale


@dataclass(frozen=True)
class Overlay:
    """How weights become opacities, and how a legend says it.

    ``opacity`` takes the weights of one panel on all cells of the picture, (rows, columns).
    """

    caption: str
    opacity: Callable[[Floats], Floats]


def _by_panel(weights: Floats) -> Floats:
    full = max(float(weights.max(initial=0)), min(1.0, EVEN / max(1, weights.size)))
    return weights / full


OVERLAYS = {
    "row": Overlay(f"weight / the panel's largest (at least {EVEN} even shares)", _by_panel),
    "absolute": Overlay("weight", lambda weights: weights),
}


def tinted(grey: Floats, opacity: Floats) -> NDArray[np.float64]:
    """Colours (…, 3) from 0 to 1 of grey pixels under opacities of the same shape."""
    g, a = np.asarray(grey, np.float64)[..., None], np.asarray(opacity, np.float64)[..., None]
    return (1 - a) * g + a * (DARK + g * (LIGHT - DARK))


def enlarged(grid: Floats, height: int, width: int) -> Floats:
    """A grid of cells (rows, columns) as pixels (height, width): each has its cell's value."""
    rows = np.arange(height) * grid.shape[0] // height
    columns = np.arange(width) * grid.shape[1] // width
    return grid[np.ix_(rows, columns)]
