"""Dropout whose masks are cheap on a CPU: one random 64-bit integer decides eight elements."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _ByteDropout(torch.autograd.Function):
    """y = m ⊙ x / (1 − p̂); keeps the mask m, one byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: int) -> Tensor:
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
        words.random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= drop
        ctx.save_for_backward(kept)
        ctx.scale = 256 / (256 - drop)
        return (x * ctx.scale).mul_(kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (grads[0] * ctx.scale).mul_(kept), None


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

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        drop = int(256 * self.p)
        return x if drop == 0 else _ByteDropout.apply(x, drop)  # type: ignore[no-untyped-call]
