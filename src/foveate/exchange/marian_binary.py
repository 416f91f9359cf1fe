"""Marian's binary files: ``model.ENFR.intgemm.alphas.bin``, as Firefox ships its translators.

A file is a version, the number of tensors, their headers, names and shapes, and their data:

    1, n | n × (name length, type, axes, data length) | names | shapes | gap | gap bytes | data

Lengths are of eight bytes, shapes of four. An int8 matrix Q is stored by columns, a table of pieces
by rows; behind it follows its multiplier q, so that W = Q / q. Nothing in a file is executed.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foveate.exchange.base import ExchangeError

Array = NDArray[np.float32] | NDArray[np.int8]
HEADER = np.dtype([(length, "<u8") for length in ("name", "type", "axes", "data")])
TABLES = ("Wemb", "encoder_Wemb", "decoder_Wemb")  # int8 as they are, other matrices transposed
FLOAT32, INT8 = 0x404, 0x101
INTGEMM8 = 0x10001, 0x4101  # of Marian, and of the fork that Firefox has


def read_binary(path: Path) -> dict[str, Array]:
    """Return the tensors in a binary file of Marian, in fp32, and its options as bytes.

    Raises ``ValueError`` for a damaged file or an unsupported type, `ExchangeError` for a table of
    the output alone in int8.
    """
    content, offset = path.read_bytes(), 0

    def take(count: int, kind: DTypeLike = "<u8") -> NDArray[Any]:
        nonlocal offset
        size = int(count) * np.dtype(kind).itemsize
        if size > len(content) - offset:
            raise ValueError(f"it ends before the {size:,} bytes that follow byte {offset:,}")
        values = np.frombuffer(content, kind, count, offset)
        offset += values.nbytes
        return values

    version, count = take(2)
    if version != 1:
        raise ValueError(f"it begins with {version}, not with 1, the version of such files")
    headers = take(count, HEADER)
    names = [bytes(take(length, "u1")).rstrip(b"\0").decode() for length in headers["name"]]
    shapes = [take(axes, "<i4").tolist() for axes in headers["axes"]]
    take(take(1)[0], "u1")
    parts = [take(length, "u1") for length in headers["data"]]
    for name, kind in zip(names, headers["type"], strict=True):
        if name.endswith("_Wt") and kind in INTGEMM8:
            raise ExchangeError(
                f"{path}: {name} is an int8 table of the output alone, which is not supported; "
                "import the model.npz that marian-conv made it of"
            )
    return {
        name: _array(name, shape, kind, data)
        for name, shape, kind, data in zip(names, shapes, headers["type"], parts, strict=True)
        if not name.endswith("_QuantMultA")  # multiplies the inputs of int8 products
    }


def _array(name: str, shape: list[int], kind: int, data: NDArray[np.uint8]) -> Array:
    """Return a tensor from its data, of which the end may be unused."""
    size = prod(shape)
    needed = size * (4 if kind == FLOAT32 else 1) + 4 * (kind in INTGEMM8)
    if min(shape, default=0) < 1 or needed > len(data):
        raise ValueError(f"{name} has the shape {shape}, but {len(data):,} bytes")
    if kind == FLOAT32:
        return np.frombuffer(data, "<f4", size).reshape(shape).copy()
    if kind not in (INT8, *INTGEMM8):
        raise ValueError(f"{name} has the type {kind:#x}: expected float32, int8 or intgemm8")
    whole = np.frombuffer(data, np.int8, size)
    if kind == INT8:
        return whole
    (multiplier,) = np.frombuffer(data, "<f4", 1, size)
    if not (len(shape) == 2 and np.isfinite(multiplier) and multiplier > 0):
        raise ValueError(f"{name} has the shape {shape} and the multiplier {multiplier}")
    matrix = whole.reshape(shape) if name in TABLES else whole.reshape(shape[::-1]).T
    return matrix.astype(np.float32) / multiplier
