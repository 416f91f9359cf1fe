"""The shared library of the engine, one for each instruction set: the processor's best one runs.

``probe.c`` says which sets this processor has. The library of a set is ``engine.c`` compiled with
its flags: it stands in the package where a wheel brought it, and is made at first use elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from foveate.engine.building import FOLDER, SETS, SIGNATURES, command, web_command
from foveate.system import LibraryError as LibraryError
from foveate.system import c_compiler, compiled

SUFFIX = ".dll" if os.name == "nt" else ".so"
FORCED = "FOVEATE_ISA"
ZIG = [sys.executable, "-m", "ziglang", "cc"]
SOURCES = sorted(FOLDER.glob("*.[ch]"))


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


def web_engine(name: str) -> Path:
    """The engine as WebAssembly: ``engine-wasm``, or ``engine-scalar`` for a browser without SIMD.

    Raises `LibraryError` where no wheel has brought it and zig does not compile it.
    """
    path = FOLDER / "libraries" / f"{name}.wasm"
    if path.is_file():
        return path
    if find_spec("ziglang") is None:
        raise LibraryError(
            "the engine for browsers is not compiled: pip install ziglang, or install foveate from "
            "a wheel for your platform, which brings it"
        )
    return compiled(f"{name}.wasm", SOURCES, lambda file: [web_command(ZIG, name, file)])


def _compiled(name: str) -> Path:
    """The path of a library in the cache, made where it is not there yet."""
    compiler = c_compiler() or (ZIG if find_spec("ziglang") else [])
    if not compiler:
        raise LibraryError(
            "the engine is not compiled, and no C compiler was found: install gcc or clang, or "
            "`pip install ziglang`, or install foveate from a wheel, which brings the engine"
        )
    return compiled(f"{name}{SUFFIX}", SOURCES, lambda file: [command(compiler, name, file)])
