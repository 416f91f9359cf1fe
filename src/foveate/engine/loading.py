"""The shared library of the engine, one for each instruction set: the processor's best one runs.

``probe.c`` says which sets this processor has. The library of a set is ``engine.c`` compiled with
its flags: it stands in the package where a wheel brought it, and is made at first use elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from foveate.engine.building import FOLDER, SETS, command
from foveate.errors import UserError
from foveate.files import cache_folder

SUFFIX = ".dll" if os.name == "nt" else ".so"
FORCED = "FOVEATE_ISA"
SECONDS = 300  # after which a compiler is stopped

_int, _at = ctypes.c_int32, ctypes.c_void_p
SIGNATURES = {  # result and arguments
    "read_model": (_at, _at, _int, _at, _int),
    "free_model": (None, _at),
    "new_search": (_at, _at, _at),
    "free_search": (None, _at),
    "add_source": (_int, _at, _int, _at, _int, _at, _int, _int, _at, _int),
    "advance": (_int, _at, _int),
    "results": (ctypes.c_int64, _at, _at, ctypes.c_int64),
    "force": (_int, _at, _at, _int, _at, _int, _at),
    "classify": (_int, _at, _at, _int, _at, _int),
    "clear": (None, _at),
    "hypotheses": (ctypes.c_int64, _at, _at, ctypes.c_int64),
    "forbid": (_int, _at, _int, _at, _int),
    "require": (_int, _at, _at, _int),
    "observe": (None, _at, _at, _int),
    "instruction_set": (ctypes.c_char_p,),
}


class LibraryError(UserError):
    """No library of the engine for this processor, or not the one that was asked for."""


class Library(NamedTuple):
    """The functions of a library, its instruction set, and why it is this one."""

    functions: ctypes.CDLL
    instruction_set: str
    why: str


def library() -> ctypes.CDLL:
    """The functions of the engine. Raises `LibraryError` as `loaded` does."""
    return loaded().functions


@functools.cache
def loaded() -> Library:
    """The engine for the best instruction set of this processor, or the one FOVEATE_ISA names.

    Raises `LibraryError` where the processor lacks that, and where no library can be made.
    """
    own, forced = instruction_sets(), os.environ.get(FORCED)
    among = f"of {', '.join(own)}, which this processor has"
    if forced:
        if forced not in own:
            fault = "this processor lacks it" if forced in SETS else "no such instruction set"
            raise LibraryError(f"{FORCED}={forced}: {fault}; name one {among}, or unset {FORCED}")
        return Library(_engine(forced), forced, f"{FORCED} names it, {among}")
    failures = list[str]()
    for name in reversed(own):
        try:
            return Library(_engine(name), name, "; ".join([*failures, f"the best {among}"]))
        except LibraryError as error:  # a compiler may be older than the processor
            failures.append(str(error))
    raise LibraryError(failures[-1])


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """The instruction sets of this processor that the engine knows, the best one last."""
    probe = _load("probe").instruction_sets
    probe.restype = ctypes.c_char_p
    return tuple(probe().decode().split())


def _engine(name: str) -> ctypes.CDLL:
    functions = _load(f"engine-{name}")
    for function, (result, *arguments) in SIGNATURES.items():
        getattr(functions, function).restype = result
        getattr(functions, function).argtypes = arguments
    if (own := functions.instruction_set().decode()) != name:
        raise LibraryError(
            f"the engine for {name} was compiled for {own}; name another compiler: CC"
        )
    return functions


def _load(name: str) -> ctypes.CDLL:
    path = FOLDER / "libraries" / f"{name}{SUFFIX}"
    try:
        return ctypes.CDLL(str(path if path.is_file() else _compiled(name)))
    except OSError as error:
        raise LibraryError(f"{name} cannot be loaded or compiled: {error}") from error


def _compiled(name: str) -> Path:
    """The path of a library in the cache, made where it is not there yet."""
    compilers = filter(None, [os.environ.get("CC"), *map(shutil.which, ("cc", "gcc", "clang"))])
    compiler = shlex.split(next(compilers, ""))
    if not compiler:
        raise LibraryError(
            "the engine is not compiled, and there is no C compiler: install gcc or clang, or "
            "foveate from a wheel, which brings the engine"
        )
    sources = [path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]"))]
    words = [*command(compiler, name, Path(name)), platform.machine()]
    key = hashlib.sha256(b"\0".join([*sources, *map(str.encode, words)])).hexdigest()[:16]
    path = cache_folder() / "native" / f"{name}-{key}{SUFFIX}"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        file = Path(made) / path.name
        try:
            run = command(compiler, name, file)
            subprocess.run(run, check=True, capture_output=True, timeout=SECONDS)
        except subprocess.SubprocessError as error:
            lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
            why = next((line for line in lines if "error" in line), str(error))
            raise LibraryError(f"{compiler[0]} does not compile {name}: {why}") from error
        os.replace(file, path)
    return path
