"""Marian's binary files: ``model.ENFR.intgemm.alphas.bin``, as Firefox ships its translators.

A file is a version, the number of tensors, their headers, names and shapes, and their data:

    1, n | n × (name length, type, axes, data length) | names | shapes | gap | gap bytes | data

Lengths are of eight bytes, shapes of four. An int8 matrix Q is stored by columns, a table of pieces
by rows; behind it follows its multiplier q, so that W = Q / q. Nothing in a file is executed.
"""

from __future__ import annotations

import mmap
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.exchange.base import ExchangeError

Array = NDArray[np.float32] | NDArray[np.int8]
TABLES = ("Wemb", "encoder_Wemb", "decoder_Wemb")  # int8 as they are, other matrices transposed
FLOAT32, INT8 = 0x404, 0x101
INTGEMM8 = 0x10001, 0x4101  # of Marian, and of the fork that Firefox has
WIDTHS = {FLOAT32: 4, INT8: 1, **dict.fromkeys(INTGEMM8, 1)}  # types, and the bytes of a number
SCALES = "_QuantMultA"  # what Firefox multiplies inputs of int8 products with; fp32 needs none


class Header(NamedTuple):
    """The lengths of a tensor's parts, and its type."""

    name: int
    type: int
    axes: int
    data: int


class Cursor:
    """A place in a file, from which parts are read that must all be inside."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self.content, self.place = content, 0

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises ``ValueError`` if the file has fewer."""
        if not 0 <= count <= len(self.content) - self.place:
            raise ValueError(f"it ends before the {count:,} bytes that follow byte {self.place:,}")
        self.place += count
        return self.content[self.place - count : self.place]

    def numbers(self, count: int, kind: str = "<u8") -> list[int]:
        """Return the next integers."""
        values: list[int] = np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind).tolist()
        return values


def read_binary(path: Path) -> dict[str, Array]:
    """Return the tensors in a binary file of Marian, in fp32, and its options as bytes.

    Raises ``ValueError`` for a damaged file, `ExchangeError` for an unsupported type.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        cursor = Cursor(content)
        version, count = cursor.numbers(2)
        if version != 1:
            raise ValueError(f"it begins with {version}, not with 1, the version of such files")
        fields = cursor.numbers(4 * count)
        headers = [Header(*fields[4 * n : 4 * n + 4]) for n in range(count)]
        names = [cursor.take(header.name).rstrip(b"\0").decode() for header in headers]
        shapes = [cursor.numbers(header.axes, "<i4") for header in headers]
        cursor.take(*cursor.numbers(1))
        arrays: dict[str, Array] = {}
        for name, shape, header in zip(names, shapes, headers, strict=True):
            if header.type not in WIDTHS:
                raise ExchangeError(
                    f"{path}: {name} has the type {header.type:#x}, which is not supported; "
                    "supported: float32, int8 and intgemm8 (marian-conv --gemm-type intgemm8)"
                )
            data = cursor.take(header.data)
            if not name.endswith(SCALES):
                arrays[name] = _array(name, shape, header.type, data)
        return arrays


def _array(name: str, shape: list[int], kind: int, data: bytes) -> Array:
    """Return a tensor from its data, of which the end may be unused."""
    size = prod(shape)
    needed = size * WIDTHS[kind] + 4 * (kind in INTGEMM8)
    if min(shape, default=0) < 1 or needed > len(data):
        raise ValueError(f"{name} has the shape {shape}, but {len(data):,} bytes")
    if kind == FLOAT32:
        return np.frombuffer(data, "<f4", size).reshape(shape).copy()
    whole = np.frombuffer(data, np.int8, size)
    if kind == INT8:
        return whole
    (multiplier,) = np.frombuffer(data, "<f4", 1, size)
    if not (len(shape) == 2 and np.isfinite(multiplier) and multiplier > 0):
        raise ValueError(f"{name} has the shape {shape} and the multiplier {multiplier}")
    matrix = whole.reshape(shape) if name in TABLES else whole.reshape(shape[::-1]).T
    return matrix.astype(np.float32) / multiplier
