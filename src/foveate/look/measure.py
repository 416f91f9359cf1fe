"""Figures that describe a head, and heads put in order by one. Numpy only; nothing is drawn.

Against gold alignments, see `foveate.align.aer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]  # (..., T, S)
Figures = NDArray[np.float64]  # (...)
Judge = Callable[[Weights], Figures]


def entropy(weights: Weights) -> Figures:
    """How broadly the rows look: mean over t of -Σ_s a_ts log2 a_ts, in bits.

    Shape: (..., T, S) to (...). 0 where each row looks at one key; log2 S where it looks at all.
    """
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    figures: Figures = -(safe * np.log2(safe)).sum(axis=-1).mean(axis=-1)
    return figures


def confidence(weights: Weights) -> Figures:
    """Mean over the rows of their largest weight (Voita et al., 2019).

    Shape: (..., T, S) to (...).
    """
    figures: Figures = weights.max(axis=-1).mean(axis=-1, dtype=np.float64)
    return figures


def diagonality(weights: Weights) -> Figures:
    """How near the weight lies to the diagonal: 1 - mean over t of Σ_s a_ts |s/(S-1) - t/(T-1)|.

    Shape: (..., T, S) to (...). 1 for a map that copies in order, 0 for one that can be no further.
    """
    height, width = weights.shape[-2:]
    across = np.arange(width) / max(width - 1, 1)
    down = np.arange(height) / max(height - 1, 1)
    distance = np.abs(across - down[:, None])
    figures: Figures = 1 - (weights * distance).sum(axis=-1).mean(axis=-1)
    return figures


def alignment(weights: Weights) -> NDArray[np.int64]:
    """The key at which each row looks most, the first of equals. Shape: (..., T, S) to (..., T)."""
    keys: NDArray[np.int64] = weights.argmax(axis=-1)
    return keys


def disagreement(weights: Weights, consensus: Weights) -> float:
    """Share of rows whose most looked-at key differs from that of ``consensus`` (both (T, S))."""
    return float((alignment(weights) != alignment(consensus)).mean())


def rank_heads(
    maps: Mapping[str, Weights], error: Callable[[Weights], float] | None = None
) -> list[tuple[str, int, float]]:
    """Every head as (name of its map, head, error), the one of least error first.

    ``error`` judges one head's (T, S), for example by the alignment error rate against gold:
    ``lambda w: aer([sure], [possible], [links(w)])``. Without one, heads are judged by how often
    they disagree with the mean of all heads of the maps, which must then be of one shape.
    Equals stay in the order of the model.
    """
    if error is None:
        consensus = np.concatenate(list(maps.values())).mean(axis=0)
        return rank_heads(maps, lambda weights: disagreement(weights, consensus))
    judged = [
        (name, head, error(weights))
        for name, heads in maps.items()
        for head, weights in enumerate(heads)
    ]
    return sorted(judged, key=lambda entry: entry[2])
