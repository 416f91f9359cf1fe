"""Plain text as data of language models: a file for each split, or one file cut into three.

Lives here: from files to lines, and the cut; the training text in files of its own, mapped into
memory. Does not live here: tokens, blocks (the task).
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foveate.data.catalogue import DataError
from foveate.data.columns import Texts
from foveate.data.prepared import FACTS, portions, text_writer
from foveate.data.progress import Meter
from foveate.data.store import digest_of, stored
from foveate.data.text import TextData, at, read_lines
from foveate.data.workers import ROWS

LINES = "lines"  # the column of a prepared text
SPLITS = ("train", "valid", "test")
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Text:
    """The lines of a text; ``ended`` says whether the last one has its end."""

    lines: Sequence[str]
    ended: bool = True

    @property
    def characters(self) -> int:
        """How many characters the text has, one for the end of each line."""
        return sum(map(len, self.lines)) + len(self.lines) - (not self.ended)

    def cut(self, start: int, stop: int) -> Text:
        """The characters from ``start`` up to ``stop``, which may lie inside lines."""
        pieces = list(_cut(self.lines, start, min(stop, self.characters)))
        return Text([line for line, _ in pieces], pieces[-1][1] if pieces else True)


@dataclass(frozen=True)
class PreparedText(Text):
    """A text in the files of a ``folder``; its lines are read when they are asked for."""

    folder: Path = Path()
    counted: int = 0

    @property
    def characters(self) -> int:
        return self.counted


def read_text(path: Path, config: TextData) -> Text:
    """The lines of a file, plain or ``.gz``, UTF-8.

    Raises `DataError` naming the file and the first line that is not UTF-8; with
    ``on_bad_line = "skip"`` its bad bytes are read as U+FFFD.
    """
    return Text(list(_lines(path, config)))


def _lines(path: Path, config: TextData) -> Iterator[str]:
    damaged: list[int] = []
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield from read_lines(stream, damaged)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if damaged and config.on_bad_line == "error":
        raise DataError(
            f"{path}:{damaged[0]}: not UTF-8; mend it, or read its bytes as U+FFFD: "
            'data.on_bad_line = "skip"'
        )


def _cut(lines: Iterable[str], start: int, stop: int) -> Iterator[tuple[str, bool]]:
    """The parts of lines between two characters, and whether each has its end."""
    done = 0
    for line in lines:
        part = (line + "\n")[max(0, start - done) : max(0, stop - done)]
        done += len(line) + 1
        if part:
            yield part.removesuffix("\n"), part.endswith("\n")


def read_text_split(pattern: str, shares: Shares, split: str, config: TextData) -> Text:
    """The text of one of the splits train, valid, test; that of train stays in files.

    Where the pattern holds no ``{split}``, the file is cut by ``shares`` of its characters, in this
    order. Raises `DataError` where the split is empty.
    """
    path, whole = at(pattern, split, config.splits), "{split}" in pattern
    if not whole and split not in SPLITS:
        raise DataError(f"{pattern} has no {{split}}; it is cut into {', '.join(SPLITS)}")
    if split == "train":
        text: Text = _prepared(path, None if whole else shares, config)
    else:
        text = read_text(path, config)
        text = text if whole else text.cut(*_limits(shares, split, text.characters))
    if not text.characters:
        raise DataError(
            f"{pattern} has nothing for {split}: task.shares = {list(shares)} are those of train, "
            "valid and test"
        )
    return text


def _limits(shares: Shares, split: str, characters: int) -> tuple[int, int]:
    """The first character of a split, and the one after its last."""
    limits = np.cumsum((0.0, *shares)) * characters + 1e-6  # 0.7 + 0.2 + 0.1 is below 1
    number = SPLITS.index(split)
    return int(limits[number]), int(limits[number + 1])


def _prepared(path: Path, shares: Shares | None, config: TextData) -> PreparedText:
    """The training part of a file, kept from before or read now; all of it without shares."""
    chosen = {"shares": shares, "bad": config.on_bad_line, "packed": path.suffix == ".gz"}
    folder = stored(
        {"text": digest_of(path), **chosen}, lambda new: _write(new, path, shares, config)
    )
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return PreparedText(Texts.open(folder, LINES), facts["ended"], folder, facts["characters"])


def _write(folder: Path, path: Path, shares: Shares | None, config: TextData) -> None:
    characters, ended, size = 0, True, path.stat().st_size / 1e6
    limits = (0, sys.maxsize)
    if shares is not None:
        limits = _limits(shares, "train", sum(len(line) + 1 for line in _lines(path, config)))
    total = None if path.suffix == ".gz" else size
    with Meter("reading text", total, "MB") as meter, text_writer(folder, LINES) as writer:
        for pieces in portions(_cut(_lines(path, config), *limits), ROWS):
            meter.add((writer.add_texts([line for line, _ in pieces]) + len(pieces)) / 1e6)
            characters += sum(len(line) + end for line, end in pieces)
            ended = pieces[-1][1]
    facts = {"characters": characters, "ended": ended}
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")
