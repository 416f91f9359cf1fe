"""Opening files of tensors that a stranger may have written: bounded, and never unpickled.

    8 bytes     N, the length of the header (unsigned, little-endian)
    N bytes     the header, JSON: for each tensor its dtype, shape and place
    the rest    the tensors

Lives here: what a safetensors file must be before it is opened, and errors that name it. Offsets
that overlap or exceed the file are found by the library that reads it. Does not live here: which
tensors a model wants (`foveate.train.checkpoint`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from foveate.train.files import DamagedError

HEADER = 16 * 2**20  # bytes at most; a tensor takes about 100, so 160,000 tensors
FOREIGN = {b"PK": "a ZIP archive", b"\x80": "a pickle", b"\x1f\x8b": "packed by gzip"}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A file of tensors, open for reading as by ``safetensors.safe_open``.

    Raises `DamagedError` that names the file where it is missing, of another kind, cut off, or
    damaged. A header is read into memory only if it is not too long.
    """
    _check(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedError(f"{path} is no sound safetensors file ({error})") from None


@dataclass(frozen=True)
class Size:
    """How many tensors a file has, and how many numbers they hold together."""

    tensors: int
    numbers: int

    def __str__(self) -> str:
        return f"the weights are {self.numbers:,} numbers in {self.tensors:,} tensors"


def size_of(file: Any) -> Size:
    """The size of an open file, by its header."""
    shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return Size(len(shapes), sum(map(math.prod, shapes)))


def _check(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    length = int.from_bytes(head, "little")
    if len(head) == 8 and length <= min(size - 8, HEADER):
        return
    why = f"it has {size:,} bytes, and its header would have {length:,}"
    if len(head) == 8 and length <= size - 8:
        why = f"its header has {length:,} bytes, and {HEADER:,} are the most that is read"
    for begin, kind in FOREIGN.items():
        if head.startswith(begin) and length > size:
            why = f"it looks like {kind}, which is never opened, for it could run any code"
    raise DamagedError(f"{path} is no safetensors file: {why}")
