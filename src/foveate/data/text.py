"""Text: the rows of files, the pairs of a split, and columns of rows in mapped files.

Files are line-aligned, TSV, CSV or JSONL, plain or gzipped. All skipped lines and dropped pairs are
counted with the reason.
"""

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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from foveate.config import BaseConfig, Config, FromConfig
from foveate.data.bilingual import Unit, units_of_po, units_of_tmx, units_of_xliff
from foveate.data.catalogue import DataError, MissingData, find
from foveate.errors import UserError, checked, returned, signed

Delimiter = Literal[",", ";", "\t", "|"]
DELIMITERS: tuple[Delimiter, ...] = (",", ";", "\t", "|")
FEATURES = re.compile(r"[^\sa-z<>]+")  # of UniMorph, such as V;SBJV;PRS;2;SG or V.PTCP;PST
JSON = (".jsonl", ".ndjson", ".json")
CSV = ".csv"
FASTTEXT = "__label__"  # before each label in files of fastText
HEAD = 512  # bytes at the start of a file that reveal a format other than text
SHEET = "export its sheet as .csv"
PAGES = "export its pages as .txt"
SIGNATURES = {  # the first bytes of files that are not text, and the fix
    b"%PDF-": f"a PDF file: {PAGES}",
    b"PK\x03\x04": f"an archive or an office document: unpack it, {SHEET}, or its pages as .txt",
    b"\xd0\xcf\x11\xe0": f"an old Office file: {SHEET}, or its pages as .txt",
    b"{\\rtf": f"an RTF file: {PAGES}",
    b"\x1f\x8b": "a gzip file: add .gz to its name",
    b"\xde\x12\x04\x95": "a compiled catalogue: make PO of it by msgunfmt",
    b"PAR1": "a Parquet file: export it as .jsonl",
    b"SQLite format 3": "an SQLite database: export a table as .csv",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
}
SUBTITLES = "subtitles: give their text alone"
CONLL = "token lines (CoNLL): give its text as .txt, a sentence a line"
DAMAGED = "not UTF-8, the bytes read as U+FFFD"
PLAIN = "is translated by foveate translate, but not read as training data"
OTHERS = {  # endings of documents that are not training data
    ".pot": "a template of PO files, which has no translations: give the .po of a language",
    ".srt": f"an SRT file, which {PLAIN}: give its text as .txt",
    ".html": f"an HTML file, which {PLAIN}: give its text as .txt",
    ".htm": f"an HTML file, which {PLAIN}: give its text as .txt",
    ".docx": f"a DOCX file, which {PLAIN}: {PAGES}",
    ".odt": f"an ODT file, which {PLAIN}: {PAGES}",
    ".xlsx": f"an Excel file: {SHEET}",
    ".ods": f"an ODS file: {SHEET}",
    **dict.fromkeys((".usfm", ".sfm"), f"a USFM file, which {PLAIN}: give its verses as .tsv"),
    **dict.fromkeys((".vtt", ".ass", ".ssa", ".sub"), f"a file of {SUBTITLES}"),
    **dict.fromkeys((".conll", ".conllu"), f"a file of {CONLL}"),
}
HIDDEN = {  # first lines that reveal another format
    r'\A\s*\{\s*"': "JSON objects: name it .jsonl",
    r"\A\s*\[\s*\{": "a JSON array: name it .json",
    r'(?m)^msgid ".*\n(".*\n)*msgstr ': "a PO catalogue: name it .po",
    r"\A(WEBVTT|\d+\n\d\d:\d\d:\d\d[,.]\d+ -->|\[Script Info\]|\{\d+\}\{\d+\})": SUBTITLES,
    r"\A(-DOCSTART-|(#.*\n)*1\t(\S+\t){8}|(\S+[ \t](\S+[ \t])*(O|[BIES]-\w+)(\n|\Z))+\Z)": CONLL,
}
MAC = "convert it: tr '\\r' '\\n' < FILE > NEW"
SEP = re.compile(r'"?sep=([^"\s]|\t)"?\s*', re.IGNORECASE)  # Excel's line that sets a delimiter
SAMPLED = 50  # lines from which the delimiter of a CSV is detected
QUOTED = 1000  # most lines that a quoted cell of a CSV may span
RATIO_FROM = 8  # a side with at most this many tokens is never dropped for its length ratio
UNPAIRED = "has no counterpart"  # the reason for leaving out a line of the longer file

CUT = "longer than the model allows, cut"  # noted of such an input
SKIPPED = "that cannot be read, skipped"  # noted of a line of the data: it has no output


class TextFormat(FromConfig, ABC):
    """Reads lines of a layout that the ending of a file does not tell.

    With ``several``, lines with the same source are all correct answers to it: training sees each
    as a pair, other splits have each source once.
    """

    class Config(BaseConfig, family="text_format"):
        """The kind of layout."""

        def sources(self, lines: Sequence[str]) -> list[str]:
            """Return the sources of lines."""
            return list(map(self.build().source, lines))

    several: ClassVar[bool] = False

    @abstractmethod
    def parse(self, line: str) -> tuple[str, str]:
        """Return source and target of a line; raise `UserError` with what is wrong with it."""

    def source(self, line: str) -> str:
        """Return the source in a user's line; raise `UserError` if there is none.

        A line that is already a source is returned unchanged.
        """
        return line


class CMUdict(TextFormat):
    """``word(2) W ER1 D # comment`` → ``word``, ``W ER1 D``: a pronouncing dictionary.

    Without ``stress``, ``W ER D``: the 39 phones that published error rates are counted on.
    """

    class Config(TextFormat.Config, kind="cmudict"):
        """The choice whether vowels keep their digit: 1 main stress, 2 secondary, 0 none."""

        stress: bool = True  # whether vowels keep their digit of stress

    config: Config
    several = True

    def parse(self, line: str) -> tuple[str, str]:
        word, _, phones = line.partition(" # ")[0].strip().partition(" ")
        if not word or not phones:
            raise UserError(f"needs a word, a space and phones, not {line!r}")
        if not self.config.stress:
            phones = re.sub(r"\d", "", phones)
        return re.sub(r"\(\d+\)$", "", word), " ".join(phones.split())


class Inflection(TextFormat, kind="inflection"):
    """``Hahn TAB Hahnes TAB N;GEN;SG`` → ``Hahn<N><GEN><SG>``, ``Hahnes`` (Cotterell, 2018)."""

    def parse(self, line: str) -> tuple[str, str]:
        cells = line.split("\t")
        if len(cells) != 3:
            raise UserError(f"needs lemma, form and features between tabs, not {line!r}")
        lemma, form, features = cells
        return lemma + "".join(f"<{feature}>" for feature in features.split(";")), form

    def source(self, line: str) -> str:
        """Also accept a raw line of the data, with or without its form: ``Hahn TAB N;GEN;SG``."""
        cells = line.split("\t")
        if len(cells) == 1 and (not line.strip() or line.rstrip().endswith(">")):
            return line
        if len(cells) in (2, 3) and cells[0] and FEATURES.fullmatch(cells[-1]):
            return self.parse(f"{cells[0]}\t\t{cells[-1]}")[0]
        raise UserError(
            f"{line!r} is not a lemma with features: write Hahn<N><GEN><SG>, or a line of the "
            "data: lemma TAB features (N;GEN;SG), or lemma TAB form TAB features"
        )


class FastText(TextFormat, kind="fasttext"):
    """``__label__good a fine film`` → ``a fine film``, ``good``: the training files of fastText."""

    def parse(self, line: str) -> tuple[str, str]:
        labels = [word for word in line.split() if word.startswith(FASTTEXT)]
        if len(labels) != 1:
            raise UserError(f"{len(labels)} labels; one is needed, such as __label__good TEXT")
        text = " ".join(word for word in line.split() if word != labels[0])
        return text, labels[0].removeprefix(FASTTEXT)

    def source(self, line: str) -> str:
        return self.parse(line)[0] if line.startswith(FASTTEXT) else line


class TextData(Config):
    """The reading of parallel text, its division into splits, and the choice for training."""

    format: TextFormat.Config | None = None  # layout of one file, where its ending does not tell
    on_bad_line: Literal["error", "skip"] = "error"
    """Stop at a line that cannot be read, or skip and count it."""
    splits: dict[str, str] = Field(default_factory=dict)
    """Names of the splits in file names: { valid = "val" }."""
    keys: tuple[str, str] = ("source", "target")  # keys of source and target in JSONL
    columns: tuple[PositiveInt | str, PositiveInt | str] = (1, 2)
    """Columns of source and target in TSV and CSV, from 1; in CSV also by name."""
    languages: tuple[str, str] | None = None
    """Of source and target in a TMX, such as ["en", "fr"]; where absent, it has just two."""
    swap_sides: bool = False  # whether the second side of each pair is the source
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


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and the reason; lines count from 1."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Record = TypeVar("Record")  # a record of a file: a line, the cells of a row, a JSON object
# an empty list: a line without a row, such as a header; a text: why a pair is left out
PairRow = tuple[str, str] | list[BadLine] | str


def rows(
    source: Path, target: str | Path | None, config: TextData
) -> Iterator[tuple[int, PairRow]]:
    """Yield each row with its line from 1: its two sides, its bad lines, or why it is left out.

    A folder gives the rows of all its tables, which hold both sides of their pairs.
    """
    whole = target is None and config.format is None
    for file in files_of(source) if whole else (source,):
        if whole and ending_of(file) in BILINGUAL:
            for unit in BILINGUAL[ending_of(file)](file, config):
                yield unit.line, unit.left_out or (unit.source, unit.target)
        else:
            yield from enumerate(_rows(file, target, config), start=1)


def files_of(source: Path) -> list[Path]:
    """Return a file, or a folder's files with pairs, by name; raise `DataError` without any."""
    if not source.is_dir():
        return [source]
    inside = (path for path in sorted(source.rglob("*")) if path.is_file())
    files = [path for path in inside if is_table(path) and path.name[:1] != "."]
    if not files:
        endings = ", ".join((*BILINGUAL, *READERS))
        raise DataError(f"{source} is a folder without a file that ends in {endings}")
    return files


def _rows(source: Path, target: str | Path | None, config: TextData) -> Iterator[PairRow]:
    if config.format is not None:
        if target is not None:
            both = f"a file of the data.format {config.format.kind} holds both sides"
            raise DataError(f"{source}: {both}; leave out {target}")
        return _parsed(source, config.format.build().parse)
    if not is_table(source):
        if target is None:
            next(decoded_lines(source), None)  # it raises for an unsupported format
            raise DataError(f"{source} contains one side only; name the target file too")
        return _aligned(source, find(target))
    if target is not None:
        raise DataError(
            f"{source} holds both sides, as {', '.join((*READERS, *BILINGUAL))} do; leave out the "
            "target, or list several files in task.corpora"
        )
    return READERS[ending_of(source)](source, config)


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, before a ``.gz``: ``.tsv``."""
    return Path(path.name.removesuffix(".gz")).suffix


def is_table(path: Path) -> bool:
    """Return whether a path holds both sides of its pairs: by its ending, or as a folder."""
    return ending_of(path) in (*READERS, *BILINGUAL) or path.is_dir()


def _refuse_others(path: Path, head: bytes) -> None:
    """Raise `DataError` if the ending or the first bytes are those of another format."""
    what = OTHERS.get(ending_of(path).lower()) or next(
        (what for begin, what in SIGNATURES.items() if head.startswith(begin)), None
    )
    if what is None and re.match(rb"\s*(<\?xml|<!doctype|<html)", head, re.IGNORECASE):
        what = "XML or HTML: give its text as .txt, or pairs as .tsv, .tmx or .po"
    halves = head[:64:2], head[1:64:2]
    for ascii_half, zeros, code in ((*halves, "UTF-16LE"), (*halves[::-1], "UTF-16BE")):
        if what is None and len(head) >= 8 and all(ascii_half) and not any(zeros):
            what = f"{code}: convert it: iconv -f {code} -t UTF-8"
    if what is not None:
        raise DataError(f"{path} is {what}")


def layout_of(path: Path) -> dict[str, object]:
    """Return the fields of [data] for a layout that a file's name or first lines reveal.

    Raises `DataError` for a format that the file's ending does not match.
    """
    ending = ending_of(path)
    if ending == ".dict":
        return {"format": "cmudict"}
    if ending != ".tsv" and is_table(path):
        return {}
    lines = [line for line, _ in islice(decoded_lines(path), SAMPLED) if line.strip()]
    first = next(iter(lines), "")
    sample = "\n".join(lines)
    for form, what in HIDDEN.items():
        if ending != ".tsv" and re.search(form, sample):
            raise DataError(f"{path} holds {what}")
    if ending != ".tsv" and lines and all(" ||| " in line for line in lines):
        raise DataError(f"{path} holds both sides between |||: write a tab in its place, as .tsv")
    cells = first.split("\t")
    if ending == ".tsv" and len(cells) == 3 and FEATURES.fullmatch(cells[-1]):
        return {"format": "inflection"}
    return {"format": "fasttext"} if first.startswith(FASTTEXT) else {}


def _decode(stream: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield each line as text, and why it is not UTF-8, or ""; bad bytes become U+FFFD."""
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
    """Yield each line of a file, plain or ``.gz``, and why it cannot be read, or "".

    Raises `DataError` with the line after which the file cannot be read, and for a format that is
    not plain text.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            _refuse_others(path, stream.peek(HEAD)[:HEAD])
            for line, why in _decode(stream):
                if not number and "\r" in line and not stream.peek(1):
                    raise DataError(f"{path} has only CR line ends: {MAC}")
                yield line, why
                number += 1
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read after line {number}: {error}") from None


def _lines(path: Path) -> Iterator[str | BadLine]:
    for number, (line, why) in enumerate(decoded_lines(path), start=1):
        yield BadLine(str(path), number, why) if why else line


def read_lines(stream: Iterable[bytes], damaged: list[int]) -> Iterator[str]:
    """Yield the lines of standard input as text, as many as there are, whatever they contain.

    A last line without an end counts, and so does an empty line. Invalid UTF-8 becomes U+FFFD, and
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
            reason = f"{UNPAIRED}: {long} has {total} lines, {short} has {number - 1}"
            yield from ([BadLine(str(long), n, reason)] for n in range(number, total + 1))
            return
        bad = [side for side in pair if isinstance(side, BadLine)]
        yield bad or cast(tuple[str, str], pair)


def _parsed(path: Path, parse: Callable[[str], tuple[str, str]]) -> Iterator[PairRow]:
    for number, line in enumerate(_lines(path), start=1):
        yield _row(path, number, line, parse)


def _row(
    path: Path, number: int, line: Record | BadLine, parse: Callable[[Record], tuple[str, str]]
) -> PairRow:
    try:
        return [line] if isinstance(line, BadLine) else parse(line)
    except UserError as error:
        return [BadLine(str(path), number, str(error))]


# A row of a CSV: its first line from 1, how many lines it takes, its cells or its error.
CSVRow = tuple[int, int, list[str] | BadLine]


class CSVFile:
    """The rows of a CSV, to be read once; line breaks in quotes become spaces.

    Without a ``delimiter`` it is that of a first line ``sep=;``, as written by Excel, else the one
    that fits the first lines. Raises `DataError` if two fit equally well.
    """

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self.path, lines = path, decoded_lines(path)
        first = list(islice(lines, SAMPLED))
        if first and (named := SEP.fullmatch(first[0][0])) is not None:
            delimiter, first[0] = delimiter or named[1], ("", "")
        if delimiter is None:
            fits = delimiters_of([line for line, why in first if not why])
            if len(fits) > 1:
                both = " and between ".join(map(repr, fits))
                raise DataError(
                    f"{path}: the cells can be read between {both}: set data.delimiter, or that "
                    "of a series, task.series.delimiter"
                )
            delimiter = fits[0]
        self.delimiter = delimiter
        self._lines = chain(first, lines)

    def __iter__(self) -> Iterator[CSVRow]:
        return _records(self.path, self._lines, self.delimiter)


Rows = Callable[[Path, TextData], Iterator[PairRow]]
READERS: dict[str, Rows] = {}  # by the ending of a file that holds both sides
BILINGUAL: dict[str, Callable[[Path, TextData], Iterator[Unit]]] = {}  # of translators' formats


def pair_reader(*endings: str) -> Callable[[Rows], Rows]:
    """Register a reader of files that hold both sides: (path, config) → a `PairRow` for each line.

    ``endings`` are those of file names, such as ".csv". Raises `UserError` if another reader has
    one of them.
    """

    def register(reader: Rows) -> Rows:
        name, rows = signed(reader), checked(reader, Iterable)

        @wraps(reader)
        def read(path: Path, config: TextData) -> Iterator[PairRow]:
            for row in rows(path, config):
                yield returned(row, tuple[str, str] | list[BadLine], f"{name}, as an item,")

        for ending in endings:
            known = READERS.get(ending) or BILINGUAL.get(ending) or reader
            if known.__module__ != reader.__module__:
                raise UserError(f"foveate reads files that end in {ending} already")
            READERS[ending] = read if name else reader
        return reader

    return register


@pair_reader(CSV)
def _csv(path: Path, config: TextData) -> Iterator[PairRow]:
    """Yield the rows of a CSV; all lines of a bad row are bad, a bad first one is a `DataError`."""
    parse: Callable[[list[str]], tuple[str, str]] | None = None
    for number, count, cells in CSVFile(path, config.delimiter):
        if parse is None and config.header and isinstance(cells, BadLine):
            raise DataError(str(cells))  # this row has the column names
        row: PairRow = [cells] if isinstance(cells, BadLine) else []
        if isinstance(cells, list) and cells:
            begins, parse = parse is None, parse or _csv_parser(f"{path}:{number}", cells, config)
            row = [] if begins and config.header else _row(path, number, cells, parse)
        if isinstance(row, list) and row and count > 1:
            reason = f"{row[0].reason}; the row spans lines {number} to {number + count - 1}"
            yield from ([BadLine(str(path), number + n, reason)] for n in range(count))
        else:
            yield row
            yield from ([] for _ in range(count - 1))


def _csv_parser(
    where: str, header: list[str], config: TextData
) -> Callable[[list[str]], tuple[str, str]]:
    """Return a parser for the rows of a CSV with this first row. Raises `DataError`."""
    named = any(isinstance(column, str) for column in config.columns)
    if config.header and not named and looks_like_data(header):
        raise DataError(
            f"{where}: the first row of a CSV names the columns, and {header[0][:40]!r} looks "
            "like data; add a row of names, or set data.header = false"
        )
    if named and not config.header:
        raise DataError(f"{where}: data.columns are names, but data.header = false; number them")
    try:
        first, second = places_of(config.columns, header)
    except UserError as error:
        raise DataError(f"{where}: {error}") from None

    def parse(cells: list[str]) -> tuple[str, str]:
        if len(cells) != len(header):
            single = any(cell.startswith("'") for cell in cells)
            hint = "; quote cells with \", not '" if single and len(cells) > len(header) else ""
            raise UserError(f"{len(cells)} cells; the first row has {len(header)}{hint}")
        return cells[first], cells[second]

    return parse


def _records(path: Path, lines: Iterable[tuple[str, str]], delimiter: str) -> Iterator[CSVRow]:
    """Yield each row of a CSV, none of its cells if it is empty.

    A row with an unreadable line is bad; ``lines`` are those of `decoded_lines`. A quote only opens
    a cell at its start: ``a 5" disk`` is a cell.
    """
    start, bad = 1, list[BadLine]()
    unclosed = "a quoted cell is never closed; close the quote, or double it"

    def fed() -> Iterator[str]:
        for number, (line, why) in enumerate(lines, start=1):
            if number - start > QUOTED:
                raise DataError(f"{path}:{start}: {unclosed}")
            if why:
                why = f"line {number}: {why}" if number > start else why
                bad.append(BadLine(str(path), number, why))
            yield line + "\n"

    rows = csv.reader(fed(), delimiter=delimiter, strict=True)
    while True:
        row: list[str] | BadLine
        try:
            row = [cell.replace("\n", " ") for cell in next(rows)]
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if "unexpected end" in reason:
                raise DataError(f"{path}:{start}: {unclosed}") from None
            if "field limit" in reason:
                reason = f"a cell has more than {csv.field_size_limit():,} characters; shorten it"
            elif "new-line" in reason:
                reason = "a CR outside quotes; lines end in LF or CRLF"
            row = BadLine(str(path), start, f"not a row of a CSV: {reason}")
        yield start, rows.line_num - start + 1, bad[0] if bad else row
        start, bad = rows.line_num + 1, []


def delimiters_of(lines: Sequence[str]) -> list[Delimiter]:
    """Return the possible delimiters of a CSV: those that split lines into equally many cells.

    There are at least 2 cells. If several fit, it is the one that most lines agree on, then the one
    with most cells; both are returned if they fit all lines with as many cells.
    """

    def fit(delimiter: Delimiter) -> tuple[float, int]:
        rows = list[list[str]]()
        with suppress(DataError):  # the sample may end inside quotes
            for _, _, cells in _records(Path(), ((line, "") for line in lines), delimiter):
                rows += [cells] if cells and isinstance(cells, list) else []
        width = len(rows[0]) if rows else 1
        if width < 2:
            return 0.0, 0
        return sum(len(cells) == width for cells in rows) / len(rows), width

    fits = {delimiter: fit(delimiter) for delimiter in DELIMITERS}
    best = max(fits.values())
    return [d for d, own in fits.items() if own == best][: 1 if best[0] < 1 else None]


def places_of(columns: Iterable[int | str], header: Sequence[str]) -> list[int]:
    """Return the indices of columns given by number or name. Raises `UserError` without one."""
    places = []
    for column in columns:
        if isinstance(column, str) and column not in header:
            raise UserError(f"no column {column!r}; the columns are: {', '.join(header)}")
        if isinstance(column, str) and header.count(column) > 1:
            raise UserError(f"the header has {column!r} twice; rename one of the columns")
        places.append(header.index(column) if isinstance(column, str) else column - 1)
        if places[-1] >= len(header):
            raise UserError(
                f"{len(header)} columns, but column {column} is needed; set data.columns"
            )
    return places


def looks_like_data(header: Sequence[str]) -> bool:
    """Return whether the first row of a CSV holds sentences or numbers, not column names."""
    return any(
        len(cell.split()) > 5 or re.search(r"[.?!…。！？]$|^[\d.,]*\d$", cell.strip())
        for cell in header
    )


@pair_reader(".tsv")
def _tsv(path: Path, config: TextData) -> Iterator[PairRow]:
    numbers = [column for column in config.columns if isinstance(column, int)]
    if len(numbers) < 2:
        raise UserError("a .tsv has no header: number its columns in data.columns, such as [1, 2]")
    first, second = (column - 1 for column in numbers)
    needed, width = max(numbers), 0

    def parse(line: str) -> tuple[str, str]:
        nonlocal width
        cells = line.split("\t")
        if len(cells) < needed:
            raise UserError(f"{len(cells)} columns between tabs; {needed} are needed")
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(f"{len(cells)} columns between tabs; earlier lines have {width}")
        return cells[first], cells[second]

    return _parsed(path, parse)


def unique_keys(items: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object. Raises `UserError` if a key occurs twice."""
    record = dict(items)
    if len(record) < len(items):
        twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
        raise UserError(f"has the key {twice!r} twice")
    return record


def from_json_text(text: str) -> object:
    """Parse a JSON value, with numbers as the text that was written. Raises `UserError`."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=unique_keys)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}") from None


def text_under(record: object, key: str) -> str:
    """Return the text, number or truth value of a key in a JSON object, as text.

    Raises `UserError` if it has another value or none.
    """
    if not isinstance(record, dict):
        raise UserError(f"not a JSON object with a text under {key}: {str(record)[:40]}")
    if key not in record:
        raise UserError(f"no key {key!r}; set data.keys to two of: {', '.join(record)[:200]}")
    value = record[key]
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        what = {type(None): "null", list: "a list", dict: "an object"}.get(type(value), "a number")
        raise UserError(f"{key} is {what}, not a text: write a text, or name another in data.keys")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{key} cannot be written as text: {error}") from None
    return value


def json_records(path: Path) -> Iterator[tuple[int, object]]:
    """Yield the items of a JSON array, numbered from 1, or of JSON lines, with their lines.

    The array may be the only list of objects in an object, as in {"data": [{…}, …]}. An item such
    as {"translation": {"en": …, "fr": …}} also gets the keys of the inner object. A line that is
    not JSON is a `BadLine`. Raises `DataError` for an array that cannot be read.
    """
    lines = decoded_lines(path)
    first = list(islice(lines, 2))
    begin = first[0][0].lstrip() if first else ""
    if begin.startswith("[") or (begin.startswith("{") and not _is_record(first)):
        text = "\n".join(line for line, _ in chain(first, lines))
        try:
            items = _array(from_json_text(text))
        except UserError as error:
            raise DataError(f"{path}: not a JSON array: {error}") from None
        yield from enumerate(map(_flat, items), start=1)
        return
    for number, (line, why) in enumerate(chain(first, lines), start=1):
        try:
            yield number, BadLine(str(path), number, why) if why else _flat(from_json_text(line))
        except UserError as error:
            yield number, BadLine(str(path), number, str(error))


def _is_record(first: Sequence[tuple[str, str]]) -> bool:
    """Return whether the first lines of a file begin JSON lines, not one object of lists."""
    try:
        record = from_json_text(first[0][0])
    except UserError:
        return len(first) > 1 and first[1][0].lstrip().startswith("{")  # one bad line of several
    return len(first) > 1 or not _arrays(record)


def _arrays(value: object) -> list[list[object]]:
    """Return the lists of objects directly inside a JSON object."""
    inside = value.values() if isinstance(value, dict) else ()
    return [v for v in inside if isinstance(v, list) and v and isinstance(v[0], dict)]


def _array(value: object) -> list[object]:
    """Return a JSON array, or the only list of objects in a JSON object. Raises `UserError`."""
    if isinstance(value, list):
        return value
    if len(arrays := _arrays(value)) != 1:
        raise UserError("it has no list of objects, or several: write one, [{…}, …]")
    return arrays[0]


def _flat(item: object) -> object:
    """Return the item plus the keys of its only object, as "translation" in Hugging Face data."""
    inner = [v for v in item.values() if isinstance(v, dict)] if isinstance(item, dict) else []
    return {**inner[0], **cast(dict[str, object], item)} if len(inner) == 1 else item


@pair_reader(*JSON)
def _json(path: Path, config: TextData) -> Iterator[PairRow]:
    def both(record: object) -> tuple[str, str]:
        source, target = (text_under(record, key) for key in config.keys)
        return source, target

    return (_row(path, number, record, both) for number, record in json_records(path))


def _po(path: Path, config: TextData) -> Iterator[Unit]:
    def lines() -> Iterator[str]:
        for number, (line, why) in enumerate(decoded_lines(path), start=1):
            if why:
                raise DataError(f"{path}:{number}: {why}")
            yield line

    return units_of_po(lines(), str(path))


BILINGUAL |= {
    ".po": _po,
    ".tmx": lambda path, config: units_of_tmx(path, config.languages),
    ".xlf": lambda path, config: units_of_xliff(path),
    ".xliff": lambda path, config: units_of_xliff(path),
}


Pair = tuple[int, str, str]  # the line from 1, source, target


@dataclass
class Corpus:
    """Pairs of sentences and where they come from: ``lines[i]`` is the line of pair i, from 1.

    ``skipped`` are the lines that could not be read, ``dropped`` counts the pairs that `cleaned`
    left out, by the reason. ``alternatives[i]`` are all correct targets of source i, beginning with
    its target; None if each source has one. ``parts[i]`` is the number, from 0, of the corpus of
    pair i, if several were joined, ``names`` those of the parts. ``folder`` has the files that the
    sides are mapped from, if any.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    lines: Sequence[int] | NDArray[np.int64]
    skipped: list[BadLine] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    alternatives: Sequence[tuple[str, ...]] | None = None
    parts: NDArray[np.integer] | None = None
    folder: Path | None = None
    names: Sequence[str] = ()

    @property
    def references(self) -> Sequence[str | tuple[str, ...]]:
        """The references of outputs: the target, or several correct ones."""
        return self.targets if self.alternatives is None else self.alternatives

    def __len__(self) -> int:
        return len(self.sources)

    def take(
        self, chosen: Sequence[int] | NDArray[np.integer], dropped: Mapping[str, int] | None = None
    ) -> "Corpus":
        """Select pairs by their indices, and note what was dropped besides."""
        several = self.alternatives
        return Corpus(
            sources=taken(self.sources, chosen),
            targets=taken(self.targets, chosen),
            lines=np.asarray(self.lines, dtype=np.int64)[np.asarray(chosen, dtype=np.int64)],
            skipped=self.skipped,
            dropped=self.dropped | dict(dropped or {}),
            alternatives=None if several is None else taken(several, chosen),
            parts=None if self.parts is None else self.parts[np.asarray(chosen, dtype=np.int64)],
            names=self.names,
        )

    def gathered(self) -> "Corpus":
        """Return each source once, with all its targets as alternatives."""
        places: dict[str, list[int]] = {}
        for i, source in enumerate(self.sources):
            places.setdefault(source, []).append(i)
        once = self.take([same[0] for same in places.values()])
        once.alternatives = [tuple(self.targets[i] for i in same) for same in places.values()]
        return once


def joined(corpora: Sequence[Corpus], names: Sequence[str] = ()) -> Corpus:
    """Join corpora into one, in order, with the ``names`` of these parts."""
    if len(corpora) == 1:
        return corpora[0]
    dropped = sum((Counter(corpus.dropped) for corpus in corpora), Counter[str]())
    several = any(corpus.alternatives is not None for corpus in corpora)
    alternatives = [
        (text,) if isinstance(text, str) else text
        for corpus in corpora
        for text in corpus.references
    ]
    return Corpus(
        list(chain.from_iterable(corpus.sources for corpus in corpora)),
        list(chain.from_iterable(corpus.targets for corpus in corpora)),
        array("q", chain.from_iterable(corpus.lines for corpus in corpora)),
        list(chain.from_iterable(corpus.skipped for corpus in corpora)),
        dict(dropped),
        alternatives if several else None,
        np.repeat(range(len(corpora)), [len(corpus) for corpus in corpora]) if names else None,
        names=names,
    )


def at(pattern: str | Path, split: str, splits: dict[str, str] | None = None) -> Path:
    """Return the file of a split: its name replaces ``{split}`` in the pattern, for `find`."""
    return find(str(pattern).replace("{split}", (splits or {}).get(split, split)), folders=True)


def file_of(pattern: str | Path, split: str, config: TextData) -> Path:
    """Return the file that holds a split: train's for valid, if ``holdout`` divides it."""
    return at(pattern, "train" if config.holdout and split == "valid" else split, config.splits)


def read_pairs(source: str | Path, target: str | Path | None, config: TextData) -> Corpus:
    r"""Read two line-aligned files, or one file or folder that holds both sides, by its ending.

    UTF-8, plain or ``.gz``; a byte order mark at the start is skipped; lines end in ``\n`` or
    ``\r\n`` and nothing else. A TSV or CSV has as many columns in every row as in its first; a CSV
    has a header (unless ``header = false``) and cells separated by the ``delimiter``. With two
    files, a bad line also removes its counterpart. Raise `DataError` at the first bad line, or list
    it in ``skipped`` with ``on_bad_line = "skip"``.
    """
    skipped, left_out = list[BadLine](), Counter[str]()
    path = find(source, folders=True)
    return _corpus(_numbered(path, target, config, skipped, left_out), skipped, left_out)


def _numbered(
    source: Path,
    target: str | Path | None,
    config: TextData,
    skipped: list[BadLine],
    left_out: Counter[str],
) -> Iterator[Pair]:
    """Yield the pairs with their lines; note the lines skipped and the pairs left out."""
    for number, row in rows(source, target, config):
        if isinstance(row, tuple):
            yield (number, *(row[::-1] if config.swap_sides else row))
        elif isinstance(row, str):
            left_out[row] += 1
        elif not row:
            continue
        elif config.on_bad_line == "error":
            raise DataError(f'{row[0]}; fix it, or skip such lines: data.on_bad_line = "skip"')
        else:
            skipped += row


def _corpus(pairs: Iterable[Pair], skipped: list[BadLine], dropped: Mapping[str, int]) -> Corpus:
    sources, targets, lines = list[str](), list[str](), array("q")
    for line, source, target in pairs:
        sources.append(source)
        targets.append(target)
        lines.append(line)
    return Corpus(sources, targets, lines, skipped, dict(dropped))


class Reading:
    """The pairs of one of the splits train, valid, test, read one after another.

    If no name contains ``{split}``, the file is divided by ``holdout``: pairs with the same source
    sentence (up to case, width and spaces) are always in the same split. If one does, and
    ``holdout`` is set, the file of train is divided into train and valid, and test has its own. The
    training split is also cleaned. ``skipped`` and ``dropped`` are complete after the last pair.
    """

    def __init__(
        self, source: str | Path, target: str | Path | None, split: str, config: TextData
    ) -> None:
        self.split, self.config = split, config
        self._sides = [file_of(p, split, config) for p in (source, target) if p is not None]
        self.files = [*files_of(self._sides[0]), *self._sides[1:]]
        named = "{split}" in f"{source}{target}"
        self.limits: tuple[float, float] | None = None  # of the hashes, if a file is divided
        if not named or (config.holdout > 0 and split != "test"):
            self.limits = _limits(split, config, str(source), tested=named)
        self.skipped: list[BadLine] = []
        self.dropped = Counter[str]()

    def __iter__(self) -> Iterator[Pair]:
        source, target = self._sides[0], self._sides[1] if len(self._sides) > 1 else None
        left_out = self.dropped if self.split == "train" else Counter[str]()
        pairs = _numbered(source, target, self.config, self.skipped, left_out)
        if self.limits is not None:
            low, high = self.limits
            pairs = (pair for pair in pairs if low <= self._share(pair[1]) < high)
        if self.split == "train":
            pairs = cleaned(pairs, self.config, self.dropped)
        return map(self.changed, pairs)

    def _share(self, source: str) -> float:
        """Return a hash of a source from 0 to 1, by which a file is divided into splits."""
        folded = " ".join(unicodedata.normalize("NFKC", source).casefold().split())
        key = str(self.config.holdout_seed).encode()
        digest = hashlib.blake2b(folded.encode(), digest_size=4, key=key).digest()
        return int.from_bytes(digest, "big") / 2**32

    def changed(self, pair: Pair) -> Pair:
        """Return a pair changed by the task; here unchanged."""
        return pair

    def key(self) -> dict[str, object]:
        """Return what the pairs depend on, besides the content of the files."""
        chosen = {name: self.config.tree().get(name) for name in _READS}
        named = self.config.on_bad_line == "skip"  # skipped lines contain the names
        names = [str(file) if named else "".join(file.suffixes) for file in self.files]
        return {"split": self.split, "divided": self.limits or False, "names": names, **chosen}


_READS = (  # the config fields that determine what is read
    *("format", "on_bad_line", "keys", "columns", "header", "delimiter", "languages"),
    *("swap_sides", "holdout", "holdout_seed", "drop_duplicates", "drop_identical"),
)


def collect(reading: Reading) -> Corpus:
    """Read all pairs into memory; valid and test are converted by `to_measure`."""
    corpus = _corpus(reading, reading.skipped, reading.dropped)
    return corpus if reading.split == "train" else to_measure(corpus, reading.config)


def to_measure(corpus: Corpus, config: TextData) -> Corpus:
    """Return each source once with all correct targets, if the format allows several."""
    several = config.format is not None and config.format.build().several
    return corpus.gathered() if several else corpus


def _limits(split: str, config: TextData, file: str, tested: bool) -> tuple[float, float] | None:
    """Return the range of source hashes that belong to a split of a divided file.

    None if all of them do. ``tested``: test has a file of its own.
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


def cleaned(pairs: Iterable[Pair], config: TextData, dropped: Counter[str]) -> Iterator[Pair]:
    """Yield the pairs without duplicates or identical sides, if the config wants none.

    ``dropped`` counts the others by reason; 16 bytes of each pair are remembered.
    """
    seen = set[bytes]()
    for pair in pairs:
        _, source, target = pair
        if config.drop_identical and source.strip() == target.strip():
            dropped["identical sides"] += 1
            continue
        if config.drop_duplicates:
            name = f"{len(source)} {source}{target}".encode()
            digest = hashlib.blake2b(name, digest_size=16).digest()
            if digest in seen:
                dropped["duplicate pair"] += 1
                continue
            seen.add(digest)
        yield pair


def keep(
    lengths: NDArray[np.integer], config: TextData
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Return the pairs that training keeps by their lengths in tokens, and drop counts by reason.

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


Number = TypeVar("Number", bound=np.generic)
Row = TypeVar("Row")
Places = NDArray[np.int64]


class Column(Sequence[Row], Generic[Row]):
    """Rows in two files of a folder, ``NAME.DTYPE`` and ``NAME.offsets``; all, or chosen ones."""

    def __init__(
        self, flat: NDArray[np.generic], offsets: Places, chosen: NDArray[np.generic] | None = None
    ):
        """Take ``flat`` (total,), ``offsets`` (rows + 1,) and ``chosen``, the rows in order."""
        self.flat, self.offsets, self.chosen = flat, offsets, chosen

    @classmethod
    def open(cls, folder: Path, name: str) -> Self:
        """Map the column of that name that a `ColumnWriter` wrote into a folder."""
        offsets = mapped(folder / f"{name}.offsets", np.dtype(np.int64))
        file = next(f for f in folder.glob(f"{name}.*") if f.suffix != ".offsets")
        return cls(mapped(file, np.dtype(file.suffix[1:])), offsets)

    @abstractmethod
    def _row(self, part: NDArray[np.generic]) -> Row:
        """Return the row for a part of the flat array."""

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

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Self:
        """Return the rows of some indices, still in their files."""
        indices = np.asarray(rows, dtype=indices_for(len(self.offsets)))
        chosen = indices if self.chosen is None else self.chosen[indices]
        return type(self)(self.flat, self.offsets, chosen)

    def lengths(self) -> Places:
        """Return the entries of each row, (N,): bytes of a text, tokens of a list of ids."""
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
    """Writes a column piece by piece; the files are complete when it is closed."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.generic] | None = None) -> None:
        """Take the ``dtype`` of the entries; without it they are bytes, for `MappedTexts`."""
        self.dtype, self.rows = dtype or np.dtype(np.uint8), 0
        self._end = 0
        self._flat: BinaryIO = (folder / f"{name}.{self.dtype.name}").open("wb")
        self._offsets: BinaryIO = (folder / f"{name}.offsets").open("wb")
        self._offsets.write(np.zeros(1, dtype=np.int64).tobytes())

    def add(self, flat: bytes | NDArray[np.generic], lengths: NDArray[np.integer]) -> None:
        """Add rows: their entries, concatenated, and the length of each."""
        self._flat.write(flat if isinstance(flat, bytes) else flat.astype(self.dtype).tobytes())
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self._offsets.write(ends.tobytes())
        self.rows += len(ends)
        self._end = int(ends[-1]) if len(ends) else self._end

    def add_texts(self, texts: Iterable[str]) -> int:
        """Add rows to a column of texts; return their size in bytes."""
        encoded = [text.encode() for text in texts]
        flat = b"".join(encoded)
        self.add(flat, np.fromiter(map(len, encoded), np.int64, len(encoded)))
        return len(flat)

    def __exit__(self, *error: object) -> None:
        self._flat.close()
        self._offsets.close()


def mapped(file: Path, dtype: np.dtype[Number]) -> NDArray[Number]:
    """Map a file of numbers as an array (N,) that the system reads as needed."""
    if not file.stat().st_size:
        return np.empty(0, dtype=dtype)
    return np.memmap(file, dtype=dtype, mode="r").view(np.ndarray)


def indices_for(count: int) -> np.dtype[np.generic]:
    """Return the smallest dtype for indices below ``count``: 4 bytes up to 4 billion."""
    return np.dtype(np.uint32 if count <= 1 << 32 else np.int64)


def portions(items: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Yield lists of ``size`` items, the last one shorter."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion


def taken(rows: Sequence[Row], chosen: Sequence[int] | NDArray[np.integer]) -> Sequence[Row]:
    """Return some rows of a list, or of a column and still in its files."""
    return rows.take(chosen) if isinstance(rows, Column) else [rows[i] for i in chosen]
