"""Dropout by random bytes, and the residual sum that it stands in, in one pass over the numbers."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from foveate.native.kernels import address, at, fits_either, library


class _Numbers(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("half", ctypes.c_int32))


def dropped(
    change: Tensor, random: Tensor, drop: int, dtype: torch.dtype, x: Tensor | None = None
) -> Tensor:
    """X + m ⊙ change · 256 / (256 − d), m being 1 where a random byte is at least d.

    ``random`` has a byte for each number of ``change``; the sum has type ``dtype``.
    """
    kernels = library()
    if kernels is None or not all(fits_either(each) for each in (change, x) if each is not None):
        kept = random.view(change.shape) >= drop
        change = (change.float() * (256 / (256 - drop))).mul_(kept)
        return (change if x is None else x + change).to(dtype)
    change = change.contiguous()
    x = x if x is None else x.contiguous()
    y = torch.empty_like(change, dtype=dtype)
    of = [None if t is None else _Numbers(at(t), _half(t)) for t in (x, change, y)]
    left, middle, right = (None if each is None else address(each) for each in of)
    threads = torch.get_num_threads()
    kernels.dropout(change.numel(), left, middle, at(random), drop, right, threads)
    return y


def _half(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16
