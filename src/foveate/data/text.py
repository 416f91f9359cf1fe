"""Parallel text: the pairs of a split, the division of a file into splits, and pairs to drop.

Files are line-aligned, TSV, CSV or JSONL, plain or gzipped. All lines that are skipped and pairs
that are dropped are counted with the reason.
"""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from foveate.config import Config
from foveate.data.catalogue import DataError, MissingData, find
from foveate.data.readers import BadLine, Delimiter, TextFormat, rows, taken

RATIO_FROM = 8  # a side of at most so many tokens is never dropped for its length ratio


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
    """Share of the sources of one file for valid, and as much for test."""
    holdout_seed: int = 0  # another seed divides the file in another way
    max_length: int = Field(default=256, gt=0)
    """Tokens of either side; a longer pair is left out of training."""
    max_length_ratio: float | None = Field(default=None, ge=1)
    """Tokens of the longer side to the shorter; pairs above are left out."""
    drop_duplicates: bool = False  # keep the first of pairs that are equal on both sides
    drop_identical: bool = False  # drop pairs whose two sides are equal
    tokenizer_sample: PositiveInt = 1_000_000  # pairs or lines that tokenizers are learnt from


Pair = tuple[int, str, str]  # the line from 1, source, target


@dataclass
class Corpus:
    """Pairs of sentences and where they stood: ``lines[i]`` is the line of pair i, from 1.

    ``skipped`` are the lines that could not be read, ``dropped`` counts pairs by the reason for
    which `clean` left them out. ``alternatives[i]`` are all right targets of source i, the first of
    them its target; None where each source has one. ``parts[i]`` is the number, from 0, of the
    corpus that pair i is of, where several were joined.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    lines: Sequence[int] | NDArray[np.int64]
    skipped: list[BadLine] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    alternatives: Sequence[tuple[str, ...]] | None = None
    parts: NDArray[np.integer] | None = None

    @property
    def references(self) -> Sequence[str | tuple[str, ...]]:
        """What an output is compared with: the target, or several of which any is right."""
        return self.targets if self.alternatives is None else self.alternatives

    def __len__(self) -> int:
        return len(self.sources)

    def take(
        self,
        chosen: Sequence[int] | NDArray[np.integer],
        dropped: Mapping[str, int] | None = None,
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
    sentence (but for case, width and blanks) are always in the same split. The training split is
    cleaned as well. ``skipped`` and ``dropped`` are complete when the last pair has come.
    """

    def __init__(
        self, source: str | Path, target: str | Path | None, split: str, config: TextData
    ) -> None:
        self.split, self.config = split, config
        self.files = [at(p, split, config.splits) for p in (source, target) if p is not None]
        self.divided = "{split}" not in f"{source}{target}"
        if self.divided:
            self._belongs = _division(split, config, str(source))
        elif config.holdout:
            both = f"data.holdout divides one file, but {source} has {{split}}; leave out one"
            raise DataError(both)
        self.skipped: list[BadLine] = []
        self._cleaning = Cleaning(config)

    @property
    def dropped(self) -> dict[str, int]:
        """How many pairs were left out, by the reason."""
        return dict(self._cleaning.dropped)

    def __iter__(self) -> Iterator[Pair]:
        pairs = _numbered(self.files, self.config, self.skipped)
        if self.divided:
            pairs = (pair for pair in pairs if self._belongs(pair[1]))
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
        return {"split": self.split, "divided": self.divided, "names": names, **chosen}


_READS = (  # the fields of a config that decide what is read
    *("format", "on_bad_line", "keys", "columns", "header", "delimiter"),
    *("holdout", "holdout_seed", "drop_duplicates", "drop_identical"),
)


def collect(reading: Reading) -> Corpus:
    """All pairs of a reading in memory; of valid and test as `to_measure` has them."""
    corpus = _corpus(reading, reading.skipped, {})
    corpus.dropped = reading.dropped
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


def _division(split: str, config: TextData, file: str) -> Callable[[str], bool]:
    """Whether a source is of a split: a hash of it lies between two limits."""
    share, key = config.holdout, str(config.holdout_seed).encode()
    limits = {"train": (2 * share, 1.0), "valid": (0.0, share), "test": (share, 2 * share)}
    if split not in limits or (share == 0 and split != "train"):
        raise MissingData(
            f"{file} would be both train and {split};",
            "write {split} in its name, or divide it into train, valid and test: "
            "data.holdout = 0.01",
        )
    low, high = limits[split]

    def belongs(text: str) -> bool:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        digest = hashlib.blake2b(folded.encode(), digest_size=4, key=key).digest()
        return low <= int.from_bytes(digest, "big") / 2**32 < high

    return belongs if share else lambda text: True


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


def clean(corpus: Corpus, config: TextData) -> Corpus:
    """Leave out duplicates and identical sides where the config says so, and count them."""
    cleaning = Cleaning(config)
    pairs = zip(corpus.sources, corpus.targets, strict=True)
    chosen = [i for i, pair in enumerate(pairs) if cleaning.keeps(*pair)]
    return corpus.take(chosen, cleaning.dropped) if cleaning.dropped else corpus


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
