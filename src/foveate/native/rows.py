"""What a search asks of rows of scores: log Σ exp, and the highest."""

from __future__ import annotations

import torch
from torch import Tensor

from foveate.native.kernels import at, fits, library
from foveate.native.shares import shared

BLOCK = 64  # scores of which the kernel keeps one maximum


def log_sum_exp(scores: Tensor) -> Tensor:
    """Log Σ_v exp z_v of each row, (N, V) -> (N, 1); −∞ where all are."""
    kernels = library() if fits(scores) else None
    if kernels is None:
        return scores.logsumexp(dim=1, keepdim=True)
    found = scores.new_empty(len(scores), 1)

    def some(first: int, count: int) -> None:
        kernels.log_sum_exp(at(scores[first:]), count, scores.shape[1], at(found[first:]))

    shared(some, len(scores))
    return found


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest of each row, best first, (N, V) -> (N, c) values and columns."""
    kernels = library() if fits(scores) else None
    if kernels is None or count > BLOCK:
        values, columns = scores.topk(count, dim=1)
        return values, columns
    rows, size = scores.shape
    values = scores.new_empty(rows, count)
    columns = torch.empty(rows, count, dtype=torch.long)

    def some(first: int, some_rows: int) -> None:
        maxima = torch.empty(size // BLOCK + 1)
        z, value, column = (at(part[first:]) for part in (scores, values, columns))
        kernels.highest(z, some_rows, size, count, value, column, at(maxima))

    shared(some, rows)
    return values, columns
