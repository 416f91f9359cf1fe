"""Corrected documents as training data: their pairs are added to the files that a run trains on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from foveate.data.catalogue import DataError
from foveate.data.text import TextData, read_pairs
from foveate.documents.base import DocumentOptions, decoded
from foveate.documents.usfm import read_usfm
from foveate.files import read_bytes, replace_file, split_lines


def add_pairs(files: Sequence[Path], data: Sequence[Path]) -> Counter[str]:
    """Add the pairs of a corrected file, or of its two sides, to a TSV or two line-aligned files.

    A pair whose source occurs in the data replaces its target there; any other is appended. Returns
    the numbers of pairs by what was done: new, changed, the same, or why it was skipped. Raises
    `DataError` if the two files of the data have different lengths.
    """
    counts, rows = Counter[str](), _rows(data)
    places: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        places.setdefault(row[0], []).append(n)
    for source, target in _corrected(files, counts):
        known = places.setdefault(source, [])
        same = bool(known) and all(rows[n][1] == target for n in known)
        counts["the same" if same else "changed" if known else "new"] += 1
        for n in known:
            rows[n][1] = target
        if not known:
            known.append(len(rows))
            rows.append([source, target])
    texts = ["\t".join(row) for row in rows] if len(data) == 1 else None
    for side, file in enumerate(data):
        lines = texts or [row[side] for row in rows]
        replace_file(file, "".join(f"{line}\n" for line in lines))
    return counts


def _rows(data: Sequence[Path]) -> list[list[str]]:
    """Return the rows of a TSV, or of two files, in columns; none of files that do not exist."""
    texts = [decoded(read_bytes(path), str(path)) if path.exists() else "" for path in data]
    if len(data) == 2:
        first, second = map(split_lines, texts)
        if len(first) != len(second):
            sizes = f"{len(first):,} and {len(second):,} lines"
            raise DataError(f"{data[0]} and {data[1]} have {sizes}: they should have as many")
        return [list(pair) for pair in zip(first, second, strict=True)]
    rows = [line.split("\t") for line in split_lines(texts[0])]
    if short := next((n for n, row in enumerate(rows, start=1) if len(row) < 2), 0):
        raise DataError(f"{data[0]}:{short} has no tab: give source TAB target")
    return rows


def _corrected(files: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a corrected file; count the others by the reason for leaving them out."""
    if table := next((file for file in files if file.name.endswith(".trust.tsv")), None):
        raise DataError(f"{table} is the table of a draft: give the corrected document instead")
    if any(file.suffix.lower() in (".usfm", ".sfm") for file in files):
        if len(files) != 2:
            raise DataError(f"{files[0]} is one side: give the book and its translation")
        source, target = map(_verses, files)
        counts["not in both books"] += len(source.keys() ^ target.keys())
        pairs = [(source[name], target[name]) for name in source if name in target]
    else:
        own = TextData(on_bad_line="skip")
        corpus = read_pairs(files[0], files[1] if len(files) > 1 else None, own)
        counts.update(corpus.dropped)
        counts.update(bad.reason for bad in corpus.skipped)
        pairs = list(zip(corpus.sources, corpus.targets, strict=True))
    for source_text, target_text in pairs:
        texts = [" ".join(text.split()) for text in (source_text, target_text)]
        if not all(texts):
            counts["without a text"] += 1
        else:
            yield texts[0], texts[1]


def _verses(file: Path) -> dict[str, str]:
    """Return the texts of the units of a book of USFM, without notes and markers.

    The key is the name of the unit and its number among those of this name, such as headings.
    """
    document = read_usfm(read_bytes(file), DocumentOptions(), str(file))
    verses, seen = dict[str, str](), Counter[str]()
    for unit, passage in zip(document.units, document.passages, strict=True):
        seen[unit] += 1
        if passage.sentences:
            verses[f"{unit} {seen[unit]}"] = passage.text
    return verses
