"""From files to rows: lines, what is wrong with them, and the two sides that stand in each.

Lives here: opening plain and packed files, UTF-8, pairing two files line by line. Does not live
here: which rows are wanted (`text`), what a line of a layout means (`text_format`).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Protocol, cast

from foveate.data.catalogue import DataError
from foveate.data.download import find
from foveate.data.text_format import (
    PARSERS,
    Layout,
    Parser,
    TextFormat,
    delimiter_of,
    looks_like_data,
    places_of,
)

_BOM = b"\xef\xbb\xbf"
SAMPLED = 50  # lines from which the delimiter of a CSV is detected
QUOTED = 1000  # lines at most that a quoted cell of a CSV may span


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why; lines count from 1."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = tuple[str, str] | list[BadLine]  # an empty list: a line that holds no row, such as a header


class RowLayout(Layout, Protocol):
    """A layout, or the format that takes its place (`foveate.data.text.TextData`)."""

    @property
    def format(self) -> TextFormat.Config | None: ...


def rows(source: Path, target: str | Path | None, config: RowLayout) -> Iterator[Row]:
    """Each row as its two sides, or as the lines that are bad; they count from 1."""
    if config.format is not None:
        return _formatted(source, target, config.format)
    if target is not None and not is_table(source):
        return _aligned(source, find(target))
    if target is not None:
        raise DataError(f"{source} is {TABLES} and holds both sides; leave out the target")
    if not is_table(source):
        raise DataError(f"{source} is one side; name the target file as well")
    ending = _ending(source)
    return _csv(source, config) if ending == CSV else _parsed(source, PARSERS[ending](config))


CSV, TABLES = ".csv", ".tsv, .csv or .jsonl"


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def is_table(path: Path) -> bool:
    """Whether a file holds several things a line: TSV, CSV or JSONL, perhaps compressed."""
    return _ending(path) in (CSV, *PARSERS)


def _decode(stream: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield each line as text, and why it is not UTF-8, or nothing; then it has U+FFFD."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.endswith(b"\n"):
            line = line[: -2 if line.endswith(b"\r\n") else -1]
        try:
            yield line.decode("utf-8"), ""
        except UnicodeDecodeError as error:
            why = f"not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start + 1})"
            if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                why = "UTF-16, not UTF-8; convert the file: iconv -f UTF-16 -t UTF-8"
            yield line.decode("utf-8", errors="replace"), why


def _lines(path: Path) -> Iterator[str | BadLine]:
    file, number = str(path), 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, (line, why) in enumerate(_decode(stream), start=1):
                yield BadLine(file, number, why) if why else line
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read after line {number}: {error}") from None


def read_lines(stream: Iterable[bytes], damaged: list[int]) -> Iterator[str]:
    """Yield the lines of standard input as text, as many as there are, whatever is in them.

    A last line without an end counts, an empty line is one. Invalid UTF-8 becomes U+FFFD, and
    the number of the line is added to ``damaged``.
    """
    for number, (line, why) in enumerate(_decode(stream), start=1):
        if why:
            damaged.append(number)
        yield line


def _aligned(source: Path, target: Path) -> Iterator[Row]:
    left, right = _lines(source), _lines(target)
    for number, pair in enumerate(zip_longest(left, right), start=1):
        if None in pair:
            short, long = (source, target) if pair[0] is None else (target, source)
            total = number + sum(1 for _ in (right if pair[0] is None else left))
            reason = f"has no partner: {long} has {total} lines, {short} has {number - 1}"
            yield from ([BadLine(str(long), n, reason)] for n in range(number, total + 1))
            return
        bad = [side for side in pair if isinstance(side, BadLine)]
        yield bad or cast(tuple[str, str], pair)


def _formatted(source: Path, target: str | Path | None, layout: TextFormat.Config) -> Iterator[Row]:
    if target is not None:
        both = f"a file of the data.format {layout.kind} holds both sides"
        raise DataError(f"{source}: {both}; leave out {target}")
    return _parsed(source, layout.build().parse)


def _parsed(path: Path, parse: Parser) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), start=1):
        yield _row(path, number, line, parse)


def _row(path: Path, number: int, line: str | BadLine, parse: Parser) -> Row:
    try:
        return [line] if isinstance(line, BadLine) else parse(line)
    except ValueError as error:
        return [BadLine(str(path), number, str(error))]


def _csv(path: Path, config: Layout) -> Iterator[Row]:
    """The rows of a CSV; line breaks inside quotes become blanks."""
    records = _records(path)
    first = list(islice(records, SAMPLED))
    sample = [record for record, _ in first if isinstance(record, str)]
    parse, number = _csv_parser(path, sample, config), 1
    for record, lines in chain(first, records):
        if (number == 1 and config.header) or record == "":
            yield []
        else:
            yield _row(path, number, record, parse)
        yield from ([] for _ in range(lines - 1))
        number += lines


def _csv_parser(path: Path, sample: list[str], config: Layout) -> Parser:
    """What reads the rows of a CSV, after a look at the first ones. Raises `DataError`."""
    delimiter = config.delimiter or delimiter_of(sample)
    header = next(csv.reader(sample[:1], delimiter=delimiter), [])
    named = any(isinstance(column, str) for column in config.columns)
    if config.header and not named and looks_like_data(header):
        raise DataError(
            f"{path}:1: the first row of a CSV names the columns, and {header[0][:40]!r} looks "
            "like data; add a row of names, or set data.header = false"
        )
    if named and not config.header:
        raise DataError(f"{path}: data.columns are names, but data.header = false; number them")
    try:
        first, second = places_of(config.columns, header)
    except ValueError as error:
        raise DataError(f"{path}:1: {error}") from None

    def parse(record: str) -> tuple[str, str]:
        try:
            cells = next(csv.reader([record], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"no row of a CSV: {error}") from None
        if len(cells) != len(header):
            raise ValueError(f"cells: {len(cells)}; in the first row: {len(header)}")
        return cells[first], cells[second]

    return parse


def _records(path: Path) -> Iterator[tuple[str | BadLine, int]]:
    """Each row of a CSV as one text, and how many lines of the file it takes."""
    open_, start = list[str](), 1
    for number, line in enumerate(_lines(path), start=1):
        if isinstance(line, BadLine):
            yield line, 1
            continue
        open_.append(line)
        if sum(part.count('"') for part in open_) % 2 == 0:
            yield " ".join(open_), len(open_)
            open_ = []
        elif len(open_) > QUOTED:
            break
        start = number + 1 if not open_ else start
    if open_:
        raise DataError(f"{path}:{start}: a quote is opened and not closed; close or double it")
