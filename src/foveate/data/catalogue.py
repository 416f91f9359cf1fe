"""The data sets that foveate knows by name: what they are, whose they are, and their checksums.

Lives here: the descriptions in ``catalogue.toml``, read, and the error of everything that reads
data. Does not live here: fetching a set (``download``), reading its lines (``text``).
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Literal

from foveate.config import Config


class DataError(ValueError):
    """Data that is missing, damaged or badly formed: names the file, the line and the remedy."""


class File(Config):
    """One file of a set, as it lies in a mirror.

    ``sha256`` and ``bytes`` are of the file itself. ``content_sha256`` is of what a ``.gz`` holds
    (absent: the file is not packed). ``origin`` is its address, relative to that of the set
    (absent: it cannot be made from there); ``convert`` says how the original becomes this file.
    """

    name: str
    count: int
    unit: str = "lines"
    origin: str | None = None
    convert: Literal["member", "column", "strip"] | None = None
    argument: str = ""
    bytes: int
    sha256: str
    content_sha256: str | None = None

    @property
    def content(self) -> str:
        """The checksum that identifies the file, however it is packed."""
        return self.content_sha256 or self.sha256


class DataSet(Config):
    """One set: its licence and attribution in short, its public address and its files.

    ``address`` is the folder that the origins of the files are relative to; ``page`` is for
    people. ``differs`` says why a set cannot be made from its public address.
    """

    name: str
    title: str
    task: str
    languages: tuple[str, ...]
    page: str
    address: str = ""
    licence: str
    attribution: str
    differs: str | None = None
    note: str = ""
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


@functools.cache
def catalogue() -> dict[str, DataSet]:
    """Every set by its name, which is also the name of its folder."""
    text = resources.files("foveate.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {name: DataSet.parse({"name": name, **table}) for name, table in tables.items()}


def named(name: str) -> DataSet:
    """The set of that name; raise `DataError` with the names there are."""
    known = catalogue()
    if name not in known:
        raise DataError(f"no data set {name!r}; there are {', '.join(known)}")
    return known[name]
