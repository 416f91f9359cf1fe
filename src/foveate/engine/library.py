"""The shared library of the engine: ``engine.c``, compiled at first use, and its functions."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from foveate.files import cache_folder

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
         "-fPIC", "-shared")  # fmt: skip
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
    "classify": (_int, _at, _at, _int, _at),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled engine, made at first use.

    Raises ``OSError`` without a compiler, ``SubprocessError`` where it fails.
    """
    folder, compiler = Path(__file__).parent, os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    sources = [path.read_bytes() for path in sorted(folder.glob("*.[ch]"))]
    described = [*sources, compiler.encode(), *map(str.encode, FLAGS), _processor()]
    name = hashlib.sha256(b"\0".join(described)).hexdigest()[:16]
    path = cache_folder() / "native" / f"engine-{name}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            file = Path(made) / path.name
            command = [compiler, *FLAGS, str(folder / "engine.c"), "-o", str(file), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
            os.replace(file, path)
    loaded = ctypes.CDLL(str(path))
    for name, (result, *arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _processor() -> bytes:
    """The instruction sets of the processor, since several machines may share a cache."""
    path = Path("/proc/cpuinfo")
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
