"""Linear maps whose bf16 products on a CPU have few shapes, however many rows a batch has.

A library makes a kernel for each shape of matrices that it meets, which takes as long as some
products and stays in memory. So most rows go in one product of a multiple of `EVEN`, and the last
`EVEN` in one more; the rows that both have come out alike.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from foveate.nn.reduced import reduced

EVEN = 256


class _Map(torch.autograd.Function):
    """Y = X Wᵀ + b with dX = G W, dW = Gᵀ X, db = Σ_n g_n; W and b are fp32, X is bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        y = x.new_empty(len(rows), len(weight))
        for some in spans(len(rows)):
            if bias is None:
                torch.mm(rows[some], weight.T, out=y[some])
            else:
                torch.addmm(bias.to(x.dtype), rows[some], weight.T, out=y[some])
        ctx.save_for_backward(rows, weight)
        ctx.shape = x.shape
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad = grads[0].reshape(len(rows), -1)
        of_x, of_weight, of_bias = ctx.needs_input_grad
        dx = torch.empty_like(rows) if of_x else None
        if dx is not None:
            for some in spans(len(rows)):
                torch.mm(grad[some], weight, out=dx[some])
        dw = _product_of_columns(grad, rows) if of_weight else None
        db = grad.sum(dim=0).float() if of_bias else None
        return None if dx is None else dx.view(ctx.shape), dw, db


def spans(count: int) -> list[slice]:
    """Some rows and the last `EVEN`, which may overlap."""
    whole = count // EVEN * EVEN
    if whole in (0, count):
        return [slice(0, count)]
    return [slice(0, whole), slice(count - EVEN, count)]


def _product_of_columns(left: Tensor, right: Tensor) -> Tensor:
    """Σ_n left_n right_nᵀ in fp32, (N, I), (N, J) -> (I, J)."""
    whole = len(left) // EVEN * EVEN
    if whole == 0:
        return (left.T @ right).float()
    product = (left[:whole].T @ right[:whole]).float()
    rest = len(left) - whole
    if rest:  # with zeros for the rows that have been
        left, right = (F.pad(x[whole:], (0, 0, 0, EVEN - rest)) for x in (left, right))
        product += left.T @ right
    return product


class Linear(nn.Linear):
    """W x + b; under autocast to bf16 on a CPU with products of few shapes."""

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        x = reduced(x)
        if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not torch.is_grad_enabled():
            return super().forward(x)
        y: Tensor = _Map.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return y
