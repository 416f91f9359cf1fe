"""The selective scan as one native call forward and one back; see ``scan.h`` for the equations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foveate.native.kernels import address, at, library

NAMES = ("delta", "u", "a", "into", "out", "start")


class _Scan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "size")),
        *((name, ctypes.c_void_p) for name in NAMES),
    )


class Scan(torch.autograd.Function):
    """(Δ, u, a, B, C, h_0), fp32 and row by row, to y (B, T, E) and the last h (B, E, N)."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*given)
        y, last = torch.empty_like(given[1]), torch.empty_like(given[5])
        kernels = library()
        assert kernels is not None

        def part(some: slice) -> None:
            of = _of(given, some)
            room = torch.empty(of.steps + 1, of.size)
            kernels.scan(address(of), at(y[some]), at(last[some]), at(room))

        _in_parts(len(y), part)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        given = ctx.saved_tensors
        delta, _, a, into, _, _ = given
        dy, dstart = dy.contiguous(), dlast.clone(memory_format=torch.contiguous_format)
        ddelta, du = torch.empty_like(delta), torch.empty_like(delta)
        dinto, dout = torch.zeros_like(into), torch.zeros_like(into)
        das: list[Tensor] = []
        kernels = library()
        assert kernels is not None

        def part(some: slice) -> None:
            of, da = _of(given, some), torch.zeros_like(a)
            das.append(da)
            room = torch.empty(2 * of.steps + 1, of.size)
            arrays = (dy, dstart, ddelta, du, None, dinto, dout)
            places = [at(da if array is None else array[some]) for array in arrays]
            kernels.scan_backward(address(of), *places, at(room))

        _in_parts(len(dy), part)
        return ddelta, du, torch.stack(das).sum(dim=0), dinto, dout, dstart


def _of(given: tuple[Tensor, ...], some: slice) -> _Scan:
    """The same of some of the sequences; a is one for all."""
    parts = [each if name == "a" else each[some] for name, each in zip(NAMES, given, strict=True)]
    return _Scan(*parts[0].shape, parts[2].shape[1], *map(at, parts))


def _in_parts(batch: int, work: Callable[[slice], None]) -> None:
    """Do the work on as many parts of a batch as there are threads."""
    size = -(-batch // torch.get_num_threads()) or 1
    parts = [slice(first, min(first + size, batch)) for first in range(0, batch, size)]
    with ThreadPoolExecutor(len(parts) or 1) as threads:
        list(threads.map(work, parts))
