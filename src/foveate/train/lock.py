"""One process at a time writes into a run: the second one refuses, and names the first.

Lives here: the lock of a run folder, which the system lets go of even for a process that was
killed. Does not live here: who takes it (`foveate.training`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from foveate.train.files import TrainError

FILE = ".writing"


class BusyError(TrainError):
    """Another process writes into the run: says which, where, and since when."""


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Nobody else writes into the run meanwhile; the folder is made, and goes if it stays empty.

    Raises `BusyError` where another does, and `TrainError` where the folder cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = _taken(run / FILE)
    except OSError as error:
        raise TrainError(
            f"cannot write into {run}: {error.strerror}; make it writable, or train in another "
            "folder: --run"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (run / FILE).unlink()
        file.close()
        with contextlib.suppress(OSError):
            run.rmdir()  # does nothing unless it is empty


def _taken(path: Path) -> FileIO:
    """The lock's open file; closing it gives the lock back."""
    while True:
        file = path.open("a+b", buffering=0)  # what a full disk refuses is not tried again
        if not _locked(file):
            file.seek(0)
            said = _told(file.read(1000))
            file.close()
            raise BusyError(
                f"{path.parent} is being written by {said}: wait until it has ended, end it, or "
                "train in another folder: --run"
            )
        if _is(path, file):
            break
        file.close()  # who had it before has just removed it
    with contextlib.suppress(OSError):  # of a full disk: it is locked all the same
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        who = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        file.write(json.dumps(who).encode())
    return file


def _locked(file: FileIO) -> bool:
    """Whether the lock is ours now; a network's folder may know no locks, and gives all."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(2**30)  # what is written there cannot be read by others
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _is(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _told(text: bytes) -> str:
    """Who has the lock, by what it wrote."""
    try:
        who: dict[str, Any] = json.loads(text)
        return f"process {who['process']} on {who['host']}, since {who['since']}"
    except (ValueError, LookupError, TypeError):
        return "another process"
