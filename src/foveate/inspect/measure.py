"""Figures of attention maps, and what kind of head made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]  # (..., T, S)
Figures = NDArray[np.float64]  # (...)
Judge = Callable[[Weights], Figures]


def entropy(weights: Weights) -> Figures:
    """How broad the attention of the rows is: mean over t of -Σ_s a_ts log2 a_ts, in bits.

    Shape: (..., T, S) to (...). 0 where a row has one key, log2 S where all keys are equal.
    """
    figures: Figures = _bits(weights).mean(axis=-1)
    return figures


def _bits(weights: Weights) -> Figures:
    """The entropy of each row, -Σ_s a_ts log2 a_ts."""
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    bits: Figures = -(safe * np.log2(safe)).sum(axis=-1)
    return bits


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
    """The key of each row's largest weight, the first of equals. (..., T, S) to (..., T)."""
    keys: NDArray[np.int64] = weights.argmax(axis=-1)
    return keys


# By the labels of a map: rows of a decoder's self-attention are words that are being produced, its
# columns words that were read, so the place of the last word read is that of the previous token.
CROSS = {"diagonal": 0}
ENCODER = {"same token": 0, "previous token": -1, "next token": 1}
DECODER = {"previous token": 0, "two tokens before": -1}
OTHERS = ("sink", "aligning", "broad", "no pattern", "silenced")
KINDS = (*dict.fromkeys((*CROSS, *ENCODER, *DECODER)), *OTHERS)
ENOUGH = 0.4  # mean weight on one place by which a head is called


def on_diagonal(weights: Weights, offset: int = 0) -> Figures:
    """Mean weight on the key at the same place as the query, or ``offset`` places further.

    Shape: (..., T, S) to (...). Where T ≠ S the place is t (S−1)/(T−1), rounded. Rows whose place
    lies outside are left out.
    """
    height, width = weights.shape[-2:]
    places = np.rint(np.arange(height) * (width - 1) / max(height - 1, 1)).astype(int) + offset
    rows = np.flatnonzero((places >= 0) & (places < width))
    if not len(rows):
        return np.zeros(weights.shape[:-2])
    figures: Figures = weights[..., rows, places[rows]].mean(axis=-1, dtype=np.float64)
    return figures


def on_sink(weights: Weights) -> Figures:
    """The largest mean weight of one key: near 1 where all rows attend to one key.

    Shape: (..., T, S) to (...).
    """
    figures: Figures = weights.mean(axis=-2, dtype=np.float64).max(axis=-1, initial=0.0)
    return figures


def breadth(weights: Weights) -> Figures:
    """Entropy of a row by the most that it could be over the keys that it may see: 0 to 1, mean.

    Shape: (..., T, S) to (...). A key of weight 0 counts as hidden; rows that see one key are left
    out.
    """
    seen = (weights > 0).sum(axis=-1)
    wide = seen > 1
    shares = np.where(wide, _bits(weights) / np.log2(np.where(wide, seen, 2)), 0)
    figures: Figures = shares.sum(axis=-1) / np.maximum(wide.sum(axis=-1), 1)
    return figures


def spread(weights: Weights) -> Figures:
    """Different keys of the largest weights, by how many are possible. (..., T, S) to (...)."""
    height, width = weights.shape[-2:]
    chosen = np.sort(alignment(weights), axis=-1)
    different = 1 + (np.diff(chosen, axis=-1) > 0).sum(axis=-1)
    figures: Figures = different / max(min(height, width), 1)
    return figures


def kind_of(weights: Weights, offsets: Mapping[str, int] = ENCODER) -> str:
    """What a head does, by its map (T, S): one of ``KINDS``, by a heuristic.

    The place that has most weight gives the name (``offsets`` are those of places from that of the
    row) where it has at least 40 %, and more than any one key has of all rows (else ``sink``, where
    that has 40 %). A head that crosses from a target to a source is ``aligning`` where rows are
    sure (their largest weight is 40 % on average) of at least half as many keys as there could be;
    any head is ``broad`` where its rows attend to their keys almost evenly (entropy 90 % of the
    most). A single row or a single key has ``no pattern``; without any weight it is ``silenced``.
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
    """What each head of each map (H, T, S) does, by `kind_of`."""
    kinds = {}
    for name, heads in maps.items():
        own = ENCODER if name.startswith("encoder") else DECODER
        offsets = CROSS if name.endswith("cross_attention") else own
        kinds[name] = [kind_of(head, offsets) for head in heads]
    return kinds
