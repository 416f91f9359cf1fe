"""Compile ``learn.c`` with zig to the WebAssembly that pages carry: ``npm run learn``.

It is written as base64 of gzip into TypeScript, so that a page that learns needs no compiler.
"""

import base64
import gzip
import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from learner import SIGNATURES

from foveate.engine.building import FLAGS, FOLDER

OUT = Path(__file__).parents[1] / "src" / "learn" / "wasm.ts"
SOURCES = [FOLDER / name for name in ("learn.c", "vector.h")]


def stamp() -> str:
    """Return what the file says it was made of."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]


def packed() -> bytes:
    """Return the module, whose instruction set has SIMD, packed by gzip."""
    exports = (f"-Wl,--export={name}" for name in (*SIGNATURES, "malloc", "free"))
    target = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-s", "-Wl,-z,stack-size=65536")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "learn.wasm"
        command = [sys.executable, "-m", "ziglang", "cc", *target, *FLAGS[:-2], "-msimd128"]
        subprocess.run([*command, *exports, str(SOURCES[0]), "-o", str(file)], check=True)
        return gzip.compress(file.read_bytes(), 9, mtime=0)


if __name__ == "__main__":
    code = base64.b64encode(packed()).decode()
    OUT.write_text(
        f"// Written by `npm run learn` from src/foveate/engine; do not edit. Of {stamp()}.\n"
        f'export const wasm = "{code}";\n',
        encoding="utf-8",
        newline="\n",
    )
