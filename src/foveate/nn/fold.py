"""Hypotheses that share the keys of their source, folded into the queries of one row."""

from __future__ import annotations

from torch import Tensor


def repeat(x: Tensor | None, steps: int, rows: int) -> Tensor | None:
    """(B, 1, T or 1, S) -> (B, 1, n·T, S): the same for each of the n hypotheses of a source."""
    if x is None or x.shape[2] == rows or x.shape[2] == 1:
        return x
    return x.repeat(1, 1, rows // steps, 1)


def fold(x: Tensor, rows: int) -> Tensor:
    """(M·n, H, T, K) -> (M, H, n·T, K)."""
    if len(x) == rows:
        return x
    return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def unfold(x: Tensor, steps: int) -> Tensor:
    """(M, H, n·T, K) -> (M·n, H, T, K)."""
    if x.shape[2] == steps:
        return x
    return x.unflatten(2, (-1, steps)).transpose(1, 2).flatten(0, 1)
