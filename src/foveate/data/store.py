"""What was made from data once, kept in the cache under the name of what it was made from.

Lives here: folders that appear whole or not at all, one maker at a time, and the age at which they
go. Does not live here: what the folders hold (`prepared`).

The name is a hash of the content of the files, of the tokenizers, of the choices and of the code:
whatever changes gives another name, so that what is found is never stale. The cache is that of
`foveate.data.download`, or the folder that ``FOVEATE_PREPARED`` names.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foveate.atomic import cache_folder
from foveate.data.catalogue import DataError

MANIFEST = "manifest.json"
DAYS = 30  # a folder that nobody has used for so long is removed


def stored(
    key: Mapping[str, Any],
    make: Callable[[Path], None],
    sound: Callable[[Path], bool] = lambda folder: True,
) -> Path:
    """The folder that ``make`` fills for a key; it is made where it is not there yet.

    A folder whose files have not their sizes, or that is not ``sound``, is made anew.
    Killed at any moment, it leaves nothing that another call would take for whole. Of several
    processes that want the same folder one makes it, and the others wait.
    """
    plain = json.dumps({"code": _code(), **key}, sort_keys=True)
    target = _root() / hashlib.sha256(plain.encode()).hexdigest()[:32]
    if _whole(target) and sound(target):
        return target
    with _alone(target.with_suffix(".lock")):
        if not (_whole(target) and sound(target)):
            _make(target, make)
            _forget(target.parent)
    return target


def digest_of(file: Path) -> str:
    """A hash of the content of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()[:32]


def origin(cls: type) -> str:
    """The name of a class and a hash of the file that defines it: another code, another name."""
    try:
        return f"{cls.__qualname__} {digest_of(Path(inspect.getfile(cls)))}"
    except (OSError, TypeError):  # typed into a notebook: nothing that was kept is its work
        return f"{cls.__qualname__} {os.urandom(16).hex()}"


@functools.cache
def _code() -> str:
    """A hash of the code that reads and encodes."""
    return "".join(digest_of(file) for file in sorted(Path(__file__).parent.glob("*.py")))


def _make(target: Path, make: Callable[[Path], None]) -> None:
    new = target.with_suffix(".new")
    for old in (new, target):  # of one who was killed, or damaged
        shutil.rmtree(old, ignore_errors=True)
    try:
        new.mkdir()
        make(new)
        sizes = {file.name: file.stat().st_size for file in new.iterdir()}
        for name in sizes:
            _sync(new / name)
        (new / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        _sync(new / MANIFEST)
        os.replace(new, target)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f"{target.parent} has no room for prepared data"
        raise DataError(f"{where}: make some, or name another folder: FOVEATE_PREPARED") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _whole(folder: Path) -> bool:
    """Whether a folder is there with all its files at their sizes; if so, it was used now."""
    manifest = folder / MANIFEST
    try:
        sizes = json.loads(manifest.read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
    with contextlib.suppress(OSError):  # a cache that may only be read
        os.utime(manifest)
    return whole


def _forget(root: Path) -> None:
    """Remove what has not been used for `DAYS` days, and what was begun so long ago."""
    for sign in (*root.glob(f"*/{MANIFEST}"), *root.glob("*.new")):
        with contextlib.suppress(OSError):
            if sign.stat().st_mtime < time.time() - DAYS * 86_400:
                shutil.rmtree(sign if sign.is_dir() else sign.parent, ignore_errors=True)


def _root() -> Path:
    """The folder of the cache, or a passing one where the cache cannot be written."""
    named = os.environ.get("FOVEATE_PREPARED")
    root = Path(named).expanduser() if named else cache_folder() / "prepared"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _passing()
    return root if os.access(root, os.W_OK) else _passing()


@functools.cache
def _passing() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="foveate-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is inside; the system lets go of it even for a killed one."""
    with lock.open("w") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            with contextlib.suppress(OSError):  # a network's folder may know no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())
