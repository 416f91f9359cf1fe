"""The C kernels as a library: built at first use, kept in the cache, None where it cannot be had.

Lives here: compiling, loading, signatures. Does not live here: what the kernels compute
(``kernels.c``) and who calls them. Without a compiler, or with ``FOVEATE_NATIVE=0``, everything is
computed by PyTorch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from foveate.atomic import cache_folder

SOURCES = [
    Path(__file__).with_name(name)
    for name in (
        "kernels.c",
        *("linear.h", "tiles.h", "half.h", "rows.h"),
        *("scan.h", "attend.h", "dropout.h", "bias.h", "outer.h"),
        *("layers.h", "step.h", "encode.h"),
    )
]
FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fassociative-math",  # with the two below: sums in any order, infinities stay what they are
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fPIC",
    # compilers shun AVX-512's whole width for its heat, which more operations a second outweigh
    *(("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()),
)
# The threads are PyTorch's own: its OpenMP is loaded and linked to, never a second one.
OPENMP = ("-fopenmp",) if hasattr(ctypes.CDLL(None), "GOMP_parallel") else ()
SECONDS = 120  # a compiler that takes longer is given up

_int, _long, _float, _at = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
SIGNATURES = {  # result and arguments
    "panel": (_int,),
    "int8_panel": (_int,),
    "linear": (None, _at, _int, _at, _at, _at),
    "log_sum_exp": (None, _at, _long, _long, _at),
    "highest": (None, _at, _long, _long, _int, _at, _at, _at),
    "cross_entropy": (None, _at, _int, _long, _long, _at, _float, _at, _at, _int),
    "room": (_long, _at, _int, _int, _int),
    "step": (None, _at, _at, _at, _at),
    "encode_room": (_long, _at, _int),
    "encode": (None, _at, _int, _at, _int, _at, _at),
    "attend_heads": (None, _at),
    "outer": (_int, _at),
    "dropout": (None, _long, _at, _at, _long, _int, _at, _int),
    "add_bias": (None, _long, _long, _at, _at, _int, _int),
    "scan": (None, _at, _at, _at, _at),
    "scan_backward": (None, *[_at] * 9),
}


_left_out = False


def library() -> ctypes.CDLL | None:
    """The kernels; None where there is no compiler, or they are not wanted."""
    return None if _left_out else _loaded()


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Compute by PyTorch alone, to compare."""
    global _left_out
    before, _left_out = _left_out, True
    try:
        yield
    finally:
        _left_out = before


@functools.cache
def _loaded() -> ctypes.CDLL | None:
    if os.environ.get("FOVEATE_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(_built()))
    except OSError:
        return None
    except subprocess.SubprocessError as error:
        lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
        why = next((line for line in lines if "error" in line), str(error))
        print(f"native kernels were not built, PyTorch computes alone: {why}", file=sys.stderr)
        return None
    for name, (result, *arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def address(structure: ctypes.Structure) -> int:
    """Where a structure lies; whoever passes it on keeps it."""
    return ctypes.addressof(structure)


def at(tensor: Tensor | None) -> int | None:
    """Where the numbers of a tensor begin; a null pointer for None."""
    return None if tensor is None else tensor.data_ptr()


def fits(x: Tensor) -> bool:
    """Whether the kernels read such a tensor: fp32 on the processor, row by row."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous()


def fits_either(x: Tensor) -> bool:
    """Whether those kernels read a tensor that take fp32 and bf16, on the processor."""
    return x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu"


def _built() -> Path:
    """The library's file, of this source for this processor, compiled if it is not there yet.

    Raises ``OSError`` without a compiler or a place to write, ``SubprocessError`` where it fails.
    """
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    made_of = [*(source.read_text() for source in SOURCES), compiler, *FLAGS, *OPENMP, _processor()]
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    path = cache_folder() / "native" / f"kernels-{name}.so"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        compiled, made = Path(folder) / "kernels.o", Path(folder) / path.name
        for command in (
            [compiler, *FLAGS, *OPENMP, "-c", str(SOURCES[0]), "-o", str(compiled)],
            [compiler, "-shared", str(compiled), "-o", str(made), "-lm"],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        os.replace(made, path)
    took = time.perf_counter() - started
    if sys.stderr.isatty():
        print(f"built native kernels in {took:.0f} s: {path}", file=sys.stderr)
    return path


def _processor() -> str:
    """What the machine can do, for a cache that several machines share."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()}"
