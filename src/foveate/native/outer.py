"""Σ_n g_n x_nᵀ and Σ_n g_n: the gradients of a linear map's weight and bias; see ``outer.h``."""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.native.kernels import address, at, library

EVEN = 256  # rows of a product: a library makes a kernel for each shape that it meets


class _Outer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "out", "columns")),
        *((name, ctypes.c_void_p) for name in ("g", "x", "sums", "sum")),
        ("threads", ctypes.c_int32),
    )


def outer(grad: Tensor, x: Tensor, alone: bool = False) -> tuple[Tensor, Tensor | None]:
    """Σ_n g_n x_nᵀ of rows in bf16, (N, O), (N, I) -> (O, I), and if asked for Σ_n g_n, in fp32."""
    grad, x = grad.contiguous(), x.contiguous()
    kernels = library() if grad.dtype == x.dtype == torch.bfloat16 else None
    if kernels is not None and x.device.type == "cpu" and len(x):
        sums, sum = x.new_empty(grad.shape[1], x.shape[1], dtype=torch.float32), None
        if alone:
            sum = sums.new_empty(grad.shape[1])
        sizes = (*grad.shape, x.shape[1])
        of = _Outer(*sizes, at(grad), at(x), at(sums), at(sum), torch.get_num_threads())
        if kernels.outer(address(of)):
            return sums, sum
    return _outer(grad, x), grad.sum(dim=0).float() if alone else None


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    whole = len(x) // EVEN * EVEN
    if whole == 0:
        return (grad.T @ x).float()
    product = (grad[:whole].T @ x[:whole]).float()
    rest = len(x) - whole
    if rest:  # with zeros for the rows that have been
        grad, x = (F.pad(rows[whole:], (0, 0, 0, EVEN - rest)) for rows in (grad, x))
        product += grad.T @ x
    return product
