"""From files to rows: lines, what is wrong with them, and the two sides that stand in each.

Lives here: opening plain and packed files, UTF-8, pairing two files line by line. Does not live
here: which rows are wanted (`text`), what a line of a layout means (`text_format`).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, cast

from foveate.data.catalogue import DataError
from foveate.data.download import find
from foveate.data.text_format import PARSERS, Layout, Parser, TextFormat

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why; lines count from 1."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = tuple[str, str] | list[BadLine]


class RowLayout(Layout, Protocol):
    """A layout, or the format that takes its place (`foveate.data.text.TextData`)."""

    @property
    def format(self) -> TextFormat.Config | None: ...


def rows(source: Path, target: str | Path | None, config: RowLayout) -> Iterator[Row]:
    """Each row as its two sides, or as the lines that are bad; they count from 1."""
    if config.format is not None:
        return _formatted(source, target, config.format)
    parser = PARSERS.get(Path(source.name.removesuffix(".gz")).suffix)
    if target is not None and parser is None:
        return _aligned(source, find(target))
    if target is None and parser is not None:
        return _parsed(source, parser(config))
    both = "is .tsv or .jsonl and holds both sides; leave out the target"
    raise DataError(f"{source} {both if parser else 'is one side; name the target file as well'}")


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
        try:
            yield [line] if isinstance(line, BadLine) else parse(line)
        except ValueError as error:
            yield [BadLine(str(path), number, str(error))]
