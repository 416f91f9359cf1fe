"""The C kernels: compiling and loading them, and how work is shared between threads."""

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from foveate.files import cache_folder

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


# ------------------------------------------------------------------------------------------ shares
# Rows shared among threads: the kernels run without the interpreter's lock.

LEAST = 8  # rows for which a thread of their own pays


def shared(work: Callable[[int, int], None], rows: int, each: int = 1) -> None:
    """``work(first, count)`` for spans of all rows, by at most as many threads as PyTorch has.

    A row that is as much work as ``each`` counts so.
    """
    if rows == 0:
        return
    threads = max(1, min(torch.get_num_threads(), rows, rows * each // LEAST))
    size = -(-rows // threads)
    first, *others = [(start, min(size, rows - start)) for start in range(0, rows, size)]
    begun = [_pool(threads).submit(work, *span) for span in others]
    work(*first)
    for one in begun:
        one.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, "rows")


# -------------------------------------------------------------------------------------------- rows
# Rows of scores: log Σ exp and the highest, which a search asks for; the cross-entropy.

BLOCK = 64  # scores of which the kernel keeps one maximum


def log_sum_exp(scores: Tensor) -> Tensor:
    """Log Σ_v exp z_v of each row, (N, V) -> (N, 1); −∞ where all are."""
    kernels = library() if fits(scores) else None
    if kernels is None:
        return scores.logsumexp(dim=1, keepdim=True)
    found = scores.new_empty(len(scores), 1)

    def some(first: int, count: int) -> None:
        kernels.log_sum_exp(at(scores[first:]), count, scores.shape[1], at(found[first:]))

    shared(some, len(scores))
    return found


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest of each row, best first, (N, V) -> (N, c) values and columns."""
    kernels = library() if fits(scores) else None
    if kernels is None or count > BLOCK:
        values, columns = scores.topk(count, dim=1)
        return values, columns
    rows, size = scores.shape
    values = scores.new_empty(rows, count)
    columns = torch.empty(rows, count, dtype=torch.long)

    def some(first: int, some_rows: int) -> None:
        maxima = torch.empty(size // BLOCK + 1)
        z, value, column = (at(part[first:]) for part in (scores, values, columns))
        kernels.highest(z, some_rows, size, count, value, column, at(maxima))

    shared(some, rows)
    return values, columns


def cross_entropy_(
    logits: Tensor, target: Tensor, smoothing: float, grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Log Σ_v exp z_v − (1 − α) z_y − α mean z of each row, and −log p(y): (N, V) -> (N), (N).

    With ``grad`` the logits' place is taken by the gradient p − (1 − α) onehot_y − α/V.
    """
    kernels = library() if fits_either(logits) and logits.is_contiguous() else None
    if kernels is None:
        return _cross_entropy_(logits, target, smoothing, grad)
    loss, nll = torch.empty(2, len(logits))
    half, threads = logits.dtype == torch.bfloat16, torch.get_num_threads()
    kernels.cross_entropy(
        at(logits), half, *logits.shape, at(target), smoothing, at(loss), at(nll), threads
    )
    return loss, nll


def _cross_entropy_(
    logits: Tensor, target: Tensor, smoothing: float, grad: bool
) -> tuple[Tensor, Tensor]:
    z = logits.float()
    picked = z.gather(1, target[:, None])
    top = z.amax(dim=1, keepdim=True)
    mean = z.mean(dim=1, keepdim=True) if smoothing else picked
    odds = z.sub_(top).exp_()
    mass = odds.sum(dim=1, keepdim=True)
    log_z = mass.log() + top
    nll = log_z - picked
    loss = (1 - smoothing) * nll + smoothing * (log_z - mean)
    if grad:
        odds.div_(mass)
        if smoothing:
            odds.sub_(smoothing / odds.shape[1])
        odds.scatter_add_(1, target[:, None], odds.new_full((len(target), 1), smoothing - 1))
        if odds is not logits:
            logits.copy_(odds)
    return loss.squeeze(1), nll.squeeze(1)


# -------------------------------------------------------------------------------------------- kept
# What is made of modules' weights, such as a layout for kernels, kept until they change.

Made = TypeVar("Made")
# Modules; steps of optimisers; where tensors lie, and their changes.
MadeOf = tuple[list[ref[nn.Module]], int, list[tuple[int, int]]]
_STEPS = [0]  # a fused step changes weights without counting it in their `_version`


def _stepped(*_: Any) -> None:
    _STEPS[0] += 1


register_optimizer_step_post_hook(_stepped)


class Kept(Generic[Made]):
    """What was made of modules, as long as their tensors are the same and have not changed.

    It goes with its module, if what was made does not hold that.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, tuple[MadeOf, Made]] = WeakKeyDictionary()

    def of(self, module: nn.Module, parts: list[nn.Module], make: Callable[[], Made]) -> Made:
        """What ``make`` makes of a module with these parts."""
        made_of = [ref(part) for part in parts], _STEPS[0], _weights(parts)
        before, made = self._made.get(module, (None, None))
        if before != made_of or made is None:
            made = make()
            self._made[module] = made_of, made
        return made


def _weights(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    tensors = (t for m in modules for t in (*m._parameters.values(), *m._buffers.values()))
    return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors if t is not None]
