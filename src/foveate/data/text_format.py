r"""What a line of a file means: a pair of texts, by the file's ending or by a format of its own.

Lives here: from one line to a source and a target. Does not live here: opening files, bad lines,
splits (`text`), and how texts become tokens (`tokenizer`).
"""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Literal, Protocol

from foveate.config import BaseConfig, Configurable

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

        stress: bool = True

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


# ------------------------------------------------------------------------------ by ending


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
            raise ValueError(f"no JSON object with text under {keys}: {error}") from None
        return pair

    return parse


PARSERS = {".tsv": _tsv, ".jsonl": _jsonl}
