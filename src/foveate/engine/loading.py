"""The engine's shared library, one per instruction set: the processor's best one is used.

``probe.c`` detects the sets that this processor has. The library of a set is ``engine.c`` compiled
with its flags: a wheel has it in the package; elsewhere it is built at first use.
"""

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
    """The functions of a library, its instruction set, and why this one was chosen."""

    functions: ctypes.CDLL
    instruction_set: str
    why: str


def library() -> ctypes.CDLL:
    """Return the functions of the engine. Raises `LibraryError` like `loaded`."""
    return loaded().functions


@functools.cache
def loaded() -> Library:
    """Return the engine for this processor's best instruction set, or for FOVEATE_ISA.

    Raises `LibraryError` if the processor lacks that one, or if no library can be built.
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
    """Return this processor's instruction sets that the engine supports, the best one last."""
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
    """Return the engine as WebAssembly: ``engine-wasm``, or ``engine-scalar`` without SIMD.

    Raises `LibraryError` if no wheel includes it and zig cannot compile it.
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
    """Return the path of a library in the cache, building it if it is missing."""
    compiler = c_compiler() or (ZIG if find_spec("ziglang") else [])
    if not compiler:
        raise LibraryError(
            "the engine is not compiled, and no C compiler was found: install gcc or clang, or "
            "`pip install ziglang`, or install foveate from a wheel, which brings the engine"
        )
    return compiled(f"{name}{SUFFIX}", SOURCES, lambda file: [command(compiler, name, file)])
