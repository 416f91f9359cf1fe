"""What stands in parallel text, before anything is trained on it.

Lives here: counting and listing what is odd in pairs of sentences, and saying it in a line, a
table or JSON. Does not live here: reading the files and deciding what training keeps (``text``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from foveate.data.text import Corpus, TextData, keep, read_pairs
from foveate.data.traits import BLOCK, CONTROL, SAME, Traits, traits_of

Indices = NDArray[np.int64]
Check = Callable[[Traits], Indices]  # the traits of a corpus → the pairs that are odd

EXAMPLES = 3  # shown of each finding
UNUSUAL = 6.0  # standard deviations of length from which a pair is an outlier
MARGIN = 0.45  # in agreement (usually about 1) of sides that belong together: 7 standard errors
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Finding:
    """Something odd: how many pairs show it, and the line and both sides of a few of them."""

    name: str
    count: int
    examples: list[tuple[int, str, str]]


@dataclass(frozen=True)
class Lengths:
    """Lengths of one side; ``histogram`` counts in steps of ``step``, the last one and beyond."""

    total: int
    min: int
    median: float
    mean: float
    p95: float
    max: int
    step: int
    histogram: list[int]


@dataclass(frozen=True)
class SplitReport:
    """One split: ``lengths`` of source and target, by words and, if counted, by tokens.

    ``dropped`` counts the pairs that the config leaves out of training by the reason,
    ``skipped`` lists the lines that could not be read.
    """

    pairs: int
    lengths: dict[str, list[Lengths]]
    findings: list[Finding]
    dropped: dict[str, int]
    skipped: list[str]


@dataclass(frozen=True)
class Report:
    """What `report` found, by split."""

    splits: dict[str, SplitReport]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Say it in a few lines of text."""
        return [f"{name}: {line}" for name, one in self.splits.items() for line in _short(one)]

    def table(self) -> Group:
        """Lay it out at length for a terminal, with examples."""
        return Group(*(part for name, one in self.splits.items() for part in _long(name, one)))


def report(
    corpora: Mapping[str, Corpus],
    config: TextData,
    tokens: Mapping[str, NDArray[np.integer]] | None = None,
) -> Report:
    """Look through corpora by split; ``tokens`` (N, 2) of each are the lengths of its pairs.

    Without them, what the config drops for its length is judged by words between blanks.
    """
    splits: dict[str, SplitReport] = {}
    train: Traits | None = None
    for name, corpus in corpora.items():
        traits = traits_of(corpus, name)
        counted: dict[str, NDArray[np.integer]] = {"words": traits.words}
        if tokens is not None:
            counted["tokens"] = tokens[name]
        checks = _CHECKS | ({} if train is None else _overlaps(train))
        train = traits if name == "train" else train
        last = [*counted.values()][-1]
        splits[name] = SplitReport(
            pairs=len(corpus),
            lengths={unit: [_lengths(side) for side in both.T] for unit, both in counted.items()},
            findings=[
                _finding(title, odd, corpus)
                for title, check in checks.items()
                if len(odd := check(traits))
            ],
            dropped=corpus.dropped | _dropped(traits, last, config) if name == "train" else {},
            skipped=[str(line) for line in corpus.skipped],
        )
    return Report(splits)


def report_files(
    files: Sequence[str | Path],
    config: TextData,
    others: Mapping[str, Sequence[str | Path]] | None = None,
) -> Report:
    """Report on a TSV or JSONL or two line-aligned files; lines it cannot read are listed."""
    lenient = config.model_copy(update={"on_bad_line": "skip"})
    corpora = {}
    for name, paths in {"train": files, **(others or {})}.items():
        if len(paths) not in (1, 2):
            raise ValueError(f"{name}: give one .tsv or .jsonl, or two files; not {len(paths)}")
        corpora[name] = read_pairs(paths[0], paths[1] if len(paths) == 2 else None, lenient)
    return report(corpora, config)


def _lengths(lengths: NDArray[np.integer]) -> Lengths:
    if not len(lengths):
        return Lengths(0, 0, 0.0, 0.0, 0.0, 0, 1, [])
    low, median, p95, high = np.percentile(lengths, (0, 50, 95, 100)).tolist()
    step = max(1, round(p95 / 12))
    histogram = np.bincount(np.minimum(lengths // step, 15)).tolist()
    total, mean = int(lengths.sum()), float(lengths.mean())
    return Lengths(total, int(low), median, mean, p95, int(high), step, histogram)


def _dropped(traits: Traits, lengths: NDArray[np.integer], config: TextData) -> dict[str, int]:
    """How many pairs `clean` and `keep` leave out, each for the first reason that holds."""
    identical = traits.test(SAME) & config.drop_identical
    again = np.zeros(len(identical), dtype=bool)
    again[_duplicates(traits) if config.drop_duplicates else []] = True
    again &= ~identical
    counts = {"identical sides": int(identical.sum()), "duplicate pair": int(again.sum())}
    found = {reason: count for reason, count in counts.items() if count}
    return found | keep(lengths[~identical & ~again], config)[1]


def _finding(title: str, odd: Indices, corpus: Corpus) -> Finding:
    few = corpus.take(odd[:EXAMPLES])
    sides = zip(few.lines, few.sources, few.targets, strict=True)
    return Finding(title, len(odd), [(int(n), s[:120], t[:120]) for n, s, t in sides])


def _test(name: str) -> Check:
    return lambda traits: np.flatnonzero(traits.test(name))


def _identical(traits: Traits) -> Indices:
    return np.flatnonzero(traits.test(SAME) & ~traits.test("empty side"))


def _first(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Where each key stands for the first time."""
    order = np.argsort(keys, kind="stable")
    first = np.ones(len(keys), dtype=bool)
    first[order[1:]] = keys[order[1:]] != keys[order[:-1]]
    return first


def _duplicates(traits: Traits) -> Indices:
    return np.flatnonzero(~_first(traits.keys[:, 1]))


def _ambiguous(traits: Traits) -> Indices:
    sources, pairs = traits.keys.T
    found, targets = np.unique(sources[_first(pairs)], return_counts=True)
    return np.flatnonzero(np.isin(sources, found[targets > 1]))


def _outliers(traits: Traits) -> Indices:
    """Pairs of unusual lengths: |t − c·s| > 6·σ·√s in characters (Gale and Church, 1993).

    c is the ratio of all target to all source characters, and σ comes from the median of
    (t − c·s)²/s, so that the outliers do not widen it.
    """
    filled = np.flatnonzero((traits.characters > 0).all(axis=1))
    if len(filled) < 20:
        return filled[:0]
    source, target = traits.characters[filled].T.astype(np.int64)
    squares = (target - source * (target.sum() / source.sum())) ** 2 / source
    variance = max(float(np.median(squares)) / 0.4549, 1.0)  # the median of chi-square, 1 degree
    return filled[squares > UNUSUAL**2 * variance]


def _shifted(traits: Traits) -> Indices:
    """Find blocks (their first pairs) whose sides agree better when moved, or do nowhere."""
    agreement = traits.agreement
    odd = agreement[:, 1:].max(axis=1, initial=-np.inf) - agreement[:, 0] > MARGIN
    if len(agreement) and np.median(agreement[:, 0]) < MARGIN:
        odd |= agreement[:, 0] < MARGIN
    return np.flatnonzero(odd) * BLOCK


def _overlaps(train: Traits) -> dict[str, Check]:
    return {
        "source also in train": lambda own: np.flatnonzero(
            np.isin(own.keys[:, 0], train.keys[:, 0])
        ),
        "pair also in train": lambda own: np.flatnonzero(np.isin(own.keys[:, 1], train.keys[:, 1])),
    }


_CHECKS: dict[str, Check] = {
    "empty side": _test("empty side"),
    "identical sides": _identical,
    "duplicate of an earlier pair": _duplicates,
    "source with several targets": _ambiguous,
    "unusual ratio of lengths": _outliers,
    "replacement character U+FFFD": _test("replacement character U+FFFD"),
    "wrong charset, such as Ã© for é": _test("wrong charset, such as Ã© for é"),
    "control or invisible character": _test("control or invisible character"),
    "not in Unicode form NFC": _test("not in Unicode form NFC"),
    f"block of {BLOCK} pairs whose sides seem shifted": _shifted,
}


def _short(split: SplitReport) -> Iterable[str]:
    parts = [f"{split.pairs:,} pairs"]
    for unit, (source, target) in split.lengths.items():
        parts.append(f"{unit} {source.total:,} → {target.total:,}")
        parts.append(f"longest {source.max:,} → {target.max:,}")
    yield ", ".join(parts)
    if split.dropped:
        reasons = "; ".join(f"{reason}: {n:,}" for reason, n in split.dropped.items())
        yield f"dropped (lengths in {[*split.lengths][-1]}): {reasons}"
    if split.skipped:
        yield f"{len(split.skipped):,} lines skipped, the first: {split.skipped[0]}"
    if split.findings:
        odd = (f"{f.name}: {f.count:,} (line {f.examples[0][0]})" for f in split.findings)
        yield "odd: " + "; ".join(odd)


def _long(name: str, split: SplitReport) -> Iterable[Table]:
    lengths = Table("", "total", "min", "median", "mean", "95 %", "max", "histogram")
    lengths.title = f"{name}: {split.pairs:,} pairs"
    for unit, sides in split.lengths.items():
        for side, one in zip(("source", "target"), sides, strict=True):
            most = max(one.histogram, default=0)
            bars = "".join(BARS[(8 * n - 1) // most] if n else " " for n in one.histogram)
            figures = (f"{n:,.4g}" for n in (one.min, one.median, one.mean, one.p95, one.max))
            row = f"{unit} of {side}", f"{one.total:,}", *figures
            lengths.add_row(*row, f"|{bars}| 1 bar = {one.step}")
    yield lengths
    odd = Table("odd, dropped or skipped", "pairs", "line", "examples")
    for f in split.findings:
        lines = "\n\n".join(str(line) for line, _, _ in f.examples)
        pairs = "\n".join(CONTROL.sub("·", text) for _, *pair in f.examples for text in pair)
        odd.add_row(f.name, f"{f.count:,}", lines, Text(pairs, no_wrap=True, overflow="ellipsis"))
    for reason, number in split.dropped.items():
        odd.add_row(f"dropped: {reason}", f"{number:,}")
    if split.skipped:
        few = "\n".join(split.skipped[:EXAMPLES])
        odd.add_row("skipped: cannot be read", f"{len(split.skipped):,}", "", Text(few))
    if odd.row_count:
        yield odd
