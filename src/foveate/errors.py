"""Errors that a user can correct: printed as one line with exit code 2, without a traceback.

An error counts as the user's if its class derives from `UserError` or it concerns a file; anything
else is a bug and keeps its traceback. Other such classes are defined next to their code.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn, TypeVar

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRAINING = ("torch", "jaxtyping", "matplotlib", "sacrebleu", "PIL")  # packages of that extra
T = TypeVar("T")
Where = tuple[str, ...]  # the path of keys from the root of a config file


class UserError(ValueError):
    """An error that a user can correct: one sentence with file, line, key or field, and the fix.

    It is a ValueError, so that pydantic accepts it in validators and callers catch it as usual.
    """


class NoOutputError(UserError):
    """An input without an output: scores are not finite, or a search returned none."""


DIVERGED = (
    "the model's scores are not finite numbers (NaN, or infinite), so its weights are damaged or "
    "its training diverged; use another checkpoint of the run, or train it again with a lower "
    "learning rate"
)


def install(extra: str) -> str:
    """Return the command that installs an extra of ours, from where foveate was installed."""
    from importlib.metadata import PackageNotFoundError, distribution  # 15 ms

    try:  # PEP 610: the location of a wheel or folder; empty for a package from an index
        origin = json.loads(distribution("foveate").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {"dir_info": {}}
    if "dir_info" in origin:
        return f"in a checkout of foveate: pip install '.[{extra}]'"
    place = f" @ {origin['url']}" if "url" in origin else ""
    return f"pip install 'foveate[{extra}]{place}'"


def not_built(part: str) -> str:
    """Return the message for a browser part that this installation lacks."""
    how = "install Node 20.19 or newer, run `make page` in a checkout of foveate, and install that"
    return f"{part} is not built: {how}"


class ConfigError(UserError):
    """A key or value that cannot be used: gives its path and what would be valid."""

    def __init__(self, message: str, where: Where = ()) -> None:
        super().__init__(message)
        self.message, self.where = message, where

    def __str__(self) -> str:
        path = ".".join(self.where)
        return f"{path}: {self.message}" if path else self.message


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print a user's error as ``error: …``; raise other errors, and with FOVEATE_DEBUG=1 all.

    All errors in a Python file of a user are the user's. One that is not gets a note below its
    traceback: it is a bug. A closed pipe on standard output, as after ``| head``, is not an error.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(141)  # 128 + SIGPIPE, as in a shell
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in TRAINING:
            error = UserError(
                f"this needs the package {error.name}, which packed files do without; "
                f"{install('train')} (for a processor without GPU, the CPU build of torch first)"
            )
        is_expected = is_for_the_user(error)
        own = None if is_expected else own_file(error)
        if own is None and not is_expected:
            error.add_note("this is a bug in foveate, please report it")
            raise
        if os.environ.get("FOVEATE_DEBUG") == "1":
            raise
        if own is not None:
            error = UserError(f"{placed(error, own)} (in a file of yours; traceback: --debug)")
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        print(f"{red}error: {message_of(error)}{plain}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        sys.exit(2)


def is_for_the_user(error: Exception) -> bool:
    """Return whether it is a `UserError`, an error of a file, or of text that is not UTF-8.

    A bare ValueError is a bug.
    """
    return isinstance(error, (UserError, OSError, UnicodeEncodeError))


def message_of(error: Exception) -> str:
    """Return the error as one line of text; an error of a file begins with the file's name."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[error.start : error.end]!a} is not UTF-8: write the text in UTF-8"
    if isinstance(error, OSError) and error.errno in FULL:  # a stream, which has no file name
        return f"the output cannot be written: {error.strerror}; free some space and try again"
    return " ".join(str(error).split("\n"))


def own_file(error: BaseException) -> str | None:
    """Return the innermost file of a user, below the caller: not of us, Python or a package."""
    from sysconfig import get_path  # 5 ms

    others = os.path.dirname(__file__), get_path("stdlib"), "<"
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)[2:]]
    own = [f for f in files if not (f.startswith(others) or "-packages" in f)]
    return own[-1] if own else None


def returned(value: object, expected: type[T], function: str) -> T:
    """Return what a function of a user returned. Raises `UserError` unless it is of that type."""
    if not isinstance(value, expected):
        name = f"{expected.__module__}.{expected.__qualname__}"
        raise UserError(f"{function} returned {type(value).__name__}: expected {name}")
    return value


def place(error: BaseException, file: str = "") -> str:
    """Return file and line of the innermost frame in ``file``, else of all frames."""
    frames = traceback.extract_tb(error.__traceback__)
    *_, last = [each for each in frames if each.filename == os.path.abspath(file)] or frames
    return f"{last.filename.removeprefix(os.path.join(os.getcwd(), ''))}:{last.lineno}"


def placed(error: BaseException, file: str = "") -> str:
    """Return `place`, class and text of an error, in one line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    return f"{place(error, file)}: {type(error).__name__}: {' '.join(str(error).split())}"


def _discard_output() -> None:
    """Send the rest of standard output to the null device, so that exit does not fail on it."""
    with contextlib.suppress(OSError):  # it was closed from the start
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ClosedStream(io.TextIOBase):
    """A standard stream that was closed before the program started: its use raises ``OSError``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.buffer = self

    def write(self, *text: object) -> NoReturn:
        """Raise ``OSError``."""
        raise OSError(f"{self._name} is closed: give it a file, or a pipe to another program")

    read = readline = write


def open_streams() -> None:
    """Make using closed standard streams (``>&-``) an error; messages to them are dropped.

    The null device takes their numbers, so that no file opened later receives what is printed.
    """
    for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:
            handle = os.open(os.devnull, os.O_RDWR)
            silent = os.fdopen(handle, "w", encoding="utf-8", newline="\n", closefd=False)
            closed = ClosedStream(f"standard {name.removeprefix('std')}put")
            setattr(sys, name, silent if name == "stderr" else closed)
