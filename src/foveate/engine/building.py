"""The compilation of the engine: its functions, instruction sets, and compiler commands.

Nothing is imported from foveate: the build of a wheel reads this file before the package exists.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
_AVX2 = ("-march=x86-64", "-mavx2", "-mfma")
_OF_512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
_AVX512 = (*_AVX2, "-mprefer-vector-width=512", *_OF_512)
SETS = {
    "base": (),
    "sse4": ("-march=x86-64", "-msse4.1"),
    "avx2": _AVX2,
    "avxvnni": (*_AVX2, "-mavxvnni"),
    "avx512vnni": _AVX512,
    "amx": (*_AVX512, "-mamx-tile", "-mamx-int8"),
    "neon": ("-mcpu=generic",),
    "dotprod": ("-mcpu=generic+dotprod",),
}
WEB = {"engine-wasm": ("-msimd128",), "engine-scalar": ()}  # for browsers with SIMD, and without
_int, _at = ctypes.c_int32, ctypes.c_void_p
SIGNATURES = {  # result and arguments
    "read_model": (_at, _at, _int, _at, _int),
    "free_model": (None, _at),
    "model_sizes": (None, _at, _at),
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
    "keep_all": (_int, _at, _at),
    "instruction_set": (ctypes.c_char_p,),
}


def command(compiler: Sequence[str], name: str, file: Path) -> list[str]:
    """Return the command that builds a library: ``engine-SET``, or ``probe``, which lists sets."""
    source, _, instruction_set = name.partition("-")
    flags = SETS.get(instruction_set, ())
    if any("zig" in word for word in compiler):  # zig's names of processors have no hyphen
        flags = tuple(flag.replace("x86-64", "x86_64") for flag in flags)
        if "-target" not in compiler:  # zig would compile for this very processor
            flags = ("-mcpu=baseline", *flags)
    return [*compiler, *FLAGS, *flags, str(FOLDER / f"{source}.c"), "-o", str(file), "-lm"]


def web_command(zig: Sequence[str], name: str, file: Path) -> list[str]:
    """Return the command that builds the engine as WebAssembly, without imports."""
    exports = (f"-Wl,--export={each}" for each in (*SIGNATURES, "malloc", "free"))
    target = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-s", "-Wl,-z,stack-size=1048576")
    source = str(FOLDER / "engine.c")
    return [*zig, *target, *FLAGS[:-2], *WEB[name], *exports, source, "-o", str(file)]
