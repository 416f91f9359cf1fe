"""Dropout by random bytes, and the residual sum that it stands in, in one pass over the numbers."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from foveate.native.kernels import address, at, fits_either, library


class _Numbers(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("half", ctypes.c_int32))


def dropped(
    change: Tensor, seed: int, drop: int, dtype: torch.dtype, x: Tensor | None = None
) -> Tensor:
    """X + m ⊙ change · 256 / (256 − d), m being 1 where a random byte is at least d.

    Seed and place decide the byte; the sum has type ``dtype``.
    """
    kernels = library()
    if kernels is None or not all(fits_either(each) for each in (change, x) if each is not None):
        kept = random_bytes(seed, change.numel()).view(change.shape) >= drop
        change = (change.float() * (256 / (256 - drop))).mul_(kept)
        return (change if x is None else x + change).to(dtype)
    change = change.contiguous()
    x = x if x is None else x.contiguous()
    y = torch.empty_like(change, dtype=dtype)
    of = [None if t is None else _Numbers(at(t), _half(t)) for t in (x, change, y)]
    left, middle, right = (None if each is None else address(each) for each in of)
    threads = torch.get_num_threads()
    kernels.dropout(change.numel(), left, middle, seed, drop, right, threads)
    return y


def random_bytes(seed: int, count: int) -> Tensor:
    """The first bytes of splitmix64 (Steele et al., 2014), eight of each word: (N) of uint8."""
    words = torch.arange(1, (count + 7) // 8 + 1) * (0x9E3779B97F4A7C15 - 2**64) + seed
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = _folded(words, shift) * (factor - 2**64)
    return _folded(words, 31).view(torch.uint8)[:count]


def _folded(words: Tensor, shift: int) -> Tensor:
    return words ^ (words >> shift & (1 << 64 - shift) - 1)


def _half(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16
