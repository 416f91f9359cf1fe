"""Linear maps in bf16 on a CPU: products of few shapes, however many rows a batch has.

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
from torch.autograd.function import once_differentiable

from foveate.native.bias import add_bias_
from foveate.native.outer import EVEN, outer
from foveate.nn.reduced import reduced


class _Map(torch.autograd.Function):
    """Y = f(X Wᵀ + b), f the identity or ReLU; dX = G W, dW = Gᵀ X, db = Σ_n g_n, G being dY ⊙ f'.

    W and b are fp32, X is bf16.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        y = x.new_empty(len(rows), len(weight))
        for some in spans(len(rows)):
            torch.mm(rows[some], weight.T, out=y[some])
        add_bias_(y, bias, relu)
        ctx.save_for_backward(rows, weight, y if relu else None)
        ctx.shape = x.shape
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, y = ctx.saved_tensors
        grad = grads[0].reshape(len(rows), -1)
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        dx = torch.empty_like(rows) if of_x else None
        if dx is not None:
            for some in spans(len(rows)):
                torch.mm(grad[some], weight, out=dx[some])
        dw, db = outer(grad, rows, of_bias) if of_weight or of_bias else (None, None)
        return None if dx is None else dx.view(ctx.shape), dw, db, None


def spans(count: int) -> list[slice]:
    """Some rows and the last `EVEN`, which may overlap."""
    whole = count // EVEN * EVEN
    if whole in (0, count):
        return [slice(0, count)]
    return [slice(0, whole), slice(count - EVEN, count)]


class Linear(nn.Linear):
    """W x + b; under autocast to bf16 on a CPU with products of few shapes."""

    def forward(self, x: Float[Tensor, "*B I"], relu: bool = False) -> Float[Tensor, "*B O"]:
        """W x + b, or with ``relu`` what is positive of it."""
        x = reduced(x)
        if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not torch.is_grad_enabled():
            y = super().forward(x)
            return F.relu(y) if relu else y
        y = _Map.apply(x, self.weight, self.bias, relu)  # type: ignore[no-untyped-call]
        return y
