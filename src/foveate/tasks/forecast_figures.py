"""Figures of forecasts: plain functions of arrays, each its formula and its source.

Shapes: predicted and wanted (M, H, C), quantiles (M, H, C, Q): M windows, H steps, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def mse(predicted: Array, wanted: Array) -> float:
    """Mean (ŷ − y)²."""
    return float(np.square(predicted - wanted, dtype=np.float64).mean())


def mae(predicted: Array, wanted: Array) -> float:
    """Mean |ŷ − y|."""
    return float(np.abs(predicted - wanted, dtype=np.float64).mean())


def naive_error(history: Array, season: int = 1) -> NDArray[np.float64]:
    """mean_t |x_t − x_{t−m}| of each channel of (N, C): what the naive forecast of season m errs.

    Raises ``ValueError`` where the history has no more than a season.
    """
    if len(history) <= season:
        raise ValueError(f"a season of {season} steps needs more than {len(history)} rows")
    change = np.abs(history[season:] - history[:-season], dtype=np.float64)
    return np.asarray(change.mean(axis=0))


def mase(predicted: Array, wanted: Array, naive: Array) -> float:
    """Mean over channels of MAE / (naive error of the training rows) (Hyndman & Koehler, 2006).

    Below 1 is better than repeating what was a season ago. Channels that never change are left out.
    """
    error = np.abs(predicted - wanted, dtype=np.float64).mean(axis=(0, 1))
    moving = naive > 0
    return float((error[moving] / naive[moving]).mean()) if moving.any() else float("nan")


def pinball(quantiles: Array, wanted: Array, levels: Sequence[float]) -> NDArray[np.float64]:
    """Mean max(q (y − ŷ_q), (q − 1)(y − ŷ_q)) for each level (Koenker & Bassett, 1978)."""
    q = np.asarray(levels)
    above = wanted[..., None].astype(np.float64) - quantiles
    return np.asarray(np.maximum(q * above, (q - 1) * above).mean(axis=(0, 1, 2)))


def crps(quantiles: Array, wanted: Array, levels: Sequence[float]) -> float:
    """2 · mean_q pinball_q: the continuous ranked probability score ∫ 2 pinball_q dq, over the
    levels that there are (Gneiting & Raftery, 2007). Of the median alone it is the MAE.
    """
    return float(2 * pinball(quantiles, wanted, levels).mean())


def coverage(quantiles: Array, wanted: Array) -> float:
    """The share of values between the lowest and the highest quantile."""
    inside = (quantiles[..., 0] <= wanted) & (wanted <= quantiles[..., -1])
    return float(inside.mean())
