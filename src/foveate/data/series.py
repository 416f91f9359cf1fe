"""Series: reading tables of numbers, scaling, and cutting windows."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from foveate.config import BaseConfig, Config, Configurable
from foveate.data.catalogue import DataError, find
from foveate.data.notation import (
    TIME,
    WHEN,
    Notation,
    amount_like,
    ascends,
    dates_of,
    disorder,
    forms_of,
    has_offset,
    number_of,
    parse_date,
)
from foveate.data.text import BadLine, CSVFile, Delimiter, ending_of, places_of
from foveate.errors import UserError

Dates = NDArray[np.datetime64]
Numbers = NDArray[np.float64]

SPLITS = ("train", "valid", "test")
DATED = 400  # rows from which the date format is detected
REGULAR = 0.9  # share of equal steps above which a longer one is a gap
HOLIDAYS = 7  # consecutive working days that a working-day calendar may omit


class SeriesData(Config):
    """A CSV with a header, how its gaps are filled, and how it is divided in the order of time."""

    path: str  # CSV with a header, plain or .gz; relative to FOVEATE_DATA or the cache
    date: str | None = None  # the column of the dates; the first where absent
    date_format: str | None = None
    """Such as "%d/%m/%Y", "unix" or "unix_ms" (seconds since 1970); ISO 8601 where absent."""
    values: tuple[str, ...] | None = None  # the columns of the values; all others where absent
    unit: str = ""  # of the values, written beside their axis
    missing: Literal["error", "previous", "interpolate"] = "error"
    """A cell without a value is an error, or filled in; "previous" does not see past the gap."""
    gaps: Literal["refuse", "split", "ignore"] = "refuse"  # split: no window spans missing rows
    repeated: Literal["error", "first", "last", "mean"] = "error"
    """Which of the rows with one date counts, as of the hour that is doubled by a clock change."""
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
    """Rows in time order: ``dates`` (N,) and ``values`` (N, C) of the channels ``names``.

    ``filled`` counts the missing cells of each channel that were filled in; ``gaps`` (G,) are the
    rows before which rows are missing, empty if gaps are ignored; ``lines`` (N,) are the lines of
    the rows in the file. ``delimiter`` and ``decimal`` are those of the file; ``utc`` means that
    its dates have UTC offsets, and were converted to UTC.
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
    utc: bool = False

    def __len__(self) -> int:
        return len(self.dates)

    def gap(self, row: int) -> str:
        """Describe the gap before a row: file, line, the dates around it and the usual step."""
        before, after = labels(self.dates[row - 1 : row + 1], self.dates)
        return (
            f"{self.file}:{self.lines[row]}: rows are missing between {before} and {after}; "
            f"the usual step is {usual_step(self.dates)}"
        )


def read_table(data: SeriesData, path: str | Path | None = None) -> SeriesTable:
    """Read the file, or another with the same columns, and fill in missing values.

    Raises `DataError` like `scan`, for a missing value under ``missing = "error"``, and for missing
    rows under ``gaps = "refuse"``.
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

    Raises `DataError` with file, line and column for a cell that is not a number, a date that is
    invalid or not after the one before, or a row of another width.
    """
    file = find(data.path if path is None else path)
    lines = CSVFile(file, data.delimiter)
    rows = _rows(lines)
    header = next(rows, (1, []))[1]
    try:
        date = places_of([data.date or 1], header)[0] if header else 0
        names = data.values or tuple(name for i, name in enumerate(header) if i != date)
        places = places_of(names, header)
    except UserError as error:
        raise DataError(f"{file}:1: {error}") from None
    if not places:
        raise DataError(f"{file}:1: the header has no column of values besides the dates")
    if dates_of([header[date]], data.date_format):
        raise DataError(
            f"{file}:1: the header contains the date {header[date]}: add a row of column names"
        )
    decimal = data.decimal or _decimal(file, data, dict(zip(places, names, strict=True)))
    dates, values, numbers, offset = list[np.datetime64](), list[list[float]](), list[int](), None
    for line, cells in rows:
        where = f"{file}:{line}"
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} cells; the header has {len(header)}")
        try:
            dates.append(parse_date(cells[date], data.date_format))
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        before, offset = offset, has_offset(cells[date], data.date_format)
        if before not in (None, offset):
            raise DataError(
                f"{where}: {cells[date]!r} and the date before it: one has an offset of UTC, the "
                "other has none; write it in all rows, or in none"
            )
        numbers.append(line)
        values.append(
            [_number(where, n, cells[i], decimal) for n, i in zip(names, places, strict=True)]
        )
    if not values:
        raise DataError(f"{file} has a header but no rows")
    when, table, line_numbers = _once(
        file, data, np.array(dates), np.array(values), np.array(numbers, dtype=np.int64)
    )
    return SeriesTable(
        str(file),
        when,
        names,
        table,
        line_numbers,
        gaps=gaps_of(when),
        delimiter=lines.delimiter,
        decimal=decimal,
        utc=bool(offset),
    )


def _once(
    file: Path, data: SeriesData, dates: Dates, values: Numbers, lines: NDArray[np.int64]
) -> tuple[Dates, Numbers, NDArray[np.int64]]:
    """Return each date once, as set by ``repeated``. Raises `DataError` if dates do not ascend."""
    distinct, first, group = np.unique(dates, return_index=True, return_inverse=True)
    if len(distinct) < len(dates) and data.repeated == "error":
        again = int(np.flatnonzero(~np.isin(np.arange(len(dates)), first))[0])
        date, earlier = labels(dates[again : again + 1], dates)[0], lines[first[group[again]]]
        remedy = 'keep one by task.series.repeated = "first", "last" or "mean"'
        if ":" in date:
            remedy += ", or, for the hour that is doubled when clocks are set back, write offsets "
            remedy += "of UTC in all rows (02:00+01:00)"
        raise DataError(f"{file}:{lines[again]}: {date} is already in line {earlier}: {remedy}")
    if len(back := np.flatnonzero(np.diff(first) < 0)):
        row = int(first[back[0]])  # it follows a later date
        place = f"{file}:{lines[row]}: {labels(dates[row : row + 1], dates)[0]}"
        raise DataError(f"{place} is not after the row before it; sort the rows")
    if len(distinct) == len(dates):
        return dates, values, lines
    if data.repeated == "mean":
        known = ~np.isnan(values)
        sums, counts = np.zeros((2, len(distinct), values.shape[1]))
        np.add.at(sums, group, np.where(known, values, 0.0))
        np.add.at(counts, group, known)
        with np.errstate(invalid="ignore"):
            return distinct, sums / counts, lines[first]
    last = len(dates) - 1 - np.unique(dates[::-1], return_index=True)[1]
    chosen = first if data.repeated == "first" else last
    return distinct, values[chosen], lines[chosen]


def _rows(lines: CSVFile) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with its line in the file, from 1, skipping empty lines."""
    for line, _, cells in lines:
        if isinstance(cells, BadLine):
            raise DataError(str(cells))
        if cells:
            yield line, [cell.strip() for cell in cells]


def _decimal(file: Path, data: SeriesData, names: Mapping[int, object]) -> str:
    """Return the decimal mark of the columns at these positions, from all of their cells."""
    notation = Notation()
    for line, cells in itertools.islice(_rows(CSVFile(file, data.delimiter)), 1, None):
        for place, name in names.items():
            if place < len(cells):
                notation.see(line, name, cells[place])
    return notation.decimal(file)


def date_column(file: Path, data: SeriesData | None = None) -> tuple[str, str | None] | None:
    """Return the column of a CSV that holds ordered dates beside numbers, and their format.

    It is None if there is none; ``data`` may set either. Raises `DataError` if several formats of
    the dates match, such as day and month either way round, or if they lack what a series needs.
    """
    if ending_of(file) not in (".csv", ".tsv"):
        return None
    data = data or SeriesData(path=str(file))
    rows = _rows(CSVFile(file, data.delimiter or ("\t" if ending_of(file) == ".tsv" else None)))
    try:
        header, *body = [cells for _, cells in itertools.islice(rows, DATED)] or [[]]
    except DataError:
        return None  # `scan` reports what is wrong
    body = [row for row in body if len(row) == len(header)]
    if len(header) < 2 or len(body) < 2:
        return None
    columns = list(zip(*body, strict=True))
    numbers = [i for i, column in enumerate(columns) if all(map(amount_like, column[:5]))]
    reason = ""
    for place, name in enumerate(header):
        others = [i for i in range(len(header)) if i not in (place, *numbers)]
        times = [i for i in others if all(map(TIME.fullmatch, columns[i]))]
        if len(others) > len(times) or (data.date or name) != name:
            continue
        forms = [data.date_format] if data.date_format else forms_of(columns[place], name)
        if times and forms:
            both = f"{name!r} and {header[times[0]]!r}"
            reason = f"the dates are in two columns, {both}: join them into one"
        elif forms:
            ordered = [form for form in forms if ascends(columns[place], form)]
            if len(ordered) > 1:
                whole = [cells[place] for _, cells in rows if len(cells) == len(header)]
                ordered = [form for form in ordered if ascends(whole, form)]
            if len(ordered) > 1:
                raise DataError(
                    f"{file}: the dates of {name!r} can be read as "
                    f"{' and as '.join(map(str, ordered))}: set task.series.date_format"
                )
            if ordered:
                return name, ordered[0]
            reason = reason or f"the dates of {name!r} {disorder(columns[place], forms[0])}"
        elif WHEN.fullmatch(name) and not times:
            reason = reason or (
                f"{name!r} has dates such as {columns[place][0]!r}, whose form is unknown: set "
                'task.series.date_format, such as "%d/%m/%Y"'
            )
    if reason:
        raise DataError(f"{file}: {reason}")
    return None


def _number(where: str, name: int | str, cell: str, decimal: str) -> float:
    try:
        return number_of(cell, decimal)
    except UserError as error:
        raise DataError(f"{where}: column {name!r}: {error}") from None


def _fill(file: Path, names: tuple[str, ...], values: Numbers, how: str) -> dict[str, int]:
    """Fill missing values in place; return the count for each channel that had gaps."""
    missing = np.isnan(values)
    if how == "error" and missing.any():
        row, channel = np.argwhere(missing)[0]
        raise DataError(
            f"{file}: column {names[channel]!r} has no value in row {row + 1} below the header "
            f"({missing.sum()} are missing in all); fix the file, or set "
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
    return {name: int(n) for name, n in zip(names, missing.sum(axis=0), strict=True) if n}


def divide(length: int, data: SeriesData) -> dict[str, tuple[int, int]]:
    """Return the first row, and the row after the last, of train, valid and test.

    Raises `DataError` if ``rows`` exceed those of the file, or if none are left for training.
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
    """Return the rows before which rows are missing; none if the dates have no regular step.

    Steps are counted on the calendar that the dates themselves show (`_slots`), so that nights,
    weekends and omitted leap days are not gaps; otherwise in seconds, with a tolerance of half, so
    that months and years are equal steps.
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
    """Return each date's slot on its calendar, the slots of a day, if it has working days only.

    The calendar has the times of day and the weekdays that occur. One that does not, though the
    dates pass it at least twice, is closed; so is a day of leap years that all of them lack.
    """
    days = dates.astype("M8[D]")
    seconds = (dates - days).astype(np.int64)
    times = np.unique(seconds)
    step = _most_common(np.diff(dates).astype(np.int64))
    span = (days[-1] - days[0]).astype(int)
    if span < 3 and 86_400 % step == 0:  # too short to see that a time of day is closed
        times = np.unique(np.concatenate((times, np.arange(seconds[0] % step, 86_400, step))))
    open_days = _open_days(days)
    leap = _leap_days(days[0], days[-1])
    lacking = [same for same in leap if len(same) and not np.isin(same, days).any()]
    closed = lacking[0] if len(lacking) == 1 else days[:0]
    count = np.busday_count(days[0], days, weekmask=open_days.tolist(), holidays=closed)
    slots = count.astype(np.int64) * len(times) + np.searchsorted(times, seconds)
    return slots, len(times), 4 <= open_days.sum() <= 6


def _open_days(days: Dates) -> NDArray[np.bool_]:
    """Return the weekdays, from Monday, that occur among the days or are passed at most once."""
    weekdays = (days.astype(np.int64) + 3) % 7
    span = (days[-1] - days[0]).astype(int)
    passed = np.bincount((weekdays[0] + np.arange(span + 1)) % 7, minlength=7)
    return np.isin(np.arange(7), weekdays) | (passed < 2)


def _leap_days(first: np.datetime64, last: np.datetime64) -> list[Dates]:
    """Return 29 February and 31 December of leap years: one is left out of 365-day years."""
    years = np.arange(first.astype("M8[Y]"), last.astype("M8[Y]") + 1)
    days = years.astype("M8[D]") + 59  # 1 March if the year is not a leap year
    leap = days.astype("M8[M]") == years.astype("M8[M]") + 1
    both = days[leap], (years[leap] + 1).astype("M8[D]") - 1
    return [same[(first < same) & (same < last)] for same in both]


def _most_common(numbers: NDArray[np.int64]) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()])


def usual_step(dates: Dates) -> str:
    """Return the most common time step as text: ``1 hour``, ``1 month``, ``90 s``."""
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
    """Return the next ``count`` dates.

    Their steps are equal months, from the start or the end, if the dates' are; working days if all
    of them are; else the usual step. Raises `UserError` for fewer than two dates.
    """
    if len(dates) < 2:
        raise UserError("a single date does not show the time step; give at least two rows")
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
    """Return dates as text, without the part that all (or all of another list) have in common."""
    like = dates if like is None else like
    unit = next((u for u in ("M", "D", "m") if (like.astype(f"M8[{u}]") == like).all()), "s")
    return [str(date).replace("T", " ") for date in dates.astype(f"M8[{unit}]")]


def _since(dates: Dates, unit: str) -> NDArray[np.int64]:
    """Return whole hours since midnight ("D"), days since the first of the month ("M"), …"""
    smaller = {"D": "h", "M": "D", "Y": "M"}[unit]
    return (dates.astype(f"M8[{smaller}]") - dates.astype(f"M8[{unit}]")).astype(np.int64)


# Each goes from −0.5 at its first value to 0.5 at its last (Zhou et al., 2021); years count from
# 2000 in tens, so that they mean the same in every file.
CALENDAR: dict[str, Callable[[Dates], Numbers]] = {
    "hour": lambda dates: _since(dates, "D") / 23 - 0.5,
    "weekday": lambda dates: (dates.astype("M8[D]").astype(np.int64) + 3) % 7 / 6 - 0.5,
    "day": lambda dates: _since(dates, "M") / 30 - 0.5,
    "month": lambda dates: _since(dates, "Y") / 11 - 0.5,
    "year": lambda dates: (dates.astype("M8[Y]").astype(np.int64) - 30) / 10,
}


def calendar(dates: Dates, names: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the listed features of each date, (N, F)."""
    features = [CALENDAR[name](dates) for name in names]
    return np.array(features, dtype=np.float32).reshape(len(names), len(dates)).T.copy()


class Scaling(Configurable):
    """z = (x − μ) / σ of each channel, over the training rows; a constant channel has σ = 1."""

    class Config(BaseConfig, family="scaling", kind="standard"):
        """The kind of scaling; another one has its own `fit`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shift: Numbers = np.zeros(0)
        self.scale: Numbers = np.ones(0)

    def fit(self, values: Numbers) -> None:
        """Take shift and scale from the training rows (N, C)."""
        self.shift, scale = values.mean(axis=0), values.std(axis=0)
        self.scale = np.where(scale > 0, scale, 1.0)

    def enter(self, values: Numbers) -> NDArray[np.float32]:
        """Return scaled values (…, C)."""
        return ((values - self.shift) / self.scale).astype(np.float32)

    def leave(self, values: NDArray[np.float32]) -> Numbers:
        """Return values (…, C) in their own units."""
        return values.astype(np.float64) * self.scale + self.shift


Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """Windows that read ``look_back`` rows from their start and predict the ``horizon`` after them.

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
        """Return values read (B, L, C), calendar of all rows (B, L + H, F), targets (B, H, C)."""
        rows = self.starts[np.asarray(indices)][:, None] + np.arange(self.look_back + self.horizon)
        values = self.values[rows]
        return values[:, : self.look_back], self.calendar[rows], values[:, self.look_back :]

    def targets(self) -> Floats:
        """Return the values that all windows predict, (M, H, C)."""
        return self.values[self.starts[:, None] + self.look_back + np.arange(self.horizon)]

    def first_dates(self) -> Dates:
        """Return the date of the first row that each window predicts, (M,)."""
        return self.table.dates[self.starts + self.look_back]


def starts(
    rows: tuple[int, int], look_back: int, horizon: int, gaps: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return windows whose horizon is in the rows [first, end); the look-back may start earlier.

    No window spans a gap: a row after one of the ``gaps`` can only be its first.
    """
    first, end = rows
    starting = np.arange(max(0, first - look_back), end - look_back - horizon + 1, dtype=np.int64)
    if gaps is None or not len(gaps):
        return starting
    before = np.searchsorted(gaps, starting, side="right")  # gaps up to the first row of each
    within = np.searchsorted(gaps, starting + look_back + horizon - 1, side="right")
    return starting[before == within]
