"""Files that appear whole: at every moment the old one or the new one is there; the cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that it appears whole or not at all.

    Raises ``FileNotFoundError`` naming the folder where it does not exist.
    """
    with replacing(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write piece by piece, which takes its name when the block ends without an error.

    Raises ``FileNotFoundError`` naming the folder where it does not exist.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Where what can be had anew is kept: ``$XDG_CACHE_HOME/foveate`` or ``~/.cache/foveate``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foveate"
