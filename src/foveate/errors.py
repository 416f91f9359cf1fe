"""Which errors are for the user, and how they look: one red line, exit code 2, no traceback.

Lives here: the border between what a user can mend and what is a fault of the program. Does not
live here: the errors themselves; each stands beside what raises it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print an error for the user as ``error: …``; let others, and all when debugging, rise.

    A closed pipe on standard output is no error: the reader has seen enough, as ``head`` does.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        sys.exit(141)  # 128 + SIGPIPE, as a shell would say
    except Exception as error:
        if os.environ.get("FOVEATE_DEBUG") == "1" or not is_for_the_user(error):
            raise
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        print(f"{red}error: {message_of(error)}{plain}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _forget_output()
        sys.exit(2)


def is_for_the_user(error: Exception) -> bool:
    """Whether it was raised to be read: a class of ours, a file's error, or our own ValueError."""
    ours = type(error).__module__.partition(".")[0] == "foveate"
    return ours or isinstance(error, OSError) or (type(error) is ValueError and _raised_here(error))


def message_of(error: Exception) -> str:
    """One line of text; for a file's error its name comes first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in FULL:  # a stream's: files have names
        return f"the output cannot be written: {error.strerror}; make room, and do it again"
    return " ".join(str(error).split("\n"))


def _forget_output() -> None:
    """What is left for standard output goes nowhere, so that ending does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _raised_here(error: Exception) -> bool:
    """Whether the innermost frame of the traceback is foveate's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "foveate"
