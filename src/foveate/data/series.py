"""Series of numbers over time: reading a CSV, dividing it in the order of time, calendar features.

Whatever is filled in is counted; a cell that is no number is named by file, line and column. Does
not live here: scaling (`foveate.data.scaling`), windows (`foveate.data.windows`).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from foveate.config import Config
from foveate.data.catalogue import DataError
from foveate.data.download import find

Dates = NDArray[np.datetime64]
Numbers = NDArray[np.float64]

MISSING = ("", "na", "nan", "null", "none", "?")  # cells, in small letters, that hold no value
SPLITS = ("train", "valid", "test")


class SeriesData(Config):
    """A CSV with a header, how its gaps are filled, and how it is divided in the order of time.

    ``rows`` are those of train, valid and test from the start of the file; ``shares`` of all rows
    are used where ``rows`` is absent.
    """

    path: str  # plain or .gz; relative to FOVEATE_DATA or the cache
    date: str | None = None  # the column of the dates; the first where absent
    values: tuple[str, ...] | None = None  # the columns of the values; all others where absent
    missing: Literal["error", "previous", "interpolate"] = "error"  # the last sees past the gap
    rows: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None
    shares: tuple[float, float, float] = Field((0.7, 0.1, 0.2))

    @pydantic.field_validator("shares")
    @classmethod
    def _whole(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError("shares of train, valid and test are at least 0 and at most 1 in all")
        return shares


@dataclass(frozen=True)
class Table:
    """Rows in the order of time: ``dates`` (N,) and ``values`` (N, C) of the named channels.

    ``filled`` counts the missing cells of each channel that were filled in.
    """

    file: str
    dates: Dates
    names: tuple[str, ...]
    values: Numbers
    filled: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dates)


# ------------------------------------------------------------------------------ reading


def read_table(data: SeriesData, path: str | Path | None = None) -> Table:
    """Read the file, or another with the same columns.

    Raises `DataError` naming file, line and column at a cell that is no number, a date that is none
    or not after the one before, a row of another width, or a missing value under ``"error"``.
    """
    file = find(data.path if path is None else path)
    lines = _rows(file)
    header = next(lines, (1, []))[1]
    date = _place(file, header, data.date) if data.date else 0
    names = data.values or tuple(name for i, name in enumerate(header) if i != date)
    places = [_place(file, header, name) for name in names]
    if not places:
        raise DataError(f"{file}:1: the header names no column of values beside the dates")
    dates, values = list[np.datetime64](), list[list[float]]()
    for line, cells in lines:
        where = f"{file}:{line}"
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} cells; the header has {len(header)}")
        dates.append(_date(where, cells[date]))
        if len(dates) > 1 and dates[-1] <= dates[-2]:
            raise DataError(f"{where}: {cells[date]} is not after the row before it; sort the rows")
        values.append([_number(where, n, cells[i]) for n, i in zip(names, places, strict=True)])
    if not values:
        raise DataError(f"{file} has a header but no rows")
    numbers = np.array(values)
    filled = _fill(file, names, numbers, data.missing)
    return Table(str(file), np.array(dates), names, numbers, filled)


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row with its line in the file, from 1; empty lines are passed over."""
    number = 0
    try:
        with (
            gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream,
            io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text,
        ):
            reader = csv.reader(text, strict=True)
            for cells in reader:
                number = reader.line_num
                if cells:
                    yield number, [cell.strip() for cell in cells]
    except (EOFError, OSError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read after line {number}: {error}") from None


def _place(file: Path, header: list[str], name: str) -> int:
    if name not in header:
        raise DataError(f"{file}:1: no column {name!r}; there are: {', '.join(header)}")
    return header.index(name)


def parse_date(text: str) -> np.datetime64:
    """A month, a day or a time of ISO 8601. Raises `DataError` where it is none."""
    try:
        date = np.datetime64(text, "s")
        if not np.isnat(date):
            return date
    except ValueError:
        pass
    raise DataError(f"{text!r} is no date; write 2016-07-31 or 2016-07-31 23:00:00")


def _date(where: str, cell: str) -> np.datetime64:
    try:
        return parse_date(cell)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _number(where: str, name: str, cell: str) -> float:
    if cell.lower() in MISSING:
        return math.nan
    try:
        number = float(cell)
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise DataError(f"{where}: column {name!r}: {cell!r} is no number")
    return number


def _fill(file: Path, names: tuple[str, ...], values: Numbers, how: str) -> dict[str, int]:
    """Fill what is missing in place; gives the count of each channel that had gaps."""
    missing = np.isnan(values)
    if how == "error" and missing.any():
        row, channel = np.argwhere(missing)[0]
        raise DataError(
            f"{file}: column {names[channel]!r} has no value in row {row + 1} below the header "
            f"({missing.sum()} are missing in all); mend the file, or set "
            'task.series.missing = "previous" or "interpolate"'
        )
    rows = np.arange(len(values))
    for channel in np.flatnonzero(missing.any(axis=0)):
        gap, column = missing[:, channel], values[:, channel]
        if gap.all() or (how == "previous" and gap[0]):
            raise DataError(f"{file}: column {names[channel]!r} has nothing to fill row 1 with")
        before = np.maximum.accumulate(np.where(gap, 0, rows))
        linear = np.interp(rows, rows[~gap], column[~gap])
        values[:, channel] = linear if how == "interpolate" else column[before]
    counts = missing.sum(axis=0)
    return {name: int(n) for name, n in zip(names, counts, strict=True) if n}


# ------------------------------------------------------------------------------ time


def divide(length: int, data: SeriesData) -> dict[str, tuple[int, int]]:
    """First row and the row after the last of train, valid and test.

    Raises `DataError` where ``rows`` asks for more than there are, or training gets none.
    """
    sizes = data.rows or tuple(int(share * length + 1e-9) for share in data.shares)
    if sum(sizes) > length:
        raise DataError(
            f"task.series.rows asks for {sum(sizes):,} rows; {data.path} has {length:,}"
        )
    if not sizes[0]:
        raise DataError(f"{data.path}: no row is left for training")
    ends = np.cumsum((0, *sizes)).tolist()
    return {name: (ends[i], ends[i + 1]) for i, name in enumerate(SPLITS)}


def following(dates: Dates, count: int) -> Dates:
    """The next ``count`` dates: at equal months where the dates are, else at the usual step.

    Raises ``ValueError`` for fewer than two dates.
    """
    if len(dates) < 2:
        raise ValueError("one date shows no step of time; give at least two rows")
    months, ahead = dates.astype("M8[M]"), np.arange(1, count + 1)
    apart = np.diff(months).astype(int)
    rest = dates - months  # time since the start of the month
    if apart[0] > 0 and (apart == apart[0]).all() and (rest == rest[0]).all():
        return (months[-1] + ahead * apart[0]).astype("M8[s]") + rest[0]
    steps, counts = np.unique(np.diff(dates), return_counts=True)
    return dates[-1] + ahead * steps[counts.argmax()]


def labels(dates: Dates, like: Dates | None = None) -> list[str]:
    """Dates as text, without the part that is the same in all (or in all of another list)."""
    like = dates if like is None else like
    unit = next((u for u in ("M", "D", "m") if (like.astype(f"M8[{u}]") == like).all()), "s")
    return [str(date).replace("T", " ") for date in dates.astype(f"M8[{unit}]")]


def _since(dates: Dates, unit: str) -> NDArray[np.int64]:
    """Whole hours since midnight ("D"), days since the first of the month ("M"), …"""
    smaller = {"D": "h", "M": "D", "Y": "M"}[unit]
    return (dates.astype(f"M8[{smaller}]") - dates.astype(f"M8[{unit}]")).astype(np.int64)


# Each from −0.5 at its first value to 0.5 at its last (Zhou et al., 2021); the year is counted from
# the year 2000 in tens, so that it means the same in every file.
CALENDAR: dict[str, Callable[[Dates], Numbers]] = {
    "hour": lambda dates: _since(dates, "D") / 23 - 0.5,
    "weekday": lambda dates: (dates.astype("M8[D]").astype(np.int64) + 3) % 7 / 6 - 0.5,
    "day": lambda dates: _since(dates, "M") / 30 - 0.5,
    "month": lambda dates: _since(dates, "Y") / 11 - 0.5,
    "year": lambda dates: (dates.astype("M8[Y]").astype(np.int64) - 30) / 10,
}


def calendar(dates: Dates, names: tuple[str, ...]) -> NDArray[np.float32]:
    """The named features of each date, (N, F)."""
    features = np.zeros((len(dates), len(names)), dtype=np.float32)
    for i, name in enumerate(names):
        features[:, i] = CALENDAR[name](dates)
    return features
