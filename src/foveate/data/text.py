"""Text: the rows of files, the pairs of a split, and columns of rows in mapped files.

Files are line-aligned, TSV, CSV or JSONL, plain or gzipped. All lines that are skipped and pairs
that are dropped are counted with the reason.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import unicodedata
import zlib
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from foveate.config import BaseConfig, Config, Configurable
from foveate.data.catalogue import DataError, MissingData, find
from foveate.errors import UserError

Delimiter = Literal[",", ";", "\t", "|"]
DELIMITERS: tuple[Delimiter, ...] = (",", ";", "\t", "|")
FEATURES = re.compile(r"[^\sa-z<>]+")  # of UniMorph, such as V;SBJV;PRS;2;SG or V.PTCP;PST
CSV, TABLES = ".csv", ".tsv, .csv or .jsonl"
CLOSED = re.compile(r'[^"]*+(?:""[^"]*+)*+"')  # the rest of a quoted cell of a CSV, and its end
CSV_FORMAT = 2  # of the rows of a CSV; raised where other ones are read of the same file
SAMPLED = 50  # lines from which the delimiter of a CSV is detected
QUOTED = 1000  # lines at most that a quoted cell of a CSV may span
RATIO_FROM = 8  # a side of at most so many tokens is never dropped for its length ratio


class TextFormat(Configurable, ABC):
    """Reads lines of a layout that the ending of a file does not tell.

    With ``several``, lines of one source are all right answers to it: training sees each as a pair,
    other splits have each source once.
    """

    class Config(BaseConfig, family="text_format"):
        """Which layout."""

        def sources(self, lines: Sequence[str]) -> list[str]:
            """The sources that lines stand for."""
            return list(map(self.build().source, lines))

    several: ClassVar[bool] = False

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def parse(self, line: str) -> tuple[str, str]:
        """Source and target of a line; raise `UserError` that says what is wrong with it."""

    def source(self, line: str) -> str:
        """The source that a line of the user's stands for; raise `UserError` where it is none.

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
            raise UserError(f"needs a word, a blank and phones, not {line!r}")
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
            raise UserError(f"needs lemma, form and features between tabs, not {line!r}")
        lemma, form, features = cells
        return lemma + "".join(f"<{feature}>" for feature in features.split(";")), form

    def source(self, line: str) -> str:
        """Also of a raw line of the data, with or without its form: ``Hahn TAB N;GEN;SG``."""
        cells = line.split("\t")
        if len(cells) == 1 and (not line.strip() or line.rstrip().endswith(">")):
            return line
        if len(cells) in (2, 3) and cells[0] and FEATURES.fullmatch(cells[-1]):
            return self.parse(f"{cells[0]}\t\t{cells[-1]}")[0]
        raise UserError(
            f"{line!r} is no lemma with features: write Hahn<N><GEN><SG>, or a line of the data: "
            "lemma TAB features (N;GEN;SG), or lemma TAB form TAB features"
        )


class TextData(Config):
    """How parallel text is read, divided into splits, and chosen for training."""

    format: TextFormat.Config | None = None  # layout of one file, where its ending does not tell
    on_bad_line: Literal["error", "skip"] = "error"
    """Stop at a line that cannot be read, or skip and count it."""
    splits: dict[str, str] = Field(default_factory=dict)
    """Names of the splits in file names: { valid = "val" }."""
    keys: tuple[str, str] = ("source", "target")  # keys of source and target in JSONL
    columns: tuple[PositiveInt | str, PositiveInt | str] = (1, 2)
    """Columns of source and target in TSV and CSV, from 1; in CSV also by name."""
    header: bool = True  # whether the first row of a CSV names its columns
    delimiter: Delimiter | None = None  # between the cells of a CSV; detected where absent
    holdout: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the sources of one file for valid, and as much for test unless it has a file."""
    holdout_seed: int = 0  # another seed divides the file in another way
    max_length: int = Field(default=256, gt=0)
    """Tokens of either side; a longer pair is left out of training."""
    max_length_ratio: float | None = Field(default=None, ge=1)
    """Tokens of the longer side to the shorter; pairs above are left out."""
    drop_duplicates: bool = False  # keep the first of pairs that are equal on both sides
    drop_identical: bool = False  # drop pairs whose two sides are equal
    tokenizer_sample: PositiveInt = 1_000_000  # pairs or lines that tokenizers are learnt from
    licence: str = ""  # of these data, and whom to name: what packed files and pages say


# ------------------------------------------------------------------------------ rows of files


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why; lines count from 1."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Parser = Callable[[str], tuple[str, str]]
PairRow = (
    tuple[str, str] | list[BadLine]
)  # an empty list: a line that holds no row, such as a header


def rows(source: Path, target: str | Path | None, config: TextData) -> Iterator[PairRow]:
    """Each row as its two sides, or as the lines that are bad; they count from 1."""
    if config.format is not None:
        if target is not None:
            both = f"a file of the data.format {config.format.kind} holds both sides"
            raise DataError(f"{source}: {both}; leave out {target}")
        return _parsed(source, config.format.build().parse)
    if not is_table(source):
        if target is None:
            raise DataError(f"{source} is one side; name the target file as well")
        return _aligned(source, find(target))
    if target is not None:
        raise DataError(f"{source} is {TABLES} and holds both sides; leave out the target")
    ending = ending_of(source)
    return _csv(source, config) if ending == CSV else _parsed(source, PARSERS[ending](config))


def ending_of(path: Path) -> str:
    """What the name of a file ends in, before a ``.gz``: ``.tsv``."""
    return Path(path.name.removesuffix(".gz")).suffix


def is_table(path: Path) -> bool:
    """Whether a file holds several things a line: TSV, CSV or JSONL, perhaps compressed."""
    return ending_of(path) in (CSV, *PARSERS)


def _decode(stream: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield each line as text, and why it is not UTF-8, or nothing; then it has U+FFFD."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.endswith(b"\n"):
            line = line[: -2 if line.endswith(b"\r\n") else -1]
        try:
            yield line.decode("utf-8"), ""
        except UnicodeDecodeError as error:
            code = "UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "ENCODING"
            why = f"not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start + 1})"
            yield line.decode("utf-8", "replace"), f"{why}; convert: iconv -f {code} -t UTF-8"


def decoded_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line of a file, plain or ``.gz``, and why it is not UTF-8, or "".

    Raises `DataError` naming the line after which the file cannot be read.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for line in _decode(stream):
                yield line
                number += 1
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read after line {number}: {error}") from None


def _lines(path: Path) -> Iterator[str | BadLine]:
    for number, (line, why) in enumerate(decoded_lines(path), start=1):
        yield BadLine(str(path), number, why) if why else line


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


def _parsed(path: Path, parse: Parser) -> Iterator[PairRow]:
    for number, line in enumerate(_lines(path), start=1):
        yield _row(path, number, line, parse)


def _row(path: Path, number: int, line: str | BadLine, parse: Parser) -> PairRow:
    try:
        return [line] if isinstance(line, BadLine) else parse(line)
    except UserError as error:
        return [BadLine(str(path), number, str(error))]


def _csv(path: Path, config: TextData) -> Iterator[PairRow]:
    """The rows of a CSV; line breaks in quotes become blanks, each line of a bad row is bad."""
    lines = decoded_lines(path)
    first = list(islice(lines, SAMPLED))
    delimiter = config.delimiter or delimiter_of([line for line, why in first if not why])
    records = _records(path, chain(first, lines), delimiter)
    begun = list[tuple[str | BadLine, int]]()
    names = ""
    for record, count in records:
        begun.append((record, count))
        if isinstance(record, str):
            names = record
            break
    parse, number = _csv_parser(path, names, delimiter, config), 1
    for record, count in chain(begun, records):
        skips = (number == 1 and config.header) or record == ""
        row = [] if skips else _row(path, number, record, parse)
        if isinstance(row, list) and row and count > 1:
            reason = f"{row[0].reason}; a row of the lines {number} to {number + count - 1}"
            yield from ([BadLine(str(path), number + n, reason)] for n in range(count))
        else:
            yield row
            yield from ([] for _ in range(count - 1))
        number += count


def _csv_parser(path: Path, names: str, delimiter: Delimiter, config: TextData) -> Parser:
    """What reads the rows of a CSV whose first one is given. Raises `DataError`."""
    header = next(csv.reader([names], delimiter=delimiter), [])
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
    except UserError as error:
        raise DataError(f"{path}:1: {error}") from None

    def parse(record: str) -> tuple[str, str]:
        try:
            cells = next(csv.reader([record], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise UserError(f"no row of a CSV: {error}") from None
        if len(cells) != len(header):
            raise UserError(f"cells: {len(cells)}; in the first row: {len(header)}")
        return cells[first], cells[second]

    return parse


def _records(
    path: Path, lines: Iterable[tuple[str, str]], delimiter: Delimiter
) -> Iterator[tuple[str | BadLine, int]]:
    """Each row of a CSV as one text, and how many lines of the file it takes.

    A row of which a line cannot be read is bad; ``lines`` are those of `decoded_lines`.
    """
    parts, start = list[str](), 1
    bad: BadLine | None = None
    for number, (line, why) in enumerate(lines, start=1):
        if why and bad is None:
            bad = BadLine(str(path), number, f"line {number}: {why}" if parts else why)
        quoted = _ends_quoted(line, delimiter, bool(parts))
        parts.append(line)
        if not quoted:
            yield bad or " ".join(parts), len(parts)
            parts, start, bad = [], number + 1, None
        elif len(parts) > QUOTED:
            break
    if parts:
        raise DataError(f"{path}:{start}: a quote is opened and not closed; close or double it")


def _ends_quoted(line: str, delimiter: Delimiter, quoted: bool) -> bool:
    """Whether a line ends in a quoted cell; ``quoted``: it begins in one.

    A quote opens a cell at its start only, as `csv` has it: ``a 5" disk`` is a cell.
    """
    if '"' not in line:
        return quoted
    place = 0
    while place >= 0:
        if quoted or line.startswith('"', place):
            place += not quoted
            if (closed := CLOSED.match(line, place)) is None:
                return True
            place, quoted = closed.end(), False
        place = line.find(delimiter, place) + 1 or -1
    return False


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
    """The places from 0 of columns given by number or name. Raises `UserError` for no such."""
    places = []
    for column in columns:
        if isinstance(column, str) and column not in header:
            raise UserError(f"no column {column!r}; there are: {', '.join(header)}")
        places.append(header.index(column) if isinstance(column, str) else column - 1)
        if places[-1] >= len(header):
            raise UserError(f"columns: {len(header)}; needed: {column}; name them in data.columns")
    return places


def looks_like_data(header: Sequence[str]) -> bool:
    """Whether the first row of a CSV holds sentences or numbers rather than names of columns."""
    return any(
        len(cell.split()) > 5 or re.search(r"[.?!…。！？]$|^[\d.,]*\d$", cell.strip())
        for cell in header
    )


def _tsv(config: TextData) -> Parser:
    numbers = [column for column in config.columns if isinstance(column, int)]
    if len(numbers) < 2:
        raise UserError("a .tsv has no header: number its columns in data.columns, such as [1, 2]")
    first, second = (column - 1 for column in numbers)
    needed, width = max(numbers), 0

    def parse(line: str) -> tuple[str, str]:
        nonlocal width
        cells = line.split("\t")
        if len(cells) < needed:
            raise UserError(f"columns between tabs: {len(cells)}; needed: {needed}")
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(f"columns between tabs: {len(cells)}; before: {width}")
        return cells[first], cells[second]

    return parse


def _jsonl(config: TextData) -> Parser:
    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
            pair = record[config.keys[0]], record[config.keys[1]]
            "".join(pair).encode("utf-8")  # both are text, and text that can be written
        except KeyError as error:
            raise UserError(f"no key {error}; name the keys in data.keys") from None
        except (ValueError, TypeError, RecursionError) as error:
            keys = " and ".join(config.keys)
            reason = "" if isinstance(error, TypeError) else f": {error}"
            raise UserError(f"no JSON object with text under {keys}{reason}") from None
        return pair

    return parse


PARSERS = {".tsv": _tsv, ".jsonl": _jsonl}


# ------------------------------------------------------------------------------ pairs of a split

Pair = tuple[int, str, str]  # the line from 1, source, target


@dataclass
class Corpus:
    """Pairs of sentences and where they stood: ``lines[i]`` is the line of pair i, from 1.

    ``skipped`` are the lines that could not be read, ``dropped`` counts pairs by the reason for
    which `clean` left them out. ``alternatives[i]`` are all right targets of source i, the first of
    them its target; None where each source has one. ``parts[i]`` is the number, from 0, of the
    corpus that pair i is of, where several were joined. ``folder`` has the files that the sides are
    mapped from, if any.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    lines: Sequence[int] | NDArray[np.int64]
    skipped: list[BadLine] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    alternatives: Sequence[tuple[str, ...]] | None = None
    parts: NDArray[np.integer] | None = None
    folder: Path | None = None

    @property
    def references(self) -> Sequence[str | tuple[str, ...]]:
        """What an output is compared with: the target, or several of which any is right."""
        return self.targets if self.alternatives is None else self.alternatives

    def __len__(self) -> int:
        return len(self.sources)

    def take(
        self, chosen: Sequence[int] | NDArray[np.integer], dropped: Mapping[str, int] | None = None
    ) -> Corpus:
        """Choose pairs by their indices, and note what was dropped besides."""
        several = self.alternatives
        return Corpus(
            sources=taken(self.sources, chosen),
            targets=taken(self.targets, chosen),
            lines=np.asarray(self.lines, dtype=np.int64)[np.asarray(chosen, dtype=np.int64)],
            skipped=self.skipped,
            dropped=self.dropped | dict(dropped or {}),
            alternatives=None if several is None else taken(several, chosen),
            parts=None if self.parts is None else self.parts[np.asarray(chosen, dtype=np.int64)],
        )

    def gathered(self) -> Corpus:
        """Each source once, with all its targets as alternatives."""
        places: dict[str, list[int]] = {}
        for i, source in enumerate(self.sources):
            places.setdefault(source, []).append(i)
        once = self.take([same[0] for same in places.values()])
        once.alternatives = [tuple(self.targets[i] for i in same) for same in places.values()]
        return once


def at(pattern: str | Path, split: str, splits: dict[str, str] | None = None) -> Path:
    """The file of a split: ``{split}`` in the pattern becomes its name, and `find` finds it."""
    return find(str(pattern).replace("{split}", (splits or {}).get(split, split)))


def file_of(pattern: str | Path, split: str, config: TextData) -> Path:
    """The file that holds a split: valid lies in that of train where ``holdout`` divides it."""
    return at(pattern, "train" if config.holdout and split == "valid" else split, config.splits)


def read_pairs(source: str | Path, target: str | Path | None, config: TextData) -> Corpus:
    r"""Read two line-aligned files, or one TSV, CSV or JSONL file, chosen by its ending.

    UTF-8, plain or ``.gz``; a byte order mark at the start is passed over; lines end in ``\n``
    or ``\r\n`` and nothing else. A TSV or CSV has as many columns in every row as in its first; a
    CSV has a header (unless ``header = false``) and cells between the ``delimiter``. With two
    files, a line that is bad in one takes its partner with it. Raise `DataError` at the first bad
    line, or list it in ``skipped`` where ``on_bad_line = "skip"``.
    """
    files = [find(source)] if target is None else [find(source), find(target)]
    skipped: list[BadLine] = []
    return _corpus(_numbered(files, config, skipped), skipped, {})


def _numbered(files: Sequence[Path], config: TextData, skipped: list[BadLine]) -> Iterator[Pair]:
    """The pairs of one file or two with their lines; lines that are passed over are noted."""
    source, target = files[0], files[1] if len(files) > 1 else None
    for number, row in enumerate(rows(source, target, config), start=1):
        if isinstance(row, tuple):
            yield (number, *row)
        elif not row:
            continue
        elif config.on_bad_line == "error":
            raise DataError(f'{row[0]}; mend it, or pass over it: data.on_bad_line = "skip"')
        else:
            skipped += row


def _corpus(pairs: Iterable[Pair], skipped: list[BadLine], dropped: dict[str, int]) -> Corpus:
    sources, targets, lines = list[str](), list[str](), array("q")
    for line, source, target in pairs:
        sources.append(source)
        targets.append(target)
        lines.append(line)
    return Corpus(sources, targets, lines, skipped, dropped)


class Reading:
    """The pairs of one of the splits train, valid, test, as they are read one after the other.

    Where no name holds ``{split}``, the file is divided by ``holdout``: pairs with the same source
    sentence (but for case, width and blanks) are always in the same split. Where one does, and
    ``holdout`` is set, the file of train is divided into train and valid, and test has its own.
    The training split is cleaned as well. ``skipped`` and ``dropped`` are complete when the last
    pair has come.
    """

    def __init__(
        self, source: str | Path, target: str | Path | None, split: str, config: TextData
    ) -> None:
        self.split, self.config = split, config
        self.files = [file_of(p, split, config) for p in (source, target) if p is not None]
        named = "{split}" in f"{source}{target}"
        self.limits: tuple[float, float] | None = None  # of the hashes, where a file is divided
        if not named or (config.holdout > 0 and split != "test"):
            self.limits = _limits(split, config, str(source), tested=named)
        self.skipped: list[BadLine] = []
        self._cleaning = Cleaning(config)
        self.dropped = self._cleaning.dropped

    def __iter__(self) -> Iterator[Pair]:
        pairs = _numbered(self.files, self.config, self.skipped)
        if self.limits is not None:
            belongs = _division(self.limits, self.config)
            pairs = (pair for pair in pairs if belongs(pair[1]))
        if self.split == "train":
            pairs = (pair for pair in pairs if self._cleaning.keeps(*pair[1:]))
        return map(self.changed, pairs)

    def changed(self, pair: Pair) -> Pair:
        """What a task makes of a pair; here nothing."""
        return pair

    def key(self) -> dict[str, object]:
        """What the pairs are a function of, next to the content of the files."""
        chosen = {name: self.config.tree().get(name) for name in _READS}
        named = self.config.on_bad_line == "skip"  # the names stand in what is skipped
        names = [str(file) if named else "".join(file.suffixes) for file in self.files]
        csv = {"csv": CSV_FORMAT} if any(ending_of(file) == CSV for file in self.files) else {}
        divided = self.limits or False
        return {"split": self.split, "divided": divided, "names": names, **chosen, **csv}


_READS = (  # the fields of a config that decide what is read
    *("format", "on_bad_line", "keys", "columns", "header", "delimiter"),
    *("holdout", "holdout_seed", "drop_duplicates", "drop_identical"),
)


def collect(reading: Reading) -> Corpus:
    """All pairs of a reading in memory; of valid and test as `to_measure` has them."""
    corpus = _corpus(reading, reading.skipped, {})
    corpus.dropped = dict(reading.dropped)
    return corpus if reading.split == "train" else to_measure(corpus, reading.config)


def read_split(
    source: str | Path, target: str | Path | None, split: str, config: TextData
) -> Corpus:
    """The pairs of a split (`Reading`) in memory."""
    return collect(Reading(source, target, split, config))


def to_measure(corpus: Corpus, config: TextData) -> Corpus:
    """Each source once with all that is right, where the format says that there may be several."""
    several = config.format is not None and config.format.build().several
    return corpus.gathered() if several else corpus


def _limits(split: str, config: TextData, file: str, tested: bool) -> tuple[float, float] | None:
    """Between which two numbers the hash of a source lies that is of a split of a divided file.

    None where all of them are of it. ``tested``: test has a file of its own.
    """
    share = config.holdout
    limits = {
        "train": (share if tested else 2 * share, 1.0),
        "valid": (0.0, share),
        "test": (share, 2 * share),
    }
    if split not in limits or (share == 0 and split != "train"):
        raise MissingData(
            f"{file} would be both train and {split};",
            "write {split} in its name, or divide it into train, valid and test: "
            "data.holdout = 0.01",
        )
    return limits[split] if share else None


def _division(limits: tuple[float, float], config: TextData) -> Callable[[str], bool]:
    """Whether a source is of a split: a hash of it lies between two limits."""
    (low, high), key = limits, str(config.holdout_seed).encode()

    def belongs(text: str) -> bool:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        digest = hashlib.blake2b(folded.encode(), digest_size=4, key=key).digest()
        return low <= int.from_bytes(digest, "big") / 2**32 < high

    return belongs


class Cleaning:
    """Which pairs are left where the config wants no duplicates or no identical sides.

    Of each pair that was kept it remembers 16 bytes; ``dropped`` counts the others by the reason.
    """

    def __init__(self, config: TextData) -> None:
        self.config = config
        self.dropped = Counter[str]()
        self._seen: set[bytes] = set()

    def keeps(self, source: str, target: str) -> bool:
        """Whether the next pair is left."""
        if self.config.drop_identical and source.strip() == target.strip():
            self.dropped["identical sides"] += 1
            return False
        if not self.config.drop_duplicates:
            return True
        name = f"{len(source)} {source}{target}".encode()
        digest = hashlib.blake2b(name, digest_size=16).digest()
        if digest in self._seen:
            self.dropped["duplicate pair"] += 1
            return False
        self._seen.add(digest)
        return True


def keep(
    lengths: NDArray[np.integer], config: TextData
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Which pairs training keeps by their lengths in tokens, and how many it drops, and why.

    *Shape:* lengths (N, 2), without ``<s>`` and ``</s>`` → indices (kept,), ascending. Each pair
    counts for the first reason that holds for it; reasons without a pair are left out.
    """
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    ratio = config.max_length_ratio or float("inf")
    unequal = longer > ratio * np.maximum(shorter, 1)
    reasons = {
        "empty side": shorter == 0,
        f"longer than max_length = {config.max_length}": longer > config.max_length,
        f"above max_length_ratio = {ratio:g}": unequal & (longer > RATIO_FROM),
    }
    left = np.ones(len(lengths), dtype=bool)
    dropped: dict[str, int] = {}
    for reason, wrong in reasons.items():
        if count := int((left & wrong).sum()):
            dropped[reason] = count
        left &= ~wrong
    return np.flatnonzero(left), dropped


# ------------------------------------------------------------------------------ mapped columns

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


class ColumnWriter(AbstractContextManager["ColumnWriter"]):
    """Writes a column piece by piece; the files are whole when it is closed."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.generic] | None = None) -> None:
        """``dtype`` is that of the entries; without it they are bytes, for `MappedTexts`."""
        self.dtype, self.rows = dtype or np.dtype(np.uint8), 0
        self._end = 0
        self._flat: BinaryIO = (folder / f"{name}.{self.dtype.name}").open("wb")
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
