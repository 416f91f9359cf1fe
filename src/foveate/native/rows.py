"""What a search asks of rows of scores: log Σ exp, and the highest."""

from __future__ import annotations

import torch
from torch import Tensor

from foveate.native.kernels import at, fits, library

BLOCK = 64  # scores of which the kernel keeps one maximum


def log_sum_exp(scores: Tensor) -> Tensor:
    """Log Σ_v exp z_v of each row, (N, V) -> (N, 1); −∞ where all are."""
    kernels = library() if fits(scores) else None
    if kernels is None:
        return scores.logsumexp(dim=1, keepdim=True)
    found = scores.new_empty(len(scores), 1)
    kernels.log_sum_exp(at(scores), *scores.shape, at(found))
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
    maxima = scores.new_empty(size // BLOCK + 1)
    kernels.highest(at(scores), rows, size, count, at(values), at(columns), at(maxima))
    return values, columns
