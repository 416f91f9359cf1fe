"""Dropout whose masks are cheap on a CPU: one random 64-bit integer decides eight elements.

The integers follow from a seed and the place, so that no mask is kept for the way back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from foveate.native.dropout import dropped


class _ByteDropout(torch.autograd.Function):
    """y = x + m ⊙ change / (1 − p̂); keeps the seed of m."""

    @staticmethod
    def forward(ctx: Any, change: Tensor, drop: int, x: Tensor | None) -> Tensor:
        seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
        ctx.seed, ctx.drop, ctx.dtype, ctx.sum = seed, drop, change.dtype, x is not None
        wide = change.dtype if x is None else torch.promote_types(change.dtype, x.dtype)
        return dropped(change, seed, drop, wide, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor | None]:
        grad = grads[0]
        return dropped(grad, ctx.seed, ctx.drop, ctx.dtype), None, grad if ctx.sum else None


class Dropout(nn.Module):
    """Each element is zeroed with probability p and the rest scaled by 1/(1 − p) in training.

    On a CPU p is rounded down to a multiple of 1/256, so that a random byte decides; elsewhere
    PyTorch's own kernel is used.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, change: Tensor, x: Tensor | None = None) -> Tensor:
        """The change with dropout, added to ``x`` where that is given."""
        drop = int(256 * self.p)
        if self.training and drop and change.device.type == "cpu":
            y: Tensor = _ByteDropout.apply(change, drop, x)  # type: ignore[no-untyped-call]
            return y
        if self.training and drop:
            change = F.dropout(change, self.p)
        return change if x is None else x + change
