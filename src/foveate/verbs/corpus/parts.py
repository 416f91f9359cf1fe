"""A folder of documents as parts that can be translated one by one, and joined again.

Lives here: which files are sources, and where each is cut. Does not live here: who translates the
parts (`hands`), and where their translations are kept (`job`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from foveate.config import ConfigError
from foveate.documents.documents import BY_LINES, ENDINGS, rows_of, tree_of

LINES = 512  # of a part: a few seconds' work, and all that is lost with a worker


class Part(NamedTuple):
    """Some bytes of a file, in plain values that another process can be told."""

    file: str
    kind: str  # the format
    start: int  # in bytes
    size: int  # in bytes
    first: int  # number of its first line, from 1
    lines: int
    digest: str  # of the format and the bytes: equal parts have equal translations

    def read(self) -> bytes:
        """Its bytes. Raises ``ConfigError`` where the file is no longer what it was."""
        with open(self.file, "rb") as file:
            file.seek(self.start)
            data = file.read(self.size)
        if _digest(self.kind, data) != self.digest:
            raise ConfigError(f"{self.file} was changed while it was translated; start again")
        return data


@dataclass(frozen=True)
class Source:
    """A file of the folder: its name in there, and its parts."""

    name: str
    parts: tuple[Part, ...]

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return sum(part.lines for part in self.parts)

    @property
    def digest(self) -> str:
        """Of its whole content."""
        return hashlib.blake2b("".join(p.digest for p in self.parts).encode()).hexdigest()[:32]


def files_in(folder: Path, kind: str | None) -> tuple[list[Path], list[Path]]:
    """The files of a folder and its folders, in the order of their names, and those passed over.

    Without a ``kind`` those are passed over whose endings tell no format. Hidden ones do not
    count. Raises ``ConfigError`` where there is nothing to translate.
    """
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    chosen = [path for path in found if kind or path.suffix.lower() in ENDINGS]
    if not chosen:
        known = ", ".join(ENDINGS)
        raise ConfigError(f"{folder} holds no file that ends in {known}; else give --format")
    return chosen, [path for path in found if path not in set(chosen)]


def cut(path: Path, name: str, kind: str, lines: int) -> Source:
    """A file in parts of so many lines; formats that are no lines are one part.

    Raises ``ConfigError`` naming file and line of a row that holds no text to translate, so that
    this is known before any work is done.
    """
    parts, start, first = list[Part](), 0, 1
    for data in _pieces(path, kind, lines):
        count = _checked(data, kind, path, first)
        digest = _digest(kind, data)
        parts.append(Part(os.path.abspath(path), kind, start, len(data), first, count, digest))
        start, first = start + len(data), first + count
    return Source(name, tuple(parts))


def _pieces(path: Path, kind: str, lines: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        if kind not in BY_LINES:
            yield file.read()
            return
        while piece := b"".join(islice(file, lines)):
            yield piece


def _checked(data: bytes, kind: str, path: Path, first: int) -> int:
    """How many lines a part has, each of which can be read."""
    if kind not in BY_LINES:
        return max(1, data.count(b"\n"))
    rows = rows_of(data.decode(errors="replace"))
    if kind == "jsonl":
        for number, (row, _) in enumerate(rows, start=first):
            tree_of(row, f"{path}:{number}")
    return len(rows)


def _digest(kind: str, data: bytes) -> str:
    return hashlib.blake2b(kind.encode() + b"\0" + data, digest_size=16).hexdigest()


def once(sources: Iterable[Source]) -> list[Part]:
    """The parts of all sources in order, equal ones once."""
    return list({part.digest: part for source in sources for part in source.parts}.values())
