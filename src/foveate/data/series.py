"""Series: reading tables of numbers, scaling, and cutting windows."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from foveate.config import BaseConfig, Config, Configurable
from foveate.data.catalogue import DataError, find
from foveate.data.text import Delimiter, delimiter_of, places_of
from foveate.errors import UserError

Dates = NDArray[np.datetime64]
Numbers = NDArray[np.float64]

MISSING = ("", "na", "nan", "null", "none", "?")  # cells, in small letters, that hold no value
SPLITS = ("train", "valid", "test")
DATED = 400  # rows that tell the form of the dates
SAMPLED = 100  # lines from which delimiter and decimal mark are detected
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
REGULAR = 0.9  # share of equal steps from which a longer one is a gap
HOLIDAYS = 7  # working days in a row that a calendar of working days may leave out


class SeriesData(Config):
    """A CSV with a header, how its gaps are filled, and how it is divided in the order of time.

    ``rows`` are those of train, valid and test from the start of the file; ``shares`` of all rows
    are used where ``rows`` is absent.
    """

    path: str  # CSV with a header, plain or .gz; relative to FOVEATE_DATA or the cache
    date: str | None = None  # the column of the dates; the first where absent
    date_format: str | None = None  # such as "%d/%m/%Y"; ISO 8601 where absent
    values: tuple[str, ...] | None = None  # the columns of the values; all others where absent
    missing: Literal["error", "previous", "interpolate"] = "error"
    """A cell without a value is an error, or filled in; "previous" does not see past the gap."""
    gaps: Literal["refuse", "split", "ignore"] = "refuse"  # split: no window spans missing rows
    delimiter: Delimiter | None = None  # between cells; detected where absent
    decimal: Literal[".", ","] | None = None  # of numbers; detected where absent
    rows: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None
    """Rows of train, valid and test, from the start of the file."""
    shares: tuple[float, float, float] = Field((0.7, 0.1, 0.2))
    """Of all rows for train, valid and test, where rows is absent."""

    @pydantic.field_validator("shares")
    @classmethod
    def _whole(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise UserError("shares of train, valid and test are at least 0 and at most 1 in all")
        return shares


@dataclass(frozen=True)
class SeriesTable:
    """Rows in the order of time: ``dates`` (N,) and ``values`` (N, C) of the named channels.

    ``filled`` counts the missing cells of each channel that were filled in; ``gaps`` (G,) are the
    rows before which rows are missing, none where gaps are ignored; ``lines`` (N,) are the lines of
    the rows in the file. ``delimiter`` and ``decimal`` are those of the file.
    """

    file: str
    dates: Dates
    names: tuple[str, ...]
    values: Numbers
    lines: NDArray[np.int64]
    filled: dict[str, int] = field(default_factory=dict)
    gaps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    delimiter: str = ","
    decimal: str = "."

    def __len__(self) -> int:
        return len(self.dates)

    def gap(self, row: int) -> str:
        """The gap before a row: file, line, the dates around it and the usual step."""
        before, after = labels(self.dates[row - 1 : row + 1], self.dates)
        return (
            f"{self.file}:{self.lines[row]}: rows are missing between {before} and {after}; "
            f"the usual step is {usual_step(self.dates)}"
        )


def read_table(data: SeriesData, path: str | Path | None = None) -> SeriesTable:
    """Read the file, or another with the same columns, and fill in what is missing.

    Raises `DataError` as `scan` does, at a missing value under ``missing = "error"``, and at
    missing rows under ``gaps = "refuse"``.
    """
    table = scan(data, path)
    if data.gaps == "refuse" and len(table.gaps):
        raise DataError(
            f"{table.gap(int(table.gaps[0]))} (gaps in all: {len(table.gaps)}); add the missing "
            'rows, or set task.series.gaps = "split" (no window spans a gap) or "ignore"'
        )
    filled = _fill(Path(table.file), table.names, table.values, data.missing)
    gaps = table.gaps[:0] if data.gaps == "ignore" else table.gaps
    return dataclasses.replace(table, filled=filled, gaps=gaps)


def scan(data: SeriesData, path: str | Path | None = None) -> SeriesTable:
    """Read the file as it is: missing values are NaN, gaps are listed, whatever the config says.

    Raises `DataError` naming file, line and column at a cell that is no number, a date that is none
    or not after the one before, or a row of another width.
    """
    file = find(data.path if path is None else path)
    delimiter, decimal = _notation(file, data)
    lines = _rows(file, delimiter)
    header = next(lines, (1, []))[1]
    try:
        date = places_of([data.date or 1], header)[0] if header else 0
        names = data.values or tuple(name for i, name in enumerate(header) if i != date)
        places = places_of(names, header)
    except UserError as error:
        raise DataError(f"{file}:1: {error}") from None
    if not places:
        raise DataError(f"{file}:1: the header names no column of values beside the dates")
    if twice := [name for name in names if isinstance(name, str) and header.count(name) > 1]:
        raise DataError(f"{file}:1: the header has {twice[0]!r} twice; rename one of the columns")
    dates, values, numbers = list[np.datetime64](), list[list[float]](), list[int]()
    for line, cells in lines:
        where = f"{file}:{line}"
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} cells; the header has {len(header)}")
        try:
            dates.append(parse_date(cells[date], data.date_format))
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if len(dates) > 1 and dates[-1] <= dates[-2]:
            raise DataError(f"{where}: {cells[date]} is not after the row before it; sort the rows")
        numbers.append(line)
        values.append(
            [_number(where, n, cells[i], decimal) for n, i in zip(names, places, strict=True)]
        )
    if not values:
        raise DataError(f"{file} has a header but no rows")
    when = np.array(dates)
    return SeriesTable(
        str(file),
        when,
        names,
        np.array(values),
        np.array(numbers, dtype=np.int64),
        gaps=gaps_of(when),
        delimiter=delimiter,
        decimal=decimal,
    )


def _rows(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with its line in the file, from 1; empty lines are passed over."""
    number = 0
    try:
        with _text(file) as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            for cells in reader:
                number = reader.line_num
                if cells:
                    yield number, [cell.strip() for cell in cells]
    except (EOFError, OSError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read after line {number}: {error}") from None


def _text(file: Path) -> IO[str]:
    opened = gzip.open if file.suffix == ".gz" else open
    return opened(file, "rt", encoding="utf-8-sig", newline="")


def _notation(file: Path, data: SeriesData) -> tuple[str, str]:
    """Delimiter and decimal mark of a file: those of the config, else those of its first lines.

    A comma is the decimal mark where cells such as ``1,5`` stand between other delimiters.
    """
    try:
        with _text(file) as text:
            first = list(itertools.islice(text, SAMPLED))
    except (EOFError, OSError, zlib.error, UnicodeDecodeError):
        first = []  # `_rows` says what is wrong
    delimiter = data.delimiter or delimiter_of(first)
    cells = (cell.strip(' "\r\n') for line in first for cell in line.split(delimiter))
    comma = delimiter != "," and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return delimiter, data.decimal or (",."[not comma])


def looks_like_series(file: Path) -> bool:
    """Whether a file is a CSV of dates and numbers, by its first rows."""
    if file.name.removesuffix(".gz").rpartition(".")[2] not in ("csv", "tsv"):
        return False
    try:
        return date_column(file) is not None
    except DataError as error:
        if "can be read as" in str(error):
            raise
        return False


def parse_date(text: str, form: str | None = None) -> np.datetime64:
    """A month, a day or a time of ISO 8601, or of a format of strptime.

    Raises `DataError` where it is none.
    """
    with contextlib.suppress(ValueError):
        date = np.datetime64(datetime.strptime(text, form) if form else text, "s")
        if not np.isnat(date):
            return date
    raise DataError(
        f"{text!r} is no date; write 2016-07-31 or 2016-07-31 23:00:00, or name its form in "
        'task.series.date_format, such as "%d/%m/%Y"'
    )


FORMS = [  # of dates that a stranger's table may have, beside ISO 8601
    date + time
    for date in ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d")
    for time in ("", " %H:%M", " %H:%M:%S")
]


def date_column(file: Path) -> tuple[str, str | None] | None:
    """The column of a table that holds dates in order, with their form; None where none does.

    Raises `DataError` where two forms fit, such as day and month either way round.
    """
    delimiter, decimal = _notation(file, SeriesData(path=str(file)))
    rows = [cells for _, cells in itertools.islice(_rows(file, delimiter), DATED)]
    header, *body = rows or [[]]
    body = [row for row in body if len(row) == len(header)]
    for place, name in enumerate(header):
        column = [row[place] for row in body]
        forms = [form for form in (None, *FORMS) if _in_order(column, form)]
        others = [cell for row in body[:5] for i, cell in enumerate(row) if i != place]
        if not forms or len(header) < 2 or not all(_is_number(cell, decimal) for cell in others):
            continue
        if len(forms) > 1:
            raise DataError(
                f"{file}: the dates of {name!r} can be read as {' and as '.join(map(str, forms))}: "
                "set task.series.date_format"
            )
        return name, forms[0]
    return None


def _in_order(cells: list[str], form: str | None) -> bool:
    """Whether cells are dates of a form, each after the one before."""
    if form is None and not all("-" in cell for cell in cells):
        return False  # a number alone is a year of ISO 8601
    try:
        dates = [parse_date(cell, form) for cell in cells]
    except DataError:
        return False
    return len(dates) > 1 and all(a < b for a, b in itertools.pairwise(dates))


def _is_number(cell: str, decimal: str) -> bool:
    try:
        _number("", "", cell, decimal)
    except DataError:
        return False
    return True


def _number(where: str, name: str, cell: str, decimal: str) -> float:
    if cell.lower() in MISSING:
        return math.nan
    try:
        number = float(cell if decimal == "." else cell.replace(".", "_.").replace(",", "."))
    except ValueError:
        number = math.inf
    if math.isinf(number):
        remedy = "name the columns of numbers in task.series.values"
        if DECIMAL_COMMA.fullmatch(cell):
            remedy = 'for a decimal comma set task.series.decimal = ","'
        elif decimal == ",":
            remedy = 'for a decimal point set task.series.decimal = "."'
        raise DataError(f"{where}: column {name!r}: {cell!r} is no number; {remedy}")
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


def gaps_of(dates: Dates) -> NDArray[np.int64]:
    """The rows before which rows are missing; none where the dates tell no regular steps.

    Steps are counted on the calendar that the dates themselves show (`_slots`), so that nights,
    weekends and left-out leap days are no gaps; else in seconds, give or take a half, so that
    months and years are equal steps.
    """
    if len(dates) < 3:
        return np.zeros(0, dtype=np.int64)
    slots, per_day, working = _slots(dates)
    steps = np.diff(slots)
    usual = _most_common(steps)
    if usual > 0 and (steps == usual).mean() >= REGULAR:
        missing = steps - usual
        closed = (missing % per_day == 0) & (missing <= HOLIDAYS * per_day) & working
        return np.flatnonzero((missing > 0) & ~closed) + 1
    seconds = np.diff(dates).astype(np.int64)
    ratio = seconds / np.median(seconds)
    if ((ratio > 0.5) & (ratio < 1.5)).mean() < REGULAR:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(ratio >= 1.5) + 1


def _slots(dates: Dates) -> tuple[NDArray[np.int64], int, bool]:
    """The place of each date on its calendar, the places of a day, whether it is of working days.

    The calendar has the times of day and the weekdays that occur. One that does not, though the
    dates pass it at least twice, is closed; so is a day of leap years that all of them lack.
    """
    days = dates.astype("M8[D]")
    seconds = (dates - days).astype(np.int64)
    times = np.unique(seconds)
    step = _most_common(np.diff(dates).astype(np.int64))
    span = (days[-1] - days[0]).astype(int)
    if span < 3 and 86_400 % step == 0:  # too short to tell that a time of day is closed
        times = np.unique(np.concatenate((times, np.arange(seconds[0] % step, 86_400, step))))
    open_days = _open_days(days)
    leap = _leap_days(days[0], days[-1])
    lacking = [same for same in leap if len(same) and not np.isin(same, days).any()]
    closed = lacking[0] if len(lacking) == 1 else days[:0]
    count = np.busday_count(days[0], days, weekmask=open_days.tolist(), holidays=closed)
    slots = count.astype(np.int64) * len(times) + np.searchsorted(times, seconds)
    return slots, len(times), 4 <= open_days.sum() <= 6


def _open_days(days: Dates) -> NDArray[np.bool_]:
    """The weekdays, from Monday, that occur among the days, or are passed less than twice."""
    weekdays = (days.astype(np.int64) + 3) % 7
    span = (days[-1] - days[0]).astype(int)
    passed = np.bincount((weekdays[0] + np.arange(span + 1)) % 7, minlength=7)
    open_days: NDArray[np.bool_] = np.isin(np.arange(7), weekdays) | (passed < 2)
    return open_days


def _leap_days(first: np.datetime64, last: np.datetime64) -> tuple[Dates, Dates]:
    """29 February and 31 December of the leap years: either is left out of years of 365 days."""
    years = np.arange(first.astype("M8[Y]"), last.astype("M8[Y]") + 1)
    days = years.astype("M8[D]") + 59  # 1 March where the year is no leap year
    leap = days.astype("M8[M]") == years.astype("M8[M]") + 1
    both = days[leap], (years[leap] + 1).astype("M8[D]") - 1
    february, december = (same[(first < same) & (same < last)] for same in both)
    return february, december


def _most_common(numbers: NDArray[np.int64]) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()])


def usual_step(dates: Dates) -> str:
    """The step of time that is most common, as text: ``1 hour``, ``1 month``, ``90 s``."""
    months = _most_common(np.diff(dates.astype("M8[M]")).astype(np.int64))
    if months > 0 and np.median(np.diff(dates).astype(np.int64)) > 27 * 86_400:
        number, unit = (months, "month") if months % 12 else (months // 12, "year")
    else:
        number, unit = _most_common(np.diff(dates).astype(np.int64)), "second"
        for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
            if number % size == 0:
                number, unit = number // size, name
                break
    return f"{number} {unit}{'s' * (number != 1)}"


def following(dates: Dates, count: int) -> Dates:
    """The next ``count`` dates: at equal months, from their start or their end, where the dates
    are; on working days where all of them are; else at the usual step.

    Raises `UserError` for fewer than two dates.
    """
    if len(dates) < 2:
        raise UserError("one date shows no step of time; give at least two rows")
    months, ahead = dates.astype("M8[M]"), np.arange(1, count + 1)
    apart = np.diff(months).astype(int)
    for edge in (months, months + 1):
        rest = dates - edge.astype("M8[s]")  # time since the start of the month, or to its end
        if apart[0] > 0 and (apart == apart[0]).all() and (rest == rest[0]).all():
            return (edge[-1] + ahead * apart[0]).astype("M8[s]") + rest[0]
    steps, counts = np.unique(np.diff(dates), return_counts=True)
    step, last = steps[counts.argmax()], dates[-1].astype("M8[D]")
    open_days = _open_days(dates.astype("M8[D]"))
    if step == np.timedelta64(1, "D") and 4 <= open_days.sum() <= 6:
        days = np.busday_offset(last, ahead, weekmask=open_days.tolist())
        return days.astype("M8[s]") + (dates[-1] - last)
    return dates[-1] + ahead * step


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
    features = [CALENDAR[name](dates) for name in names]
    return np.array(features, dtype=np.float32).reshape(len(names), len(dates)).T.copy()


class Scaling(Configurable):
    """z = (x − shift) / scale, both of each channel; a constant channel has scale 1."""

    class Config(BaseConfig, family="scaling"):
        """Which scaling."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shift: Numbers = np.zeros(0)
        self.scale: Numbers = np.ones(0)

    def fit(self, values: Numbers) -> None:
        """Take shift and scale from the training rows (N, C)."""
        self.shift, scale = self.of(values)
        self.scale = np.where(scale > 0, scale, 1.0)

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Shift and scale of each channel of (N, C)."""
        raise NotImplementedError

    def enter(self, values: Numbers) -> NDArray[np.float32]:
        """Scaled values (…, C)."""
        return ((values - self.shift) / self.scale).astype(np.float32)

    def leave(self, values: NDArray[np.float32]) -> Numbers:
        """Values (…, C) in their own units."""
        return values.astype(np.float64) * self.scale + self.shift


class Standard(Scaling):
    """Mean 0 and standard deviation 1 over the training rows."""

    class Config(Scaling.Config, kind="standard"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        return values.mean(axis=0), values.std(axis=0)


class MinMax(Scaling):
    """From 0 to 1 over the training rows; later rows may lie outside."""

    class Config(Scaling.Config, kind="min_max"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        low = values.min(axis=0)
        return low, values.max(axis=0) - low


class Unscaled(Scaling):
    """Values as they are."""

    class Config(Scaling.Config, kind="none"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])


Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """Each window reads ``look_back`` rows from its start and is asked for the ``horizon`` after.

    ``values`` (N, C) scaled, ``calendar`` (N, F), ``starts`` (M,) the first row of each window.
    """

    table: SeriesTable
    values: Floats
    calendar: Floats
    starts: NDArray[np.int64]
    look_back: int
    horizon: int

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Values read (B, L, C), calendar of all rows (B, L + H, F), values asked for (B, H, C)."""
        rows = self.starts[np.asarray(indices)][:, None] + np.arange(self.look_back + self.horizon)
        values = self.values[rows]
        return values[:, : self.look_back], self.calendar[rows], values[:, self.look_back :]

    def targets(self) -> Floats:
        """The values that all windows predict, (M, H, C)."""
        return self.values[self.starts[:, None] + self.look_back + np.arange(self.horizon)]

    def first_dates(self) -> Dates:
        """The date of the first row that each window predicts, (M,)."""
        return self.table.dates[self.starts + self.look_back]


def starts(
    rows: tuple[int, int], look_back: int, horizon: int, gaps: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Windows whose horizon lies in the rows [first, end); the look-back may lie before them.

    No window spans a gap: the rows before which ``gaps`` lie are in none but as its first.
    """
    first, end = rows
    starting = np.arange(max(0, first - look_back), end - look_back - horizon + 1, dtype=np.int64)
    if gaps is None or not len(gaps):
        return starting
    before = np.searchsorted(gaps, starting, side="right")  # gaps up to the first row of each
    within = np.searchsorted(gaps, starting + look_back + horizon - 1, side="right")
    return starting[before == within]
