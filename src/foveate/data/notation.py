"""The notation of numbers and dates in tables: decimal marks, thousands, date formats.

An ambiguous text is resolved by all cells of its column, or rejected with both meanings.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np

from foveate.data.catalogue import DataError
from foveate.errors import UserError

# cells without a value, in lower case
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?")
PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
MINUS = "\u2212"  # the sign, which is not a hyphen
GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3})+(?!\d)")
UNITS = "$€£¥₹% "
NUMBER = {
    mark: re.compile(
        rf"([+-]?(?:\d{{1,3}}(?:{re.escape(other)}\d{{3}})+|\d*))(?:{re.escape(mark)}(\d*))?"
        r"((?:[eE][+-]?\d+)?)"
    )
    for mark, other in ((".", ","), (",", "."))
}
EITHER = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}")  # 1,018: 1018, or 1.018
OTHER = {".": ",", ",": "."}


def is_missing(cell: str) -> bool:
    """Return whether a cell holds no value."""
    return cell.lower() in MISSING


def _bare(cell: str) -> str:
    """Return a number without spaces between its thousands."""
    return GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), cell.replace(MINUS, "-"))


def number_of(cell: str, decimal: str) -> float:
    """Return a number with this decimal mark, perhaps with thousands; NaN if missing.

    Raises `UserError` for any other text.
    """
    if is_missing(cell):
        return math.nan
    if decimal == "." and PLAIN.fullmatch(cell):
        number = float(cell)
    elif (match := NUMBER[decimal].fullmatch(_bare(cell))) and re.search(r"\d", match[0]):
        number = float(f"{match[1].replace(OTHER[decimal], '')}.{match[2] or 0}{match[3]}")
    else:
        number = math.inf
    if math.isinf(number):
        remedy = "write it without a unit, or name the columns of numbers in task.series.values"
        if decimal_shown(_bare(cell)) == OTHER[decimal]:
            remedy = f"for a decimal {'comma' if decimal == '.' else 'point'} set "
            remedy += f'task.series.decimal = "{OTHER[decimal]}"'
        raise UserError(f"{cell!r} is not a number; {remedy}")
    return number


def number_like(cell: str) -> bool:
    """Return whether a cell is a number with either decimal mark, or missing."""
    bare = _bare(cell)
    fits = any(form.fullmatch(bare) for form in NUMBER.values()) and re.search(r"\d", bare)
    return is_missing(cell) or bool(fits)


def amount_like(cell: str) -> bool:
    """Return whether a cell is a number, perhaps with a unit, which `number_of` refuses by name."""
    return number_like(cell.strip(UNITS))


def decimal_shown(bare: str) -> str | None:
    """Return the decimal mark that a number shows; None if it has none, or it is ambiguous."""
    marks = [mark for mark in ".," if mark in bare]
    if EITHER.fullmatch(bare) or not marks or not number_like(bare):
        return None
    if len(marks) == 2:
        return max(marks, key=bare.rfind)
    return marks[0] if bare.count(marks[0]) == 1 else OTHER[marks[0]]


class Notation:
    """The notation of the numbers of a table, derived from all of its cells."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}  # a cell's position by its decimal mark
        self.either: dict[str, str] = {}  # the same of ambiguous ones such as 1,018
        self.ambiguous: set[object] = set()  # columns with such a number
        self.unmarked: set[object] = set()  # columns with a number that has no mark

    def see(self, line: int, column: object, cell: str) -> None:
        """Take a cell into account."""
        if cell.isdecimal():
            self.unmarked.add(column)
            return
        if is_missing(cell) or not number_like(cell):
            return
        bare, place = _bare(cell), f"{cell!r} in line {line}"
        if match := EITHER.fullmatch(bare):
            self.either.setdefault(match[1], place)
            self.ambiguous.add(column)
        elif mark := decimal_shown(bare):
            self.shown.setdefault(mark, place)
        elif "." not in bare and "," not in bare:
            self.unmarked.add(column)

    def decimal(self, file: object) -> str:
        """Return the decimal mark. Raises `DataError` if the cells leave two meanings."""
        if len(self.shown) == 1:
            return next(iter(self.shown))
        if not self.shown and len(self.either) < 2:
            mark = next(iter(self.either), ".")
            if mark == "." and not self.ambiguous & self.unmarked:
                return mark  # all have three decimals after the usual mark
            raise DataError(
                f"{file}: {self.either[mark]} can be a number of thousands or one with three "
                f'decimals: set task.series.decimal = "{OTHER[mark]}" for thousands, "{mark}" for '
                "decimals"
            )
        both = " and ".join((self.shown or self.either).values())
        raise DataError(
            f"{file}: {both} use different decimal marks: write all numbers alike, or set "
            "task.series.decimal"
        )


ISO = re.compile(
    r"\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.0+)?)?)?"
    r"( ?(?:Z|[+-]\d\d(?::?\d\d)?))?)?)?)?"
)
UNIX = {"unix": 1, "unix_ms": 1000}  # date formats counting from 1970: units per second
MIDNIGHT = re.compile(r"(?<=[T ])24(?=:00(:00)?$)")  # the end of a day
TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?( ?[AaPp][Mm])?")
WHEN = re.compile(
    r"(.*[\W_])?(date|time|timestamp|datetime|day|week|month|quarter|year|epoch|unix|ts|datum|when)"
    r"([\W_].*)?",
    re.IGNORECASE,
)
_ORDERS = ["d m Y", "m d Y", "Y m d", "d m y", "m d y", "y m d"]
_NUMBERS = ["%" + order.replace(" ", f"{sep}%") for sep in "/.-" for order in _ORDERS]
_NAMED = [
    f.replace("%b", name)
    for name in ("%b", "%B")
    for f in ("%b %d, %Y", "%d %b %Y", "%d-%b-%Y", "%b %Y", "%d-%b-%y", "%b-%Y")
]
FORMS = [  # date formats that a table may have besides ISO 8601
    date + time
    for date in (*_NUMBERS, *_NAMED, "%Y%m%d", "%m/%Y", "%Y/%m")
    for time in ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
    if not (date == "%Y-%m-%d" and "%p" not in time)  # that is ISO 8601
]


def parse_date(text: str, form: str | None = None) -> np.datetime64:
    """Parse a month, a day or a time of ISO 8601, of a strptime format, or of `UNIX`.

    The result is in UTC if the text has a UTC offset. Raises `DataError` for other text.
    """
    with contextlib.suppress(ValueError, OverflowError):
        if form in UNIX:
            return np.datetime64(int(float(text)) // UNIX[form], "s")
        clock = MIDNIGHT.sub("00", text)
        joined = re.sub(r" (?=(Z|[+-]\d\d(:?\d\d)?)$)", "", clock)
        if form is None and (match := ISO.fullmatch(clock)) and not match[1]:
            date = np.datetime64(clock, "s")
        elif form is not None or ISO.fullmatch(clock):
            when = datetime.strptime(clock, form) if form else datetime.fromisoformat(joined)
            date = np.datetime64(when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when)
            date = date.astype("M8[s]")
        else:
            raise ValueError
        return date + np.timedelta64(86_400 * (clock != text), "s")
    raise DataError(
        f"{text!r} is not a date; write 2016-07-31 or 2016-07-31 23:00:00, or name its form in "
        'task.series.date_format, such as "%d/%m/%Y"'
    )


def has_offset(text: str, form: str | None = None) -> bool:
    """Return whether a date has a UTC offset."""
    match = ISO.fullmatch(text)
    return "%z" in form if form else bool(match and match[1])


def forms_of(cells: Sequence[str], name: str) -> list[str | None]:
    """Return the formats in which all cells of a column are dates."""
    if not cells:
        return []
    forms: list[str | None] = [None, *FORMS]
    if all(map(str.isdecimal, cells)):  # a date if the column's name says so, or if it must be
        digits = {len(cell) for cell in cells}
        if digits != {8}:
            numbers = {4: None, 10: "unix", 13: "unix_ms"}
            named = WHEN.fullmatch(name) and len(digits) == 1
            return [form for size, form in numbers.items() if named and size in digits]
        forms = ["%Y%m%d"]
    return [form for form in forms if dates_of(cells, form)]


def dates_of(cells: Iterable[str], form: str | None) -> list[np.datetime64] | None:
    """Return cells as dates in a format, or None if one of them cannot be read so."""
    try:
        return [parse_date(cell, form) for cell in cells]
    except DataError:
        return None


def ascends(cells: Iterable[str], form: str | None) -> bool:
    """Return whether cells are dates in a format, each later than the one before."""
    dates = dates_of(cells, form)
    return dates is not None and all(a < b for a, b in itertools.pairwise(dates))


def disorder(cells: Sequence[str], form: str | None) -> str:
    """Return what is wrong with dates that do not ascend, and the fix."""
    dates = [parse_date(cell, form) for cell in cells]
    if all(a > b for a, b in itertools.pairwise(dates)):
        return "run from the newest to the oldest: reverse the rows"
    if len(set(dates)) < len(dates):
        return "occur several times: write one row for each date, with a column for each series"
    return "are not in the order of time: sort the rows"
