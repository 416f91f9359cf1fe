"""One process at a time writes into a run: the second one refuses, and names the first."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from foveate.files import locked
from foveate.train.sealed import Record, TrainError

if TYPE_CHECKING:
    pass

FILE = ".writing"


class BusyError(TrainError):
    """Another process writes into the run: says which, where, and since when."""


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold the lock of the run; the folder is made, and removed if it stays empty.

    Raises `BusyError` where another does, and `TrainError` where the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run / FILE, wait=False))
        except Timeout:
            raise BusyError(
                f"{run} is being written by {_holder(run / FILE)}: wait until it has ended, end "
                "it, or train in another folder: --run"
            ) from None
        except OSError as error:
            raise TrainError(
                f"cannot write into {run}: {error.strerror}; make it writable, or train in another "
                "folder: --run"
            ) from error
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        who = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        with contextlib.suppress(OSError):  # of a full disk: it is locked all the same
            (run / FILE).write_text(json.dumps(who))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (run / FILE).unlink()
                run.rmdir()  # does nothing unless it is empty


def _holder(lock: Path) -> str:
    try:
        who: Record = json.loads(lock.read_text()[:1000])
        return f"process {who['process']} on {who['host']}, since {who['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
