"""What stands in parallel text, before anything is trained on it.

Lives here: counting and listing what is odd in pairs of sentences, and saying it in a line, a
table or JSON. Does not live here: reading the files and deciding what training keeps (``text``).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from foveate.data.text import Corpus, TextData, clean, keep, read_pairs

Count = Callable[[Sequence[str]], Sequence[int]]  # sentences → how many tokens each has
Check = Callable[[Corpus], Iterable[int]]  # a corpus → the pairs that are odd

EXAMPLES = 3  # shown of each finding
UNUSUAL = 6.0  # standard deviations of length from which a pair is an outlier
BLOCK = 500  # pairs that are tested together for a shift of one side
SHIFTS = (0, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5)
MARGIN = 0.45  # in agreement (usually about 1) of sides that belong together: 7 standard errors
BARS = "▁▂▃▄▅▆▇█"

# UTF-8 that was read as Latin-1 or Windows-1252 and written again, as in "Ã©" for "é".
_AFTER = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MOJIBAKE = re.compile(f"[ÂÃ][{_AFTER}]|â[{_AFTER}]{{2}}|ï»¿|ðŸ|(?:[ÐÑ][{_AFTER}]){{2}}")
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060\ufeff]")


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
    corpora: Mapping[str, Corpus], config: TextData, count: tuple[Count, Count] | None = None
) -> Report:
    """Look through corpora by split; ``count`` counts the tokens of source and target sentences.

    Without it, what the config drops for its length is judged by words between blanks.
    """
    train = corpora.get("train")
    splits = {}
    for name, corpus in corpora.items():
        sides = corpus.sources, corpus.targets
        counted = {"words": [_sizes(lambda text: len(text.split()), side) for side in sides]}
        if count is not None:
            counted["tokens"] = [np.asarray(count[i](sides[i]), np.int64) for i in (0, 1)]
        checks = _CHECKS | (_overlaps(train) if train is not None and name != "train" else {})
        splits[name] = SplitReport(
            pairs=len(corpus),
            lengths={unit: [_lengths(side) for side in both] for unit, both in counted.items()},
            findings=[f for title, check in checks.items() if (f := _find(title, check, corpus))],
            dropped=_dropped(corpus, [*counted.values()][-1], config) if name == "train" else {},
            skipped=[str(line) for line in corpus.skipped],
        )
    return Report(splits)


def report_files(
    files: Sequence[str | Path],
    config: TextData,
    others: Mapping[str, Sequence[str | Path]] | None = None,
    count: tuple[Count, Count] | None = None,
) -> Report:
    """Report on a TSV or JSONL or two line-aligned files; lines it cannot read are listed."""
    lenient = config.model_copy(update={"on_bad_line": "skip"})
    corpora = {}
    for name, paths in {"train": files, **(others or {})}.items():
        if len(paths) not in (1, 2):
            raise ValueError(f"{name}: give one .tsv or .jsonl, or two files; not {len(paths)}")
        corpora[name] = read_pairs(paths[0], paths[1] if len(paths) == 2 else None, lenient)
    return report(corpora, config, count)


def _sizes(size: Callable[[str], int], sentences: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(size, sentences), np.int64, len(sentences))


def _lengths(lengths: NDArray[np.int64]) -> Lengths:
    if not len(lengths):
        return Lengths(0, 0, 0.0, 0.0, 0.0, 0, 1, [])
    low, median, p95, high = np.percentile(lengths, (0, 50, 95, 100)).tolist()
    step = max(1, round(p95 / 12))
    histogram = np.bincount(np.minimum(lengths // step, 15)).tolist()
    total, mean = int(lengths.sum()), float(lengths.mean())
    return Lengths(total, int(low), median, mean, p95, int(high), step, histogram)


def _dropped(corpus: Corpus, sides: list[NDArray[np.int64]], config: TextData) -> dict[str, int]:
    cleaned = clean(corpus, config)
    left = np.searchsorted(np.asarray(corpus.lines), np.asarray(cleaned.lines))
    return cleaned.dropped | keep(np.stack(sides, axis=1)[left], config)[1]


def _find(title: str, check: Check, corpus: Corpus) -> Finding | None:
    odd = list(check(corpus))
    few = corpus.take(odd[:EXAMPLES])
    some = [
        (n, s[:120], t[:120]) for n, s, t in zip(few.lines, few.sources, few.targets, strict=True)
    ]
    return Finding(title, len(odd), some) if odd else None


def _pair(test: Callable[[str, str], object]) -> Check:
    return lambda corpus: [
        i for i, pair in enumerate(zip(corpus.sources, corpus.targets, strict=True)) if test(*pair)
    ]


def _side(test: Callable[[str], object]) -> Check:
    return _pair(lambda source, target: test(source) or test(target))


def _duplicates(corpus: Corpus) -> Iterable[int]:
    seen: set[tuple[str, str]] = set()
    for i, pair in enumerate(zip(corpus.sources, corpus.targets, strict=True)):
        if pair in seen:
            yield i
        seen.add(pair)


def _ambiguous(corpus: Corpus) -> Iterable[int]:
    targets = Counter(s for s, _ in set(zip(corpus.sources, corpus.targets, strict=True)))
    return (i for i, source in enumerate(corpus.sources) if targets[source] > 1)


def _outliers(corpus: Corpus) -> Iterable[int]:
    """Pairs of unusual lengths: |t − c·s| > 6·σ·√s in characters (Gale and Church, 1993).

    c is the ratio of all target to all source characters, and σ comes from the median of
    (t − c·s)²/s, so that the outliers do not widen it.
    """
    source, target = (_sizes(len, side) for side in (corpus.sources, corpus.targets))
    filled = np.flatnonzero((source > 0) & (target > 0))
    if len(filled) < 20:
        return []
    source, target = source[filled], target[filled]
    squares = (target - source * (target.sum() / source.sum())) ** 2 / source
    variance = max(float(np.median(squares)) / 0.4549, 1.0)  # the median of chi-square, 1 degree
    return [int(i) for i in filled[squares > UNUSUAL**2 * variance]]


def _shifted(corpus: Corpus) -> Iterable[int]:
    """Find blocks (their first pairs) whose sides agree better when moved, or do nowhere."""
    source, target = _features(corpus.sources), _features(corpus.targets)
    blocks = [slice(at, at + BLOCK) for at in range(0, len(corpus) - BLOCK // 2 + 1, BLOCK)]
    scores = [[_agreement(source[b], target[b], shift) for shift in SHIFTS] for b in blocks]
    agreement = np.array(scores).reshape(-1, len(SHIFTS))
    odd = agreement[:, 1:].max(axis=1) - agreement[:, 0] > MARGIN
    if blocks and np.median(agreement[:, 0]) < MARGIN:
        odd |= agreement[:, 0] < MARGIN
    return [block.start for block, is_odd in zip(blocks, odd, strict=True) if is_odd]


def _features(sentences: Sequence[str]) -> NDArray[np.float64]:
    """Root of the length, digits, question and exclamation marks, commas: (N, 4)."""
    counts = [
        (len(t) ** 0.5, sum(map(t.count, "0123456789")), t.count("?") + t.count("!"), t.count(","))
        for t in sentences
    ]
    return np.array(counts, np.float64).reshape(-1, 4)


def _agreement(source: NDArray[np.float64], target: NDArray[np.float64], shift: int) -> float:
    """Mean of artanh r (Fisher's z) over features; row i beside row i + shift, (N, F) each."""
    size = len(source) - abs(shift)
    a, b = source[max(0, -shift) :][:size], target[max(0, shift) :][:size]
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norm = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    varies = norm > 1e-9
    r = (a * b).sum(axis=0)[varies] / norm[varies]
    return float(np.arctanh(np.clip(r, -0.999, 0.999)).mean()) if len(r) else 0.0


def _overlaps(train: Corpus) -> dict[str, Check]:
    sources, pairs = set(train.sources), set(zip(train.sources, train.targets, strict=True))
    return {
        "source also in train": _pair(lambda source, _: source in sources),
        "pair also in train": _pair(lambda *pair: pair in pairs),
    }


_CHECKS: dict[str, Check] = {
    "empty side": _side(lambda text: not text.strip()),
    "identical sides": _pair(lambda source, target: source.strip() == target.strip() != ""),
    "duplicate of an earlier pair": _duplicates,
    "source with several targets": _ambiguous,
    "unusual ratio of lengths": _outliers,
    "replacement character U+FFFD": _side(lambda text: "\ufffd" in text),
    "wrong charset, such as Ã© for é": _side(_MOJIBAKE.search),
    "control or invisible character": _side(_CONTROL.search),
    "not in Unicode form NFC": _side(lambda text: not unicodedata.is_normalized("NFC", text)),
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
        pairs = "\n".join(_CONTROL.sub("·", text) for _, *pair in f.examples for text in pair)
        odd.add_row(f.name, f"{f.count:,}", lines, Text(pairs, no_wrap=True, overflow="ellipsis"))
    for reason, number in split.dropped.items():
        odd.add_row(f"dropped: {reason}", f"{number:,}")
    if split.skipped:
        few = "\n".join(split.skipped[:EXAMPLES])
        odd.add_row("skipped: cannot be read", f"{len(split.skipped):,}", "", Text(few))
    if odd.row_count:
        yield odd
