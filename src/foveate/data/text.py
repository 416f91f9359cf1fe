"""Reading parallel text: line-aligned files, TSV and JSONL, plain or gzip; which pairs are kept.

Lives here: from files to pairs of strings with their line numbers, the division of a file that
has no splits, and the choice of pairs. Whatever is skipped or dropped is counted with its reason.
Does not live here: where files come from (``download``), tokens (``tokenizer``), ``batch``.
"""

from __future__ import annotations

import gzip
import hashlib
import unicodedata
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from foveate.config import Config
from foveate.data.catalogue import DataError as DataError
from foveate.data.download import find
from foveate.data.text_format import PARSERS, Parser, TextFormat

RATIO_FROM = 8  # a side of at most so many tokens is never dropped for its length ratio
_BOM = b"\xef\xbb\xbf"


class TextData(Config):
    """How parallel text is read, divided into splits, and chosen for training."""

    format: TextFormat.Config | None = None  # of one file, where its ending does not tell
    on_bad_line: Literal["error", "skip"] = "error"  # stop there, or skip and count
    splits: dict[str, str] = Field(default_factory=dict)  # their names: { valid = "val" }
    keys: tuple[str, str] = ("source", "target")  # of JSONL
    columns: tuple[PositiveInt, PositiveInt] = (1, 2)  # of TSV, source and target
    holdout: float = Field(default=0.0, ge=0, lt=0.5)  # share of sources for valid, and for test
    holdout_seed: int = 0
    max_length: int = Field(default=256, gt=0)  # tokens of either side; a longer pair is dropped
    max_length_ratio: float | None = Field(default=None, ge=1)  # tokens, longer side to shorter
    drop_duplicates: bool = False  # keep the first of pairs that are equal on both sides
    drop_identical: bool = False  # drop pairs whose two sides are equal


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why; lines count from 1."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


Row = tuple[str, str] | list[BadLine]


@dataclass
class Corpus:
    """Pairs of sentences and where they stood: ``lines[i]`` is the line of pair i, from 1.

    ``skipped`` are the lines that could not be read, ``dropped`` counts pairs by the reason for
    which `clean` left them out. ``alternatives[i]`` are all right targets of source i, the first of
    them its target; None where each source has one.
    """

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]
    skipped: list[BadLine] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    alternatives: list[tuple[str, ...]] | None = None

    @property
    def references(self) -> Sequence[str | tuple[str, ...]]:
        """What an output is compared with: the target, or several of which any is right."""
        return self.targets if self.alternatives is None else self.alternatives

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, chosen: Sequence[int], dropped: Mapping[str, int] | None = None) -> Corpus:
        """Choose pairs by their indices, and note what was dropped besides."""
        return Corpus(
            [self.sources[i] for i in chosen],
            [self.targets[i] for i in chosen],
            array("q", (self.lines[i] for i in chosen)),
            self.skipped,
            self.dropped | dict(dropped or {}),
            None if self.alternatives is None else [self.alternatives[i] for i in chosen],
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


def read_pairs(source: str | Path, target: str | Path | None, config: TextData) -> Corpus:
    r"""Read two line-aligned files, or one TSV or JSONL file, chosen by its ending.

    UTF-8, plain or ``.gz``; a byte order mark at the start is passed over; lines end in ``\n``
    or ``\r\n`` and nothing else. A TSV has as many columns in every line as in its first. With
    two files, a line that is bad in one takes its partner with it. Raise `DataError` at the
    first bad line, or list it in ``skipped`` where ``on_bad_line = "skip"``.
    """
    corpus = Corpus([], [], array("q"))
    lines = cast("array[int]", corpus.lines)
    for number, row in enumerate(_rows(find(source), target, config), start=1):
        if isinstance(row, tuple):
            corpus.sources.append(row[0])
            corpus.targets.append(row[1])
            lines.append(number)
        elif config.on_bad_line == "error":
            raise DataError(f'{row[0]}; mend it, or pass over it: data.on_bad_line = "skip"')
        else:
            corpus.skipped += row
    return corpus


def _rows(source: Path, target: str | Path | None, config: TextData) -> Iterator[Row]:
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


def read_split(
    source: str | Path, target: str | Path | None, split: str, config: TextData
) -> Corpus:
    """Read one of the splits train, valid, test; the training split is cleaned as well.

    Where no name holds ``{split}``, the file is divided by ``holdout``: pairs with the same
    source sentence (but for case, width and blanks) are always in the same split.
    """
    paths = [at(path, split, config.splits) for path in (source, target) if path is not None]
    corpus = read_pairs(paths[0], paths[1] if target is not None else None, config)
    if "{split}" not in f"{source}{target}":
        corpus = _divide(corpus, split, config, str(source))
    elif config.holdout:
        raise DataError(f"data.holdout divides one file, but {source} has {{split}}; leave out one")
    return clean(corpus, config) if split == "train" else to_measure(corpus, config)


def to_measure(corpus: Corpus, config: TextData) -> Corpus:
    """Each source once with all that is right, where the format says that there may be several."""
    several = config.format is not None and config.format.build().several
    return corpus.gathered() if several else corpus


def _divide(corpus: Corpus, split: str, config: TextData, file: str) -> Corpus:
    """The pairs of a split: its sources lie between two limits by a hash of them."""
    share, key = config.holdout, str(config.holdout_seed).encode()
    limits = {"train": (2 * share, 1.0), "valid": (0.0, share), "test": (share, 2 * share)}
    if split not in limits or (share == 0 and split != "train"):
        raise DataError(
            f"{file} would be both train and {split}; write {{split}} in its name, or divide it"
            " into train, valid and test: data.holdout = 0.01"
        )
    low, high = limits[split]
    chosen = []
    for i, text in enumerate(corpus.sources):
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        digest = hashlib.blake2b(folded.encode(), digest_size=4, key=key).digest()
        if low <= int.from_bytes(digest, "big") / 2**32 < high:
            chosen.append(i)
    return corpus.take(chosen)


def clean(corpus: Corpus, config: TextData) -> Corpus:
    """Leave out duplicates and identical sides where the config says so, and count them."""
    seen: set[tuple[str, str]] = set()
    chosen, dropped = [], Counter[str]()
    for i, pair in enumerate(zip(corpus.sources, corpus.targets, strict=True)):
        if config.drop_identical and pair[0].strip() == pair[1].strip():
            dropped["identical sides"] += 1
        elif config.drop_duplicates and pair in seen:
            dropped["duplicate pair"] += 1
        else:
            chosen.append(i)
            seen.add(pair)
    return corpus.take(chosen, dropped) if dropped else corpus


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
