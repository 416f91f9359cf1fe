"""Rows of different lengths as one flat array and the places where each begins.

    row i = flat[offsets[i] : offsets[i + 1]]

Both arrays are files that the system maps into memory: a row is read when it is asked for, and what
a corpus costs in memory does not grow with it. Lives here: texts and token ids in such files, and
writing them piece by piece. Does not live here: which files belong together (`store`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row")
Places = NDArray[np.int64]


class Column(Sequence[Row], Generic[Row]):
    """Rows in two files of a folder, ``NAME.DTYPE`` and ``NAME.offsets``; all, or chosen ones."""

    def __init__(self, flat: NDArray[Any], offsets: Places, chosen: NDArray[Any] | None = None):
        """``flat`` (total,), ``offsets`` (rows + 1,), ``chosen`` the rows shown, in their order."""
        self.flat, self.offsets, self.chosen = flat, offsets, chosen

    @classmethod
    def open(cls, folder: Path, name: str) -> Self:
        """The column of that name that a `Writer` has left in a folder, mapped."""
        offsets = mapped(folder / f"{name}.offsets", np.dtype(np.int64))
        file = next(f for f in folder.glob(f"{name}.*") if f.suffix != ".offsets")
        return cls(mapped(file, np.dtype(file.suffix[1:])), offsets)

    @abstractmethod
    def _row(self, part: NDArray[Any]) -> Row:
        """What a part of the flat array stands for."""

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.chosen is None else len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]  # raises IndexError, counts from the end
        if self.chosen is not None:
            place = int(self.chosen[place])
        return self._row(self.flat[self.offsets[place] : self.offsets[place + 1]])

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same rows."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Self:
        """The rows of some indices, still in their files."""
        wanted = np.asarray(rows, dtype=indices_for(len(self.offsets)))
        chosen = wanted if self.chosen is None else self.chosen[wanted]
        return type(self)(self.flat, self.offsets, chosen)

    def lengths(self) -> Places:
        """The entries of each row, (N,): bytes of a text, tokens of a list of ids."""
        if self.chosen is None:
            return np.diff(self.offsets)
        return self.offsets[self.chosen + 1] - self.offsets[self.chosen]


class Texts(Column[str]):
    """Texts, as UTF-8."""

    def _row(self, part: NDArray[Any]) -> str:
        return part.tobytes().decode()


class TokenIds(Column[list[int]]):
    """Token ids, in the smallest integers that hold them."""

    def _row(self, part: NDArray[Any]) -> list[int]:
        return part.tolist()


class Writer:
    """Writes a column piece by piece; the files are whole when it is closed."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self.dtype, self.rows = dtype, 0
        self._end = 0
        self._flat: BinaryIO = (folder / f"{name}.{dtype.name}").open("wb")
        self._offsets: BinaryIO = (folder / f"{name}.offsets").open("wb")
        self._offsets.write(np.zeros(1, dtype=np.int64).tobytes())

    def add(self, flat: bytes | NDArray[Any], lengths: NDArray[np.integer]) -> None:
        """More rows: their entries one after the other, and how many each has."""
        self._flat.write(flat if isinstance(flat, bytes) else flat.astype(self.dtype).tobytes())
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self._offsets.write(ends.tobytes())
        self.rows += len(ends)
        self._end = int(ends[-1]) if len(ends) else self._end

    def add_texts(self, texts: Iterable[str]) -> int:
        """More rows of a column of texts; gives their bytes."""
        encoded = [text.encode() for text in texts]
        flat = b"".join(encoded)
        self.add(flat, np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return len(flat)

    def close(self) -> None:
        """Write what is still in memory."""
        self._flat.close()
        self._offsets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def lines_of(file: Path) -> Texts:
    """The lines of a file with their ends, its bytes in memory."""
    flat = np.fromfile(file, dtype=np.uint8)
    ends = np.flatnonzero(flat == ord("\n")) + 1
    rest = [len(flat)] if len(flat) > (ends[-1] if len(ends) else 0) else []
    return Texts(flat, np.concatenate(([0], ends, rest)).astype(np.int64))


def mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file of numbers as an array (N,) that the system reads as it is needed."""
    if not file.stat().st_size:
        return np.empty(0, dtype=dtype)
    return np.memmap(file, dtype=dtype, mode="r").view(np.ndarray)


def indices_for(count: int) -> np.dtype[Any]:
    """The smallest kind of number for indices below ``count``: 4 bytes up to 4 thousand million."""
    return np.dtype(np.uint32 if count <= 1 << 32 else np.int64)


def smallest(largest: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds ``largest``."""
    return np.dtype(np.min_scalar_type(largest))


def taken(rows: Sequence[Row], chosen: Sequence[int] | NDArray[np.integer]) -> Sequence[Row]:
    """Some rows of a list, or of a column and still in its files."""
    return rows.take(chosen) if isinstance(rows, Column) else [rows[i] for i in chosen]
