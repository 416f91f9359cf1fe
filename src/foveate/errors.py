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
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from types import UnionType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, get_args, get_origin

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRAINING = ("torch", "jaxtyping", "matplotlib", "sacrebleu", "PIL")  # packages of that extra
T = TypeVar("T")
P = ParamSpec("P")
D = TypeVar("D", bound=Callable[..., Any])
OWN: list[str] = []  # the files of a user that were imported
Where = tuple[str, ...]  # the path of keys from the root of a config file


class UserError(ValueError):
    """An error that a user can correct: one sentence with file, line, key or field, and the fix.

    It is a ValueError, so that pydantic accepts it in validators and callers catch it as usual.
    """


class NoOutputError(UserError):
    """An input without an output: scores are not finite, or a search returned none."""


FOR_THE_USER = UserError, OSError, UnicodeEncodeError  # others, a bare ValueError too, are bugs
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

    All errors in a Python file of a user are the user's; so are those after one was imported, which
    may have returned what foveate fails on. One that is not gets a note below its traceback: it is
    a bug. A closed pipe on standard output, as after ``| head``, is not an error.
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
        is_expected = isinstance(error, FOR_THE_USER)
        own = None if is_expected else own_file(error)
        if own is None and not is_expected and not OWN:
            error.add_note("this is a bug in foveate, please report it")
            raise
        if os.environ.get("FOVEATE_DEBUG") == "1":
            raise
        if not is_expected:
            where = "in a file" if own else f"in or after {relative(OWN[-1])}"
            error = UserError(f"{placed(error, own or '')} ({where} of yours; traceback: --debug)")
        red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        print(f"{red}error: {message_of(error)}{plain}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        sys.exit(2)


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


def relative(file: str) -> str:
    """Return the path of a file in the working directory without that."""
    return file.removeprefix(os.path.join(os.getcwd(), ""))


def is_of(value: object, expected: Any) -> bool:
    """Return whether a value is of a type; of tuples, lists and unions with their parts."""
    parts = get_args(expected)
    if isinstance(expected, UnionType):
        return any(is_of(value, part) for part in parts)
    if not isinstance(value, get_origin(expected) or expected):
        return False
    if isinstance(value, tuple):
        return len(value) == len(parts or value) and all(map(is_of, value, parts))
    return not parts or all(is_of(item, parts[0]) for item in value)


def returned(value: T, expected: object, function: str) -> T:
    """Return what a function of a user returned. Raises `UserError` unless it is of that type."""
    if value is not None and is_of(value, expected):
        return value
    name = str(expected).removeprefix("<class '").removesuffix("'>")
    what = type(value).__name__ + (f" {reprlib.repr(value)}" if get_args(expected) else "")
    raise UserError(f"{function} returned {what}: expected {name}")


def signed(function: Callable[..., object]) -> str:
    """Return file, line and name of a function of a user, "" of one that is not."""
    from inspect import unwrap  # 5 ms

    code = getattr(unwrap(function), "__code__", None)
    if code is None or function.__module__.startswith("foveate."):
        return ""
    return f"{relative(code.co_filename)}:{code.co_firstlineno}: {function.__qualname__}"


def checked(function: Callable[P, T], expected: object) -> Callable[P, T]:
    """Return a function of a user that checks what it returns and takes; ours as it is."""
    if not (name := signed(function)):
        return function

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            value = function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next:
                raise
            raise UserError(f"{name}: {error}") from None  # it does not take these arguments
        return returned(value, expected, name)

    return call


def checks(expected: object) -> Callable[[D], D]:
    """Let a function of `functools.singledispatch` check, by `checked`, those of users."""

    def decorate(dispatch: D) -> D:
        @wraps(dispatch)  # with its `register` and `dispatch`
        def call(first: object, *others: object) -> object:
            function: Callable[..., object] = vars(call)["dispatch"](type(first))
            return checked(function, expected)(first, *others)

        return cast(D, call)

    return decorate


def place(error: BaseException, file: str = "") -> str:
    """Return file and line of the innermost frame in ``file``, else of all frames."""
    frames = traceback.extract_tb(error.__traceback__)
    *_, last = [each for each in frames if each.filename == os.path.abspath(file)] or frames
    return f"{relative(last.filename)}:{last.lineno}"


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
