"""From files to rows: line-aligned pairs, TSV, JSONL and CSV, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import (
    BinaryIO,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

import numpy as np
from numpy.typing import NDArray

from foveate.config import BaseConfig, Configurable
from foveate.data.catalogue import DataError, find

Parser = Callable[[str], tuple[str, str]]
FEATURES = re.compile(r"[^\sa-z<>]+")  # of UniMorph, such as V;SBJV;PRS;2;SG or V.PTCP;PST
Delimiter = Literal[",", ";", "\t", "|"]
DELIMITERS: tuple[Delimiter, ...] = (",", ";", "\t", "|")


class TextFormat(Configurable, ABC):
    """Reads lines of a layout that the ending of a file does not tell.

    With ``several``, lines of one source are all right answers to it: training sees each as a pair,
    other splits have each source once.
    """

    class Config(BaseConfig, family="text_format"):
        """Which layout."""

    several: ClassVar[bool] = False

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def parse(self, line: str) -> tuple[str, str]:
        """Source and target of a line; raise ``ValueError`` that says what is wrong with it."""

    def source(self, line: str) -> str:
        """The source that a line of the user's stands for; raise ``ValueError`` where it is none.

        A line that is a source already stays as it is.
        """
        return line


class CMUdict(TextFormat):
    """``word(2) W ER1 D # comment`` → ``word``, ``W ER1 D``: a pronouncing dictionary.

    Without ``stress``, ``W ER D``: the 39 phones that published error rates are counted on.
    """

    class Config(TextFormat.Config, kind="cmudict"):
        """Whether vowels keep their digit: 1 main stress, 2 secondary, 0 none."""

        stress: bool = True  # whether vowels keep their digit of stress

    config: Config
    several = True

    def parse(self, line: str) -> tuple[str, str]:
        word, _, phones = line.partition(" # ")[0].strip().partition(" ")
        if not word or not phones:
            raise ValueError(f"needs a word, a blank and phones, not {line!r}")
        if not self.config.stress:
            phones = re.sub(r"\d", "", phones)
        return re.sub(r"\(\d+\)$", "", word), " ".join(phones.split())


class Inflection(TextFormat):
    """``Hahn TAB Hahnes TAB N;GEN;SG`` → ``Hahn<N><GEN><SG>``, ``Hahnes`` (Cotterell, 2018)."""

    class Config(TextFormat.Config, kind="inflection"):
        """Nothing to choose."""

    def parse(self, line: str) -> tuple[str, str]:
        cells = line.split("\t")
        if len(cells) != 3:
            raise ValueError(f"needs lemma, form and features between tabs, not {line!r}")
        lemma, form, features = cells
        return lemma + "".join(f"<{feature}>" for feature in features.split(";")), form

    def source(self, line: str) -> str:
        """Also of a raw line of the data, with or without its form: ``Hahn TAB N;GEN;SG``."""
        cells = line.split("\t")
        if len(cells) == 1 and (not line.strip() or line.rstrip().endswith(">")):
            return line
        if len(cells) in (2, 3) and cells[0] and FEATURES.fullmatch(cells[-1]):
            return self.parse(f"{cells[0]}\t\t{cells[-1]}")[0]
        raise ValueError(
            f"{line!r} is no lemma with features: write Hahn<N><GEN><SG>, or a line of the data: "
            "lemma TAB features (N;GEN;SG), or lemma TAB form TAB features"
        )


class Layout(Protocol):
    """Where in a line the two sides stand (`foveate.data.text.TextData`)."""

    @property
    def keys(self) -> tuple[str, str]: ...
    @property
    def columns(self) -> tuple[int | str, int | str]: ...
    @property
    def delimiter(self) -> Delimiter | None: ...
    @property
    def header(self) -> bool: ...


def delimiter_of(lines: Sequence[str]) -> Delimiter:
    """What stands between the cells of a CSV: what gives lines the same number of them, at least 2.

    Of several the one that most lines agree on, then the one that gives most cells.
    """

    def fit(delimiter: Delimiter) -> tuple[float, int]:
        rows = [cells for cells in csv.reader(lines, delimiter=delimiter) if cells]
        width = len(rows[0]) if rows else 1
        if width < 2:
            return 0.0, 0
        return sum(len(cells) == width for cells in rows) / len(rows), width

    return max(DELIMITERS, key=fit)


def places_of(columns: Iterable[int | str], header: Sequence[str]) -> list[int]:
    """The places from 0 of columns given by number or name. Raises ``ValueError`` for no such."""
    places = []
    for column in columns:
        if isinstance(column, str) and column not in header:
            raise ValueError(f"no column {column!r}; there are: {', '.join(header)}")
        places.append(header.index(column) if isinstance(column, str) else column - 1)
        if places[-1] >= len(header):
            raise ValueError(f"columns: {len(header)}; needed: {column}; name them in data.columns")
    return places


def looks_like_data(header: Sequence[str]) -> bool:
    """Whether the first row of a CSV holds sentences or numbers rather than names of columns."""
    return any(
        len(cell.split()) > 5 or re.search(r"[.?!…。！？]$|^[\d.,]*\d$", cell.strip())
        for cell in header
    )


def _tsv(config: Layout) -> Parser:
    numbers = [column for column in config.columns if isinstance(column, int)]
    if len(numbers) < 2:
        raise ValueError("a .tsv has no header: number its columns in data.columns, such as [1, 2]")
    first, second = (column - 1 for column in numbers)
    needed, width = max(numbers), 0

    def parse(line: str) -> tuple[str, str]:
        nonlocal width
        cells = line.split("\t")
        if len(cells) < needed:
            raise ValueError(f"columns between tabs: {len(cells)}; needed: {needed}")
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(f"columns between tabs: {len(cells)}; before: {width}")
        return cells[first], cells[second]

    return parse


def _jsonl(config: Layout) -> Parser:
    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
            pair = record[config.keys[0]], record[config.keys[1]]
            "".join(pair).encode("utf-8")  # both are text, and text that can be written
        except KeyError as error:
            raise ValueError(f"no key {error}; name the keys in data.keys") from None
        except (ValueError, TypeError, RecursionError) as error:
            keys = " and ".join(config.keys)
            reason = "" if isinstance(error, TypeError) else f": {error}"
            raise ValueError(f"no JSON object with text under {keys}{reason}") from None
        return pair

    return parse


PARSERS = {".tsv": _tsv, ".jsonl": _jsonl}


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


PairRow = (
    tuple[str, str] | list[BadLine]
)  # an empty list: a line that holds no row, such as a header


class RowLayout(Layout, Protocol):
    """A layout, or the format that takes its place (`foveate.data.text.TextData`)."""

    @property
    def format(self) -> TextFormat.Config | None: ...


def rows(source: Path, target: str | Path | None, config: RowLayout) -> Iterator[PairRow]:
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


def _aligned(source: Path, target: Path) -> Iterator[PairRow]:
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


def _formatted(
    source: Path, target: str | Path | None, layout: TextFormat.Config
) -> Iterator[PairRow]:
    if target is not None:
        both = f"a file of the data.format {layout.kind} holds both sides"
        raise DataError(f"{source}: {both}; leave out {target}")
    return _parsed(source, layout.build().parse)


def _parsed(path: Path, parse: Parser) -> Iterator[PairRow]:
    for number, line in enumerate(_lines(path), start=1):
        yield _row(path, number, line, parse)


def _row(path: Path, number: int, line: str | BadLine, parse: Parser) -> PairRow:
    try:
        return [line] if isinstance(line, BadLine) else parse(line)
    except ValueError as error:
        return [BadLine(str(path), number, str(error))]


def _csv(path: Path, config: Layout) -> Iterator[PairRow]:
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


Number = TypeVar("Number", bound=np.generic)
Row = TypeVar("Row")
Places = NDArray[np.int64]


class Column(Sequence[Row], Generic[Row]):
    """Rows in two files of a folder, ``NAME.DTYPE`` and ``NAME.offsets``; all, or chosen ones."""

    def __init__(
        self, flat: NDArray[np.generic], offsets: Places, chosen: NDArray[np.generic] | None = None
    ):
        """``flat`` (total,), ``offsets`` (rows + 1,), ``chosen`` the rows shown, in their order."""
        self.flat, self.offsets, self.chosen = flat, offsets, chosen

    @classmethod
    def open(cls, folder: Path, name: str) -> Self:
        """The column of that name that a `ColumnWriter` has left in a folder, mapped."""
        offsets = mapped(folder / f"{name}.offsets", np.dtype(np.int64))
        file = next(f for f in folder.glob(f"{name}.*") if f.suffix != ".offsets")
        return cls(mapped(file, np.dtype(file.suffix[1:])), offsets)

    @abstractmethod
    def _row(self, part: NDArray[np.generic]) -> Row:
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
        indices = np.asarray(rows, dtype=indices_for(len(self.offsets)))
        chosen = indices if self.chosen is None else self.chosen[indices]
        return type(self)(self.flat, self.offsets, chosen)

    def lengths(self) -> Places:
        """The entries of each row, (N,): bytes of a text, tokens of a list of ids."""
        if self.chosen is None:
            return np.diff(self.offsets)
        return self.offsets[self.chosen + 1] - self.offsets[self.chosen]


class MappedTexts(Column[str]):
    """Texts, as UTF-8."""

    def _row(self, part: NDArray[np.generic]) -> str:
        return part.tobytes().decode()


class TokenIds(Column[list[int]]):
    """Token ids, in the smallest integers that hold them."""

    def _row(self, part: NDArray[np.generic]) -> list[int]:
        return part.tolist()


class ColumnWriter:
    """Writes a column piece by piece; the files are whole when it is closed."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.generic]) -> None:
        self.dtype, self.rows = dtype, 0
        self._end = 0
        self._flat: BinaryIO = (folder / f"{name}.{dtype.name}").open("wb")
        self._offsets: BinaryIO = (folder / f"{name}.offsets").open("wb")
        self._offsets.write(np.zeros(1, dtype=np.int64).tobytes())

    def add(self, flat: bytes | NDArray[np.generic], lengths: NDArray[np.integer]) -> None:
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


def lines_of(file: Path) -> MappedTexts:
    """The lines of a file with their ends, its bytes in memory."""
    flat = np.fromfile(file, dtype=np.uint8)
    ends = np.flatnonzero(flat == ord("\n")) + 1
    rest = [len(flat)] if len(flat) > (ends[-1] if len(ends) else 0) else []
    return MappedTexts(flat, np.concatenate(([0], ends, rest)).astype(np.int64))


def mapped(file: Path, dtype: np.dtype[Number]) -> NDArray[Number]:
    """A file of numbers as an array (N,) that the system reads as it is needed."""
    if not file.stat().st_size:
        return np.empty(0, dtype=dtype)
    return np.memmap(file, dtype=dtype, mode="r").view(np.ndarray)


def indices_for(count: int) -> np.dtype[np.generic]:
    """The smallest kind of number for indices below ``count``: 4 bytes up to 4 thousand million."""
    return np.dtype(np.uint32 if count <= 1 << 32 else np.int64)


def smallest(largest: int) -> np.dtype[np.generic]:
    """The smallest unsigned integer that holds ``largest``."""
    return np.dtype(np.min_scalar_type(largest))


def taken(rows: Sequence[Row], chosen: Sequence[int] | NDArray[np.integer]) -> Sequence[Row]:
    """Some rows of a list, or of a column and still in its files."""
    return rows.take(chosen) if isinstance(rows, Column) else [rows[i] for i in chosen]
