"""Anomalies in data before training: counts, duplicates, lengths, shifted sides."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from foveate.data.catalogue import DataError, find
from foveate.data.corpus import Arrays, Meter, Values, Work, in_order, read_text, spans_of
from foveate.data.series import SeriesData, date_column, labels, scan, usual_step
from foveate.data.text import (
    BILINGUAL,
    Corpus,
    MappedTexts,
    TextData,
    ending_of,
    files_of,
    is_table,
    joined,
    keep,
    layout_of,
    read_pairs,
)
from foveate.data.words import UNSPACED, identifier, language, language_of, mixed
from foveate.errors import UserError

BLOCK = 500  # pairs tested together for a shift of one side
SHIFTS = (0, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5)

# UTF-8 that was read as Latin-1 or Windows-1252 and written again, as in "Ã©" for "é".
_AFTER = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MOJIBAKE = re.compile(f"[ÂÃ][{_AFTER}]|â[{_AFTER}]{{2}}|ï»¿|ðŸ|(?:[ÐÑ][{_AFTER}]){{2}}")
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060\ufeff]")

# Tests of a pair by their names in reports.
SAME = "both sides the same, or both empty"
KEY = "key in place of a text, such as help_text"
_KEY = re.compile(r"\w*[^\W_]_[^\W_]\w*")
_CHARACTERS: dict[str, Callable[[str], object]] = {  # true if either side has it
    "U+FFFD: not UTF-8 (convert by iconv), or lost before": lambda text: "\ufffd" in text,
    "wrong charset, such as Ã© for é": _MOJIBAKE.search,
    "control or invisible character": CONTROL.search,
    "not in Unicode form NFC": lambda text: not unicodedata.is_normalized("NFC", text),
}
TESTS = ("empty side", SAME, KEY, *_CHARACTERS)


@dataclass(frozen=True)
class Traits:
    """Measurements of N pairs: ``words`` and ``characters`` (N, 2) of source and target.

    ``keys`` (N, 2) are hashes of the source and of the pair; ``odd`` (N, tests) says which tests
    hold; ``agreement`` (blocks, shifts) is that of each `BLOCK` pairs' sides, one moved.
    """

    words: NDArray[np.int32]
    characters: NDArray[np.int32]
    keys: NDArray[np.uint64]
    odd: NDArray[np.bool_]
    agreement: NDArray[np.float64]

    def test(self, name: str) -> NDArray[np.bool_]:
        """Return for which pairs a test holds."""
        return self.odd[:, TESTS.index(name)]


def traits_of(corpus: Corpus, name: str = "") -> Traits:
    """Measure a corpus, a prepared one with all processors."""
    spans = spans_of(len(corpus)) or [(0, 0)]
    with Meter(f"looking through {name}", len(corpus), "pairs") as meter:
        if corpus.folder is not None:
            results = in_order(_traits_maker, {"folder": str(corpus.folder)}, spans)
        else:
            sides = corpus.sources, corpus.targets
            results = (_traits(sides[0][a:b], sides[1][a:b]) for a, b in spans)
        parts = []
        for (first, stop), arrays in zip(spans, results, strict=True):
            parts.append(arrays)
            meter.add(stop - first)
    return Traits(**{key: np.concatenate([part[key] for part in parts]) for key in parts[0]})


def _traits_maker(values: Values) -> Work:
    source, target = (
        MappedTexts.open(Path(values["folder"]), side) for side in ("source", "target")
    )
    return lambda first, stop: _traits(source[first:stop], target[first:stop])


def _traits(sources: Sequence[str], targets: Sequence[str]) -> Arrays:
    """Return the traits of some pairs; all spans but the last consist of whole blocks."""
    pairs = list(zip(sources, targets, strict=True))
    odd = []
    for source, target in pairs:
        s, t = source.strip(), target.strip()
        either = [bool(f(source) or f(target)) for f in _CHARACTERS.values()]
        odd.append([not s or not t, s == t, bool(_KEY.fullmatch(s)), *either])
    words = [(count_words(s), count_words(t)) for s, t in pairs]
    characters = [(len(s), len(t)) for s, t in pairs]
    keys = [(_key(s), _key(f"{len(s)} {s}{t}")) for s, t in pairs]
    left, right = _features(sources), _features(targets)
    blocks = range(0, len(pairs) - BLOCK // 2 + 1, BLOCK)
    agreement = [
        [_agreement(left[at : at + BLOCK], right[at : at + BLOCK], shift) for shift in SHIFTS]
        for at in blocks
    ]
    return {
        "words": np.array(words, np.int32).reshape(-1, 2),
        "characters": np.array(characters, np.int32).reshape(-1, 2),
        "keys": np.array(keys, np.uint64).reshape(-1, 2),
        "odd": np.array(odd, bool).reshape(-1, len(TESTS)),
        "agreement": np.array(agreement, np.float64).reshape(-1, len(SHIFTS)),
    }


def count_words(text: str) -> int:
    """Count the words between spaces; in scripts without spaces each character is one."""
    if text.isascii() or not UNSPACED.search(text):
        return len(text.split())
    return len(UNSPACED.findall(text)) + len(UNSPACED.sub(" ", text).split())


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _features(sentences: Sequence[str]) -> NDArray[np.float64]:
    """Return the root of the length, digits, question and exclamation marks, commas: (N, 4)."""
    counts = [
        (len(t) ** 0.5, sum(map(t.count, "0123456789")), t.count("?") + t.count("!"), t.count(","))
        for t in sentences
    ]
    features = np.array(counts, np.float64).reshape(-1, 4)
    if not len(features):
        return features
    # One huge line would dominate every correlation: its features are clipped at 3 times the usual.
    return np.minimum(features, 3 * np.maximum(np.percentile(features, 95, axis=0), 1))


def _agreement(source: NDArray[np.float64], target: NDArray[np.float64], shift: int) -> float:
    """Return the mean of artanh r (Fisher's z) over features; row i beside row i + shift."""
    size = len(source) - abs(shift)
    a, b = source[max(0, -shift) :][:size], target[max(0, shift) :][:size]
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norm = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    varies = norm > 1e-9
    r = (a * b).sum(axis=0)[varies] / norm[varies]
    return float(np.arctanh(np.clip(r, -0.999, 0.999)).mean()) if len(r) else 0.0


Mask = NDArray[np.bool_]
Check = Callable[[Traits], Mask]  # the traits of a corpus → which pairs are odd

Kind = Literal["pairs", "labelled", "text", "series"]

EXAMPLES = 3  # examples shown per finding
LABELS = 50  # most labels shown
UNUSUAL = 6.0  # standard deviations of length beyond which a pair is an outlier
MARGIN = 0.45  # of the agreement (usually about 1) of matching sides: 7 standard errors


@dataclass(frozen=True)
class Finding:
    """An anomaly: how many pairs show it, and the place and both sides of a few of them.

    A place is a line, or FILE:LINE where there are several files.
    """

    name: str
    count: int
    examples: list[tuple[int | str, str, str]]


@dataclass(frozen=True)
class Lengths:
    """Lengths of one side of the pairs."""

    total: int
    min: int
    median: float
    mean: float
    p95: float
    max: int


@dataclass(frozen=True)
class SplitReport:
    """One split of text: ``lengths`` of each side, by words and, if counted, by tokens.

    ``dropped`` counts the pairs that the config leaves out of training by reason, ``skipped`` lists
    the lines that could not be read. ``languages`` are the codes of the sides, None if unknown;
    ``labels`` counts each label of labelled text, the most frequent first.
    """

    pairs: int
    lengths: dict[str, list[Lengths]]
    findings: list[Finding]
    dropped: dict[str, int]
    skipped: list[str]
    kind: Kind = "pairs"
    languages: list[str | None] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SeriesReport:
    """A series: its rows and ``channels``, the usual time ``step``, and where rows are missing.

    ``missing`` counts the cells without a value by channel; ``constant`` channels never change.
    """

    file: str
    rows: int
    channels: list[str]
    first: str
    last: str
    step: str
    gaps: list[str]
    missing: dict[str, int]
    constant: list[str]
    delimiter: str
    decimal: str
    kind: Kind = "series"
    utc: bool = False  # the dates have UTC offsets


@dataclass(frozen=True)
class DataReport:
    """The findings of `report`, by split."""

    splits: dict[str, SplitReport]
    series: dict[str, SeriesReport] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the report on texts as a few lines."""
        return [f"{name}: {line}" for name, split in self.splits.items() for line in _short(split)]

    def table(self) -> Group:
        """Return the full report for a terminal, with examples."""
        parts = [part for name, split in self.splits.items() for part in _long(name, split)]
        for name, split in self.series.items():
            table = Table("", split.file, title=f"{name}: series")
            for what, value in _series_rows(split):
                table.add_row(what, Text(value))
            parts.append(table)
        return Group(*parts)


def report(
    corpora: Mapping[str, Corpus],
    config: TextData,
    tokens: Mapping[str, NDArray[np.integer]] | None = None,
    kind: Kind = "pairs",
    named: tuple[str, str] | None = None,
) -> DataReport:
    """Examine corpora by split; ``tokens`` (N, 2) are the lengths of each one's pairs.

    Without them, what the config drops for its length is judged by words between spaces. The
    targets of ``"labelled"`` text are labels, those of plain ``"text"`` are its lines again.
    ``named`` are the languages that the sides are named after.
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
        sides = slice(0, 2 if kind == "pairs" else 1)
        findings = []
        for check_name, check in checks.items():
            same = kind == "pairs" or check_name in _CHARACTERS
            title = check_name if same else _TITLES[kind].get(check_name)
            if title is not None:
                findings += _finding(title, check(traits), corpus)
        texts = (corpus.sources, corpus.targets)[sides]
        languages = [
            language_of(side, name)
            for side, name in zip(texts, named or (None, None), strict=False)
        ]
        if kind == "pairs":
            findings += _odd_sides(corpus, languages, named, splits.get("train"))
        if kind == "pairs" and tokens is None:  # training starts without checking every pair
            findings += _swapped_pairs(corpus, *languages)
        counts = dict(Counter(corpus.targets).most_common()) if kind == "labelled" else {}
        findings += _odd_labels(corpus, counts, splits.get("train")) if counts else []
        splits[name] = SplitReport(
            pairs=len(corpus),
            lengths={unit: [_lengths(s) for s in both.T[sides]] for unit, both in counted.items()},
            findings=findings,
            dropped=corpus.dropped
            | (_dropped(traits, last, config) if name == "train" and kind == "pairs" else {}),
            skipped=[str(line) for line in corpus.skipped],
            kind=kind,
            languages=languages,
            labels=counts,
        )
    return DataReport(splits)


def report_files(
    files: Sequence[str | Path],
    config: TextData,
    others: Mapping[str, Sequence[str | Path]] | None = None,
    kind: Kind | None = None,
    series: SeriesData | None = None,
) -> DataReport:
    """Report on pairs, labelled or plain text or a series, listing lines that cannot be read.

    Pairs and labelled text are any number of tables, such as TSV, JSONL or PO, or two line-aligned
    files. Without a ``kind`` the training files reveal it. ``series`` says how a series is read.
    """
    named = {"train": files, **(others or {})}
    for name, paths in named.items():
        if len(paths) not in (1, 2) and not _are_tables(paths):
            raise UserError(f"{name}: give one file, or two files; not {len(paths)}")
    first = find(files[0], folders=True)
    if first.is_file() and first.stat().st_size == 0:
        raise DataError(f"{first} is empty")
    if kind is None and len(files) == 1 and config.format is None:
        config = TextData.parse(config.tree() | layout_of(first))
    if kind is None and len(files) == 1 and config.format is None:
        plain: Kind | None = None if is_table(first) else "text"
        own = series or SeriesData(path=str(first), delimiter=config.delimiter)
        kind = "series" if date_column(first, own) is not None else plain
    if kind == "series":
        return DataReport({}, {name: _series(p[0], series) for name, p in named.items()})
    lenient = config.model_copy(update={"on_bad_line": "skip"})
    corpora = {name: _read(paths, lenient, kind) for name, paths in named.items()}
    if kind is None:
        train = corpora["train"]
        either = are_labels(train.targets) or are_labels(train.sources)
        pairs = any(ending_of(file) in BILINGUAL for file in files_of(first))
        kind = "labelled" if either and not pairs else "pairs"
    return report(corpora, config, kind=kind, named=_named(files))


def _are_tables(paths: Sequence[str | Path]) -> bool:
    """Return whether each file holds both sides of its pairs."""
    return all(is_table(find(path, folders=True)) for path in paths)


def _read(paths: Sequence[str | Path], config: TextData, kind: Kind | None) -> Corpus:
    """Read pairs from two files or from tables; for plain text each line is paired with itself."""
    names = paths
    if kind != "text" and len(paths) == 1 and config.format is None:
        folder = find(paths[0], folders=True)
        paths = files_of(folder)
        names = [path.relative_to(folder) for path in paths]
    if kind != "text" and len(paths) > 1 and _are_tables(paths):
        return joined([read_pairs(path, None, config) for path in paths], list(map(str, names)))
    if kind != "text":
        return read_pairs(paths[0], paths[1] if len(paths) == 2 else None, config)
    if len(paths) == 2:
        raise DataError(f"plain text is one file, not {paths[0]} and {paths[1]}")
    file = find(paths[0], folders=True)
    if is_table(file):
        corpus = read_pairs(file, None, config)
        return Corpus(corpus.sources, corpus.sources, corpus.lines, corpus.skipped, corpus.dropped)
    lines = read_text(file, config).lines
    return Corpus(lines, lines, range(1, len(lines) + 1))


def _named(files: Sequence[str | Path]) -> tuple[str, str] | None:
    """Return the languages that two files are named after, or both in the name of one."""
    known = dict(identifier().rank("a"))
    codes = [[c for c in re.split(r"[._-]", Path(f).name.lower()) if c in known] for f in files]
    languages = codes[0] if len(files) == 1 else [code for own in codes for code in own[-1:]]
    differ = len(languages) == 2 and languages[0] != languages[1]
    return (languages[0], languages[1]) if differ else None


def _odd_sides(
    corpus: Corpus,
    languages: list[str | None],
    named: tuple[str, str] | None,
    train: SplitReport | None,
) -> list[Finding]:
    """Return findings of sides in several languages, or others than named or than in train."""
    source, target = languages
    titles = []
    sides = ("source", corpus.sources, source), ("target", corpus.targets, target)
    for side, texts, code in sides:
        if code is None and (shares := mixed(texts)):
            read = " and ".join(f"{name} ({share:.0%})" for name, share in shares.items())
            titles.append(
                f"{side} reads as {read}; if these are languages to choose from, put the files of "
                f'each into task.corpora of their own, with tag = "<2{next(iter(shares))}>", …'
            )
    if named is not None and (source, target) == named[::-1]:
        title = f"sides seem swapped: named {named[0]} and {named[1]}, they read as"
        titles.append(f"{title} {source} and {target}")
    elif named is not None:
        for side, code, name in zip(("source", "target"), languages, named, strict=True):
            if code is not None and code != name:
                titles.append(f"{side} reads as {code}, not as {name}")
    if train is not None and source != target and languages == train.languages[::-1]:
        titles.append(f"sides seem swapped: in train {target} → {source}")
    every = [True] * len(corpus)
    return [finding for title in titles for finding in _finding(title, every, corpus)]


def _swapped_pairs(corpus: Corpus, source: str | None, target: str | None) -> list[Finding]:
    """Return pairs whose sides are each in the language of the other side."""
    if source is None or target is None or source == target:
        return []
    pairs = zip(corpus.sources, corpus.targets, strict=True)
    odd = [language(s) == target and language(t) == source for s, t in pairs]
    return _finding(f"pair the other way round, {target} → {source}", odd, corpus)


def are_labels(values: Sequence[str]) -> bool:
    """Return whether a column holds labels: few short values, each many times."""
    distinct = set(values)
    few = len(distinct) <= max(2, len(values) // 20) and len(values) >= 6
    return few and all(len(value) <= 80 and len(value.split()) <= 6 for value in distinct)


def _odd_labels(corpus: Corpus, counts: dict[str, int], train: SplitReport | None) -> list[Finding]:
    """Return columns that seem swapped, and labels that never occur in training."""
    plain = Counter(" ".join(label.split()).casefold() for label in counts)
    same = [plain[" ".join(label.split()).casefold()] > 1 for label in corpus.targets]
    findings = _finding("labels that differ in blanks or case alone", same, corpus)
    if are_labels(corpus.sources) and not are_labels(corpus.targets):
        title = (
            f"columns seem swapped: {len(set(corpus.sources)):,} texts, {len(counts):,} labels; "
            "exchange data.columns, data.keys or the files"
        )
        findings += _finding(title, [True] * len(corpus), corpus)
    elif train is not None:
        new = [label not in train.labels for label in corpus.targets]
        findings += _finding("label that train does not have", new, corpus)
    return findings


def dated(path: str | Path, series: SeriesData | None = None) -> SeriesData:
    """Return how to read a series, with the column and format of its dates if detected."""
    series = series or SeriesData(path=str(path))
    if (column := date_column(find(path), series)) is None:
        return series
    return series.model_copy(update={"date": column[0], "date_format": column[1]})


def _series(path: str | Path, series: SeriesData | None) -> SeriesReport:
    table = scan(series or dated(path), path)
    dates, missing = labels(table.dates), np.isnan(table.values)
    same = np.array([np.unique(column[~np.isnan(column)]).size <= 1 for column in table.values.T])
    counts = dict(zip(table.names, missing.sum(axis=0).tolist(), strict=True))
    return SeriesReport(
        table.file,
        len(table),
        list(table.names),
        dates[0],
        dates[-1],
        usual_step(table.dates) if len(table) > 1 else "none, one row",
        [table.gap(int(row)) for row in table.gaps],
        {name: count for name, count in counts.items() if count},
        [name for name, constant in zip(table.names, same, strict=True) if constant],
        table.delimiter,
        table.decimal,
        utc=table.utc,
    )


def _series_rows(series: SeriesReport) -> Iterable[tuple[str, str]]:
    yield "rows", f"{series.rows:,} from {series.first} to {series.last}"
    yield "channels", f"{len(series.channels):,}: {', '.join(series.channels)}"
    yield "step", series.step
    yield "gaps", f"{len(series.gaps):,}" + "".join(f"; {gap}" for gap in series.gaps[:EXAMPLES])
    missing = ", ".join(f"{name}: {count:,}" for name, count in series.missing.items())
    yield "missing values", missing or "none"
    yield "constant", ", ".join(series.constant) or "none"
    if series.utc:
        yield "time zone", "UTC: the dates have offsets, and are converted"
    yield "notation", f"cells between {series.delimiter!r}, decimal mark {series.decimal!r}"


def _lengths(lengths: NDArray[np.integer]) -> Lengths:
    known, total = lengths if len(lengths) else [0], int(lengths.sum())
    low, median, p95, high = np.percentile(known, (0, 50, 95, 100)).tolist()
    return Lengths(total, int(low), median, float(np.mean(known)), p95, int(high))


def _dropped(traits: Traits, lengths: NDArray[np.integer], config: TextData) -> dict[str, int]:
    """Count the pairs that `cleaned` and `keep` leave out, each for the first reason that holds."""
    identical = traits.test(SAME) & config.drop_identical
    again = ~_first(traits.keys[:, 1]) & config.drop_duplicates & ~identical
    counts = {"identical sides": int(identical.sum()), "duplicate pair": int(again.sum())}
    dropped = {reason: count for reason, count in counts.items() if count}
    return dropped | keep(lengths[~identical & ~again], config)[1]


def _finding(title: str, odd: Mask | list[bool], corpus: Corpus) -> list[Finding]:
    """Return the finding of odd pairs, none without any."""
    few = corpus.take(np.flatnonzero(odd)[:EXAMPLES])
    places: list[int | str] = [int(line) for line in few.lines]
    if few.parts is not None and few.names:
        places = [f"{few.names[part]}:{n}" for part, n in zip(few.parts, places, strict=True)]
    sides = zip(places, few.sources, few.targets, strict=True)
    finding = Finding(title, int(np.sum(odd)), [(n, s[:120], t[:120]) for n, s, t in sides])
    return [finding] if finding.count else []


def _first(keys: NDArray[np.uint64]) -> Mask:
    """Return where each key occurs for the first time."""
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def _ambiguous(traits: Traits) -> Mask:
    sources, pairs = traits.keys.T
    distinct, targets = np.unique(sources[_first(pairs)], return_counts=True)
    return np.isin(sources, distinct[targets > 1])


def _outliers(traits: Traits) -> Mask:
    """Return pairs of unusual lengths: |t − c·s| > 6·σ·√s in characters (Gale and Church, 1993).

    c is the ratio of all target to all source characters, where a line counts at most ten times the
    median so that a huge one does not dominate it, and σ comes from the median of (t − c·s)²/s, so
    that the outliers do not widen it.
    """
    filled: Mask = traits.characters.min(axis=1) > 0
    if filled.sum() < 20:
        return np.zeros_like(filled)
    source, target = traits.characters[filled].T.astype(np.int64)
    usual = [np.minimum(side, 10 * np.median(side)).sum() for side in (source, target)]
    squares = (target - source * (usual[1] / usual[0])) ** 2 / source
    variance = max(float(np.median(squares)) / 0.4549, 1.0)  # the median of chi-square, 1 degree
    filled[filled] = squares > UNUSUAL**2 * variance
    return filled


def _shifted(traits: Traits) -> Mask:
    """Return blocks (their first pairs) whose sides agree better when shifted, or never."""
    agreement = traits.agreement
    odd = agreement[:, 1:].max(axis=1, initial=-np.inf) - agreement[:, 0] > MARGIN
    if len(agreement) and np.median(agreement[:, 0]) < MARGIN:
        odd |= agreement[:, 0] < MARGIN
    mask = np.zeros(len(traits.odd), bool)
    mask[np.flatnonzero(odd) * BLOCK] = True
    return mask


def _overlaps(train: Traits) -> dict[str, Check]:
    return {
        "source also in train": lambda own: np.isin(own.keys[:, 0], train.keys[:, 0]),
        "pair also in train": lambda own: np.isin(own.keys[:, 1], train.keys[:, 1]),
    }


_CHECKS: dict[str, Check] = {
    "empty side": lambda traits: traits.test("empty side"),
    "identical sides": lambda traits: traits.test(SAME) & ~traits.test("empty side"),
    KEY: partial(Traits.test, name=KEY),
    "duplicate of an earlier pair": lambda traits: ~_first(traits.keys[:, 1]),
    "source with several targets": _ambiguous,
    "unusual ratio of lengths": _outliers,
    **{name: partial(Traits.test, name=name) for name in _CHARACTERS},
    f"block of {BLOCK} pairs whose sides seem shifted": _shifted,
}
_TITLES: dict[Kind, dict[str, str]] = {  # titles of the checks for other kinds of text
    "labelled": {
        "empty side": "empty text or label",
        "duplicate of an earlier pair": "duplicate of an earlier text and label",
        "source with several targets": "text with several labels",
        "source also in train": "text also in train",
    },
    "text": {
        "empty side": "empty line",
        "duplicate of an earlier pair": "duplicate of an earlier line",
        "source also in train": "line also in train",
    },
}
_UNITS: dict[Kind, str] = {"pairs": "pairs", "labelled": "labelled texts", "text": "lines"}


def _short(split: SplitReport) -> Iterable[str]:
    parts = [f"{split.pairs:,} {_UNITS[split.kind]}"]
    for unit, sides in split.lengths.items():
        parts.append(f"{unit} {' → '.join(f'{side.total:,}' for side in sides)}")
        parts.append(f"longest {' → '.join(f'{side.max:,}' for side in sides)}")
    if any(split.languages):
        parts.append(" → ".join(code or "unclear language" for code in split.languages))
    yield ", ".join(parts)
    if split.labels:
        counts = [f"{label}: {n:,}" for label, n in [*split.labels.items()][:LABELS]]
        most = max(split.labels.values()) / split.pairs
        yield f"labels {len(split.labels):,}, the most frequent {most:.1%}; {', '.join(counts)}"
    if split.dropped:
        reasons = "; ".join(f"{reason}: {n:,}" for reason, n in split.dropped.items())
        yield f"dropped (lengths in {[*split.lengths][-1]}): {reasons}"
    if split.skipped:
        yield f"{len(split.skipped):,} lines skipped, the first: {split.skipped[0]}"
    if split.findings:
        odd = (f"{f.name}: {f.count:,} (line {f.examples[0][0]})" for f in split.findings)
        yield "odd: " + "; ".join(odd)


def _long(name: str, split: SplitReport) -> Iterable[Table]:
    lengths = Table("", "total", "min", "median", "mean", "95 %", "max")
    lengths.title = f"{name}: {split.pairs:,} {_UNITS[split.kind]}"
    if any(split.languages):
        lengths.title += f", {' → '.join(code or 'unclear language' for code in split.languages)}"
    names = ("source", "target") if split.kind == "pairs" else ("text",)
    for unit, sides in split.lengths.items():
        for side, counts in zip(names, sides, strict=True):
            numbers = (counts.min, counts.median, counts.mean, counts.p95, counts.max)
            row = f"{unit} of {side}", f"{counts.total:,}", *(f"{n:,.4g}" for n in numbers)
            lengths.add_row(*row)
    yield lengths
    if split.labels:
        labelled = Table("label", "texts", "share", title=f"{len(split.labels):,} labels")
        for label, count in [*split.labels.items()][:LABELS]:
            shown = CONTROL.sub("·", label)[:60]
            labelled.add_row(Text(shown), f"{count:,}", f"{count / split.pairs:.1%}")
        yield labelled
    odd = Table("to look at, dropped or skipped", _UNITS[split.kind], "line", "examples")
    for f in split.findings:
        lines = "\n\n".join(str(line) for line, _, _ in f.examples if type(line) is int)
        cells = [str(cell) for example in f.examples for cell in example[1 if lines else 0 :]]
        pairs = Text("\n".join(CONTROL.sub("·", cell) for cell in cells), no_wrap=bool(lines))
        pairs.overflow = "ellipsis" if lines else "fold"  # a line is beside its pair
        odd.add_row(f.name, f"{f.count:,}", lines, pairs)
    for reason, number in split.dropped.items():
        odd.add_row(f"dropped: {reason}", f"{number:,}")
    if split.skipped:
        few = "\n".join(split.skipped[:EXAMPLES])
        odd.add_row("skipped: cannot be read", f"{len(split.skipped):,}", "", Text(few))
    if odd.row_count:
        yield odd
