"""Measures of attention maps, and the kind of each head."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]  # (..., T, S)
Figures = NDArray[np.float64]  # (...)
Judge = Callable[[Weights], Figures]


def entropy(weights: Weights) -> Figures:
    """Return how broad the attention of the rows is: mean over t of -Σ_s a_ts log2 a_ts, in bits.

    Shape: (..., T, S) to (...). 0 if each row has one key, log2 S if all keys are equal.
    """
    return _bits(weights).mean(axis=-1)


def _bits(weights: Weights) -> Figures:
    """Return the entropy of each row, -Σ_s a_ts log2 a_ts."""
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    return -(safe * np.log2(safe)).sum(axis=-1)


def confidence(weights: Weights) -> Figures:
    """Return the mean over the rows of their largest weight (Voita et al., 2019).

    Shape: (..., T, S) to (...).
    """
    return weights.max(axis=-1).mean(axis=-1, dtype=np.float64)


def diagonality(weights: Weights) -> Figures:
    """Return the closeness to the diagonal: 1 - mean over t of Σ_s a_ts |s/(S-1) - t/(T-1)|.

    Shape: (..., T, S) to (...). 1 for a map that copies in order, 0 for one as far off as possible.
    """
    height, width = weights.shape[-2:]
    across = np.arange(width) / max(width - 1, 1)
    down = np.arange(height) / max(height - 1, 1)
    distance = np.abs(across - down[:, None])
    return 1 - (weights * distance).sum(axis=-1).mean(axis=-1)


# Offsets follow the labels of a map: rows of a decoder's self-attention are the words produced, its
# columns the words read, so the last word read is at the position of the previous token.
CROSS = {"diagonal": 0}
ENCODER = {"same token": 0, "previous token": -1, "next token": 1}
DECODER = {"previous token": 0, "two tokens before": -1}
OTHERS = ("sink", "aligning", "broad", "no pattern", "silenced")
KINDS = (*dict.fromkeys((*CROSS, *ENCODER, *DECODER)), *OTHERS)
ENOUGH = 0.4  # mean weight on one offset from which a head is called after it


def on_diagonal(weights: Weights, offset: int = 0) -> Figures:
    """Return the mean weight on the key at the position of the query, or ``offset`` further.

    Shape: (..., T, S) to (...). If T ≠ S the position is t (S−1)/(T−1), rounded. Rows whose
    position would lie outside are left out.
    """
    height, width = weights.shape[-2:]
    places = np.rint(np.arange(height) * (width - 1) / max(height - 1, 1)).astype(int) + offset
    rows = np.flatnonzero((places >= 0) & (places < width))
    if not len(rows):
        return np.zeros(weights.shape[:-2])
    return weights[..., rows, places[rows]].mean(axis=-1, dtype=np.float64)


def on_sink(weights: Weights) -> Figures:
    """Return the largest mean weight of one key: near 1 if all rows attend to one key.

    Shape: (..., T, S) to (...).
    """
    return weights.mean(axis=-2, dtype=np.float64).max(axis=-1, initial=0.0)


def breadth(weights: Weights) -> Figures:
    """Return the mean of each row's entropy, relative to its maximum over visible keys: 0 to 1.

    Shape: (..., T, S) to (...). A key of weight 0 counts as hidden; rows that see one key are left
    out.
    """
    seen = (weights > 0).sum(axis=-1)
    wide = seen > 1
    shares = np.where(wide, _bits(weights) / np.log2(np.where(wide, seen, 2)), 0)
    return shares.sum(axis=-1) / np.maximum(wide.sum(axis=-1), 1)


def spread(weights: Weights) -> Figures:
    """Return the number of distinct strongest keys over the possible. (..., T, S) to (...)."""
    height, width = weights.shape[-2:]
    chosen = np.sort(weights.argmax(axis=-1), axis=-1)
    different = 1 + (np.diff(chosen, axis=-1) > 0).sum(axis=-1)
    return different / max(min(height, width), 1)


def kind_of(weights: Weights, offsets: Mapping[str, int] = ENCODER) -> str:
    """Return what a head does, judged by its map (T, S): one of ``KINDS``, by a heuristic.

    The offset with the largest mean weight names the head (``offsets`` are positions relative to
    the row's) if that weight is at least 40 %, and more than any key has over all rows (else
    ``sink``, if that key has 40 %). A head that crosses from a target to a source is ``aligning``
    if its rows are sure (their largest weight is 40 % on average) of at least half as many keys as
    possible; any head is ``broad`` if its rows attend to their keys almost evenly (entropy 90 % of
    the maximum). A single row or key has ``no pattern``; without any weight it is ``silenced``.
    """
    if not weights.any():
        return "silenced"
    if min(weights.shape) < 2:
        return "no pattern"
    shares = {name: float(on_diagonal(weights, offset)) for name, offset in offsets.items()}
    shares["sink"] = float(on_sink(weights))
    name = max(shares, key=shares.__getitem__)
    if shares[name] >= ENOUGH:
        return name
    if offsets is CROSS and confidence(weights) >= ENOUGH and spread(weights) >= 0.5:
        return "aligning"
    return "broad" if breadth(weights) >= 0.9 else "no pattern"


def kinds_of(maps: Mapping[str, Weights]) -> dict[str, list[str]]:
    """Return what each head of each map (H, T, S) does, by `kind_of`."""
    kinds = {}
    for name, heads in maps.items():
        own = ENCODER if name.startswith("encoder") else DECODER
        offsets = CROSS if name.endswith("cross_attention") else own
        kinds[name] = [kind_of(head, offsets) for head in heads]
    return kinds
