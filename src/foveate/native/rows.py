"""Rows of scores: log Σ exp and the highest, which a search asks for; the cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from foveate.native.kernels import at, fits, fits_either, library
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


def cross_entropy_(
    logits: Tensor, target: Tensor, smoothing: float, grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Log Σ_v exp z_v − (1 − α) z_y − α mean z of each row, and −log p(y): (N, V) -> (N), (N).

    With ``grad`` the logits' place is taken by the gradient p − (1 − α) onehot_y − α/V.
    """
    kernels = library() if fits_either(logits) and logits.is_contiguous() else None
    if kernels is None:
        return _cross_entropy_(logits, target, smoothing, grad)
    loss, nll = torch.empty(2, len(logits))
    half, threads = logits.dtype == torch.bfloat16, torch.get_num_threads()
    kernels.cross_entropy(
        at(logits), half, *logits.shape, at(target), smoothing, at(loss), at(nll), threads
    )
    return loss, nll


def _cross_entropy_(
    logits: Tensor, target: Tensor, smoothing: float, grad: bool
) -> tuple[Tensor, Tensor]:
    z = logits.float()
    picked = z.gather(1, target[:, None])
    top = z.amax(dim=1, keepdim=True)
    mean = z.mean(dim=1, keepdim=True) if smoothing else picked
    odds = z.sub_(top).exp_()
    mass = odds.sum(dim=1, keepdim=True)
    log_z = mass.log() + top
    nll = log_z - picked
    loss = (1 - smoothing) * nll + smoothing * (log_z - mean)
    if grad:
        odds.div_(mass)
        if smoothing:
            odds.sub_(smoothing / odds.shape[1])
        odds.scatter_add_(1, target[:, None], odds.new_full((len(target), 1), smoothing - 1))
        if odds is not logits:
            logits.copy_(odds)
    return loss.squeeze(1), nll.squeeze(1)
