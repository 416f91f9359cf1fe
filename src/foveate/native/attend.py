"""Attention of short sequences as one native call forward and one back; see ``attend.h``."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foveate.native.kernels import address, at, fits_either, library

_SIZES = ("batch", "heads", "queries", "keys", "size", "values")


class _Heads(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("text", "head", "row")),
    )


class _Attend(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("half", "threads")),
        *(
            (name, _Heads)
            for name in ("q", "k", "v", "y", "weights", "mask", "dy", "dq", "dk", "dv")
        ),
    )


class Attend(torch.autograd.Function):
    """Queries (B, H, T, K), keys, values (B, H, S, V), additive mask (B or 1, 1, T or 1, S).

    Gives the mixture (B, H, T, V), which lies in memory as (B, T, H, V).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        query, key, value = map(_rowwise, (query, key, value))
        if mask is not None:
            mask = _rowwise(mask.float()).expand(len(query), 1, query.shape[2], -1)
        weights = query.new_empty(*query.shape[:3], key.shape[2])
        mixed = _laid_out(query, value)
        _run(query, key, value, scale, y=mixed, weights=weights, mask=mask)
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        grads = _laid_out(query, query), _laid_out(key, key), _laid_out(value, value)
        names = dict(zip(("dq", "dk", "dv"), grads, strict=True))
        _run(query, key, value, ctx.scale, weights=weights, dy=_rowwise(grad), **names)
        return (*grads, None, None)


def attends(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel reads such tensors."""
    alike = query.dtype == key.dtype == value.dtype
    return alike and fits_either(query) and library() is not None


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float, **more: Tensor | None) -> None:
    kernels = library()
    assert kernels is not None
    of = _Attend(*query.shape[:3], key.shape[2], key.shape[3], value.shape[3], scale)
    of.half, of.threads = query.dtype == torch.bfloat16, torch.get_num_threads()
    for name, x in {"q": query, "k": key, "v": value, **more}.items():
        if x is not None:
            setattr(of, name, _Heads(at(x), *x.stride()[:3]))
    kernels.attend_heads(address(of))


def _rowwise(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _laid_out(like: Tensor, size: Tensor) -> Tensor:
    """Room for (B, H, T, size) where the heads of a place lie side by side."""
    batch, heads, places = like.shape[:3]
    return like.new_empty(batch, places, heads, size.shape[3]).transpose(1, 2)
