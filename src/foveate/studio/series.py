"""Curves with fewer points that look the same: largest triangle, three buckets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def thinned(x: Floats, y: Floats, most: int) -> NDArray[np.int64]:
    """Which of N points to draw, at most ``most``: the first, the last, and one of each bucket.

    Of a bucket it is the point that makes the largest triangle with the one chosen before it and
    the mean of the next bucket (Steinarsson, 2013); NaN counts as the last value before it.
    """
    count = len(x)
    if count <= most or most < 3:
        return np.arange(count)[: None if count <= most else most]
    filled = _filled(y)
    edges = np.linspace(1, count - 1, most - 1).astype(int)
    chosen = [0]
    for bucket in range(most - 2):
        start, end = edges[bucket], edges[bucket + 1]
        after = slice(end, edges[bucket + 2] if bucket + 2 < len(edges) else count)
        mean_x, mean_y = float(x[after].mean()), float(filled[after].mean())
        last = chosen[-1]
        area = np.abs(
            (x[last] - mean_x) * (filled[start:end] - filled[last])
            - (x[last] - x[start:end]) * (mean_y - filled[last])
        )
        chosen.append(int(start + area.argmax()))
    return np.array([*chosen, count - 1])


def _filled(y: Floats) -> Floats:
    known = np.where(np.isfinite(y), np.arange(len(y)), -1)
    last = np.maximum.accumulate(known)
    first = y[np.isfinite(y)][:1]
    return np.where(last >= 0, y[last], first[0] if len(first) else 0.0)
