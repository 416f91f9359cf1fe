"""Plain text as data of language models: a file for each split, or one file cut into three.

Lives here: from files to lines, and the cut. Does not live here: tokens, blocks (the task).
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foveate.data.catalogue import DataError
from foveate.data.text import TextData, at, read_lines

SPLITS = ("train", "valid", "test")
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Text:
    """The lines of a text; ``ended`` says whether the last one has its end."""

    lines: list[str]
    ended: bool = True

    @property
    def characters(self) -> int:
        """How many characters the text has, one for the end of each line."""
        return sum(map(len, self.lines)) + len(self.lines) - (not self.ended)

    def cut(self, start: int, stop: int) -> Text:
        """The characters from ``start`` up to ``stop``, which may lie inside lines."""
        whole = "\n".join(self.lines) + ("\n" if self.ended else "")
        part = whole[start:stop]
        return Text(part.removesuffix("\n").split("\n"), part.endswith("\n")) if part else Text([])


def read_text(path: Path, config: TextData) -> Text:
    """The lines of a file, plain or ``.gz``, UTF-8.

    Raises `DataError` naming the file and the first line that is not UTF-8; with
    ``on_bad_line = "skip"`` its bad bytes are read as U+FFFD.
    """
    damaged: list[int] = []
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            lines = list(read_lines(stream, damaged))
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if damaged and config.on_bad_line == "error":
        raise DataError(
            f"{path}:{damaged[0]}: not UTF-8; mend it, or read its bytes as U+FFFD: "
            'data.on_bad_line = "skip"'
        )
    return Text(lines)


def read_text_split(pattern: str, shares: Shares, split: str, config: TextData) -> Text:
    """The text of one of the splits train, valid, test.

    Where the pattern holds no ``{split}``, the file is cut by ``shares`` of its characters, in this
    order. Raises `DataError` where the split is empty.
    """
    text = read_text(at(pattern, split, config.splits), config)
    if "{split}" not in pattern:
        if split not in SPLITS:
            raise DataError(f"{pattern} has no {{split}}; it is cut into {', '.join(SPLITS)}")
        limits = np.cumsum((0.0, *shares)) * text.characters + 1e-6  # 0.7 + 0.2 + 0.1 is below 1
        number = SPLITS.index(split)
        text = text.cut(int(limits[number]), int(limits[number + 1]))
    if not text.characters:
        raise DataError(
            f"{pattern} has nothing for {split}: task.shares = {list(shares)} are those of train, "
            "valid and test"
        )
    return text
