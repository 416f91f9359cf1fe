"""How the engine is compiled: its instruction sets, and what a compiler is given for each.

Nothing is imported from foveate: a build of a wheel reads this file before there is a package.
"""

from __future__ import annotations

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


def command(compiler: Sequence[str], name: str, file: Path) -> list[str]:
    """What makes a library: ``engine-SET``, or the ``probe`` for the sets of a processor."""
    source, _, instruction_set = name.partition("-")
    flags = SETS.get(instruction_set, ())
    if any("zig" in word for word in compiler):  # its names of processors have no hyphen
        flags = tuple(flag.replace("x86-64", "x86_64") for flag in flags)
    return [*compiler, *FLAGS, *flags, str(FOLDER / f"{source}.c"), "-o", str(file), "-lm"]
