"""Linear maps as the kernels read them: weights in panels of outputs, fp32 or int8."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from foveate.native.kernels import address, at, library
from foveate.native.shares import shared


class Packed(ctypes.Structure):
    """``Linear`` of ``kernels.c``: W x + b; it keeps the tensors that it points to."""

    _fields_ = (
        ("columns", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
    )


def pack(weight: Tensor, bias: Tensor | None, panel: int) -> Packed:
    """W (out, in) in fp32, in panels of so many outputs."""
    panels = _panels(weight.detach(), panel).transpose(1, 2).contiguous()  # (P, in, panel)
    return _packed(weight, [panels, _wide(bias, weight, panels.shape[0] * panel), None, None])


def pack_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, panel: int) -> Packed:
    """W = ``scale`` ⊙ ``weight``, whole numbers (out, in) and what one is worth in each row.

    ``in`` is a multiple of 4.
    """
    panels = _panels(weight, panel)
    wide = panels.shape[0] * panel
    fours = panels.unflatten(2, (-1, 4)).transpose(1, 2).contiguous()  # (P, in / 4, panel, 4)
    shift = 128 * panels.sum(dim=2, dtype=torch.int32).flatten()  # bytes are x + 128
    parts = [fours, _wide(bias, scale, wide), _wide(scale, scale, wide), shift]
    return _packed(weight, parts)


def mapped(packed: Packed, x: Tensor) -> Tensor:
    """W x + b by the kernels, (*B, in) to (*B, out), of fp32 that lies row by row."""
    kernels, size = library(), x.shape[-1]
    assert kernels is not None
    y, rows = x.new_empty(*x.shape[:-1], packed.rows), x.view(-1, size)
    made = y.view(-1, packed.rows)

    def some(first: int, count: int) -> None:
        room = x.new_empty(count * (size + 1))
        kernels.linear(address(packed), count, at(rows[first:]), at(made[first:]), at(room))

    shared(some, len(rows))
    return y


def _packed(weight: Tensor, parts: Sequence[Tensor | None]) -> Packed:
    made = Packed(weight.shape[1], weight.shape[0], *map(at, parts))
    made.kept = parts  # as long as the pointers
    return made


def _panels(weight: Tensor, panel: int) -> Tensor:
    """(out, in) -> (P, panel, in), zeros after the last output."""
    missing = -len(weight) % panel
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)).view(-1, panel, weight.shape[1])


def _wide(values: Tensor | None, like: Tensor, size: int) -> Tensor:
    """The values with zeros after them; zeros where there are none."""
    wide = torch.zeros(size, dtype=torch.float32)
    if values is not None:
        wide[: len(values)] = values.detach()
    return wide
