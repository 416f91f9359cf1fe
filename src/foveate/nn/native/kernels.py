"""The C kernels: compiling, loading, how threads share work and wait, what they may replace."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from foveate.nn.context import AttentionContext
from foveate.system import LibraryError, c_compiler, compiled, loaded_libraries, system_text

SOURCES = [Path(__file__).with_name("kernels.c"), *sorted(Path(__file__).parent.glob("*.h"))]
X86 = platform.machine() in ("x86_64", "AMD64")
FLAGS = (
    "-O3", "-fPIC", "-ffp-contract=fast",
    "-march=native" if X86 else "-mcpu=native",  # every compiler for ARM knows the second one
    # sums in any order, while infinities keep their meaning
    "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
    # compilers avoid AVX-512's full width for its heat, which more operations a second outweigh
    *(("-mprefer-vector-width=512",) if X86 else ()),
)  # fmt: skip
# The threads are PyTorch's own: its OpenMP is loaded and linked to, never a second one.
LINUX_LIBRARIES = loaded_libraries() if sys.platform == "linux" else None  # macOS's clang has none
OPENMP = ("-fopenmp",) if hasattr(LINUX_LIBRARIES, "GOMP_parallel") else ()

_int, _long, _float, _at = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
SIGNATURES = {  # result and arguments
    "cross_entropy": (None, _at, _int, _long, _long, _at, _float, _at, _at, _int),
    "attend_heads": (None, _at),
    "outer": (_int, _at),
    "dropout": (None, _long, _at, _at, _long, _int, _at, _int),
    "add_bias": (None, _long, _long, _at, _at, _int, _int),
    "flush_denormals": (None, _int),
    "checksum": (_long, _long, _at, _at),
    "scan": (None, _at, _at, _at),
    "scan_backward": (None, _at, _at),
    "convolve": (None, _at, _at),
    "convolve_backward": (None, *[_at] * 5),
    "rms_norm": (None, _long, _long, _at, _at, _float, _at, _at, _int),
    "rms_norm_backward": (None, _long, _long, *[_at] * 6, _int),
}


_disabled = False


def library() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None: without a compiler, with FOVEATE_NATIVE=0, if disabled,
    and inside a transform.
    """
    return None if _disabled or transformed() else _loaded()


def transformed() -> bool:
    """Return whether `torch.func` transforms the computation (grad, vmap, jvp, …).

    Then PyTorch computes alone: neither our kernels nor our autograd functions support transforms.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Compute with PyTorch only, for comparison."""
    global _disabled
    before, _disabled = _disabled, True
    try:
        yield
    finally:
        _disabled = before


@functools.cache
def _loaded() -> ctypes.CDLL | None:
    if os.environ.get("FOVEATE_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(compiled("kernels.so", SOURCES, _commands)))
    except OSError:
        return None
    except LibraryError as error:
        print(f"native kernels were not built, PyTorch computes alone: {error}", file=sys.stderr)
        return None
    for name, (result, *arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def pointer(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's first number; a null pointer for None."""
    return None if tensor is None else tensor.data_ptr()


def fits(x: Tensor) -> bool:
    """Return whether the kernels can read a tensor: fp32, in main memory, contiguous."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous()


def fits_either(x: Tensor) -> bool:
    """Return whether the kernels for fp32 and bf16 can read a tensor: its dtype, in main memory."""
    return x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu"


def _commands(file: Path) -> list[list[str]]:
    """Return the commands that build the library: linked separately, or a second OpenMP is loaded.

    Raises ``FileNotFoundError`` without a compiler.
    """
    if not (compiler := c_compiler()):
        raise FileNotFoundError("no C compiler")
    part = str(file.with_suffix(".o"))
    return [
        [*compiler, *FLAGS, *OPENMP, "-c", str(SOURCES[0]), "-o", part],
        [*compiler, "-shared", part, "-o", str(file), "-lm"],
    ]


@contextlib.contextmanager
def flushing_denormals() -> Iterator[None]:
    """Count numbers below 2⁻¹²⁶ as zero in all threads that compute, then restore the setting.

    Attention that has settled on few words has many such gradients, and x86 processors multiply
    them in microcode, many times slower. Other processors are unaffected. Without the kernels it
    applies to the calling thread and those that it starts.
    """
    before = sys.float_info.min / 2 == 0
    _flush_denormals(True)
    try:
        yield
    finally:
        _flush_denormals(before)


def _flush_denormals(on: bool) -> None:
    if X86:
        torch.set_flush_denormal(on)  # in this thread; new ones inherit it
        if (own := library()) is not None:
            own.flush_denormals(on)


CHECK = 0.5  # seconds between two readings of the waiting times
BUSY_MACHINE = (
    "other programs use this machine: threads sleep while they wait for each other, so that this "
    "one keeps its share of the processor"
)
BUSY = 0.1  # seconds per second, over all threads, of waiting for a core on a busy machine
CALM = 3.0  # seconds without that until it counts as calm again

_watch: _Watch | None = None


class _SleepingTeam(threading.Thread):
    """OpenMP threads in excess of the cores, asleep until `stop`."""

    def __init__(self, openmp: ctypes.CDLL) -> None:
        super().__init__(name="sleeping team", daemon=True)
        self._openmp, self._stopped = openmp, threading.Event()

    def run(self) -> None:
        nothing = ctypes.cast(self._openmp.free, ctypes.c_void_p)  # free(NULL)
        threads = max(2, self._openmp.omp_get_num_procs() - torch.get_num_threads() + 2)
        self._openmp.GOMP_parallel(nothing, None, threads, 0)
        self._stopped.wait()  # OpenMP ends the team with the thread that started it

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class _Watch(threading.Thread):
    def __init__(self, openmp: ctypes.CDLL) -> None:
        super().__init__(name="barriers", daemon=True)
        self._openmp = openmp
        self.busy = False

    def run(self) -> None:
        team: _SleepingTeam | None = None
        last_busy = -CALM
        for waited in waiting_times():
            time.sleep(CHECK)
            now = time.monotonic()
            last_busy = now if waited > BUSY else last_busy
            self.busy = now - last_busy < CALM
            if self.busy and team is None:
                team = _SleepingTeam(self._openmp)
                team.start()
            elif team is not None and not self.busy:
                team.stop()
                team = None


def sleep_at_barriers() -> None:
    """Let the OpenMP threads of this process sleep at barriers whenever others need the cores.

    A thread that reaches a barrier first spins, since waking one that sleeps takes longer than most
    barriers last. Next to another program it spins on the core that a later thread needs, and
    training takes many times its share of time. libgomp, the OpenMP of PyTorch on Linux, spins for
    milliseconds, but for only a microsecond while the process has more OpenMP threads than cores
    (GOMP_SPINCOUNT in its manual). So extra, sleeping threads exist as long as those of the process
    wait for cores. The number of computing threads is unchanged, and so is every bit of the
    results. A user's ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT`` is respected; without libgomp or
    Linux's waiting times nothing is done.
    """
    global _watch
    own = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    openmp = LINUX_LIBRARIES
    if own or openmp is None or (_watch is not None and _watch.is_alive()):
        return
    if hasattr(openmp, "GOMP_parallel") and not hasattr(openmp, "__kmpc_global_thread_num"):
        _watch = _Watch(openmp)
        _watch.start()


def machine_is_busy() -> bool:
    """Return whether this process's threads have recently waited for cores; False if unwatched."""
    return _watch is not None and _watch.busy


def busy_now(work: Callable[[], object], seconds: float = CHECK) -> bool:
    """Return whether the threads of some work wait for cores that other programs use."""
    times, until = waiting_times(), time.monotonic() + seconds
    next(times)
    while time.monotonic() < until:
        work()
    return next(times) > BUSY


def waiting_times() -> Iterator[float]:
    """Yield the seconds per second in which threads were ready but had no core, since the last."""
    before, then = _waited(), time.monotonic()
    yield 0.0
    while True:
        waited, now = _waited(), time.monotonic()
        yield sum(s - before.get(t, 0) for t, s in waited.items()) / 1e9 / (now - then)
        before, then = waited, now


def _waited() -> dict[str, int]:
    """Return the nanoseconds that each thread has waited so far."""
    files = Path("/proc/self/task").glob("*/schedstat")  # none outside Linux
    fields = {str(file): system_text(str(file)).split() for file in files}
    return {name: int(row[1]) for name, row in fields.items() if len(row) > 1}  # others have ended


def overridden(module: nn.Module, base: type, *methods: str) -> bool:
    """Return whether any of these methods of a module differs from that of ``base``.

    A derived class or the object itself may define another, and a hook may read or change what
    ``forward`` returns. A kernel that computes what ``base`` does must not be used then.
    """
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
    return ("forward" in methods and any(hooks)) or any(
        name in vars(module) or getattr(type(module), name) is not getattr(base, name)
        for name in methods
    )


@functools.cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


def as_written(part: object) -> bool:
    """Return whether a part's class is ours or PyTorch's, and the object has no method of its own.

    Then an engine that only has the numbers of a module may compute in its place.
    """
    ours = type(part).__module__.startswith(("foveate.", "torch.nn."))
    return ours and vars(part).keys().isdisjoint(_methods(type(part)))  # type: ignore[arg-type]


def definer(module: object, name: str) -> type:
    """Return the class that gives an object this attribute."""
    return next(each for each in type(module).__mro__ if name in vars(each))


SHORT = 128 * 128  # query × key positions; above this, PyTorch's fused attention is faster on CPUs


def is_long(queries: Tensor, keys: Tensor) -> bool:
    """Return whether PyTorch's fused attention is faster than forming the weights."""
    rows = queries.shape[2]
    return queries.device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT)


def fused_is_faster(
    queries: Tensor, keys: Tensor, values: Tensor, context: AttentionContext, trains_whole: bool
) -> bool:
    """Return whether `fused_attention` can compute the sum, and is faster than forming the weights.

    On a CPU it cannot if a query may attend to no key. Long sequences, and all on other devices,
    take PyTorch's fused kernel. Short ones on a CPU take the native kernel if the layer trains
    without dropout (``trains_whole``): its sums have another order, and outside of training a tap
    must not change a bit of the output.
    """
    long = is_long(queries, keys)
    short = trains_whole and queries.shape[2] > 1 and context.hypotheses == 1
    short = short and not context.position.biases and fits_either(queries)
    short = short and queries.dtype == keys.dtype == values.dtype and library() is not None
    if not (long or short):
        return False
    device = queries.device  # one that is not a CPU says what is blind without being asked
    at = context.query_at, context.key_at
    return device.type != "cpu" or context.mask.blind(*at, device) is None


def cross_entropy_(
    logits: Tensor, target: Tensor, smoothing: float, grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the losses log Σ_v exp z_v − (1 − α) z_y − α mean z and −log p(y): (N, V) -> (N), (N).

    ``smoothing`` is α. With ``grad`` the logits are overwritten by the gradient of the loss, p − (1
    − α) onehot_y − α/V.
    """
    kernels = library() if fits_either(logits) and logits.is_contiguous() else None
    if kernels is None:
        return _cross_entropy_(logits, target, smoothing, grad)
    loss, nll = torch.empty(2, len(logits))
    half, z, y = logits.dtype == torch.bfloat16, pointer(logits), pointer(target)
    results = pointer(loss), pointer(nll), torch.get_num_threads()
    kernels.cross_entropy(z, half, *logits.shape, y, smoothing, *results)
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


if TYPE_CHECKING:

    class AutogradContext(Protocol):
        """The context of an autograd function: what its forward stores for its backward."""

        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        shape: torch.Size
        dtype: torch.dtype
        scale: float
        seed: int
        drop: int
        residual: bool
        backwards: bool

        def save_for_backward(self, *tensors: Tensor | None) -> None:
            """Store tensors until the backward."""

        def mark_non_differentiable(self, *tensors: Tensor) -> None:
            """Let no gradient flow through these outputs."""

else:
    AutogradContext = torch.autograd.function.FunctionCtx


Made = TypeVar("Made")
_CHANGES = [0]  # fused optimizers and ``.data`` change weights without a new `_version`


def changed(*_: object) -> None:
    """Announce changed weights: needed after edits of single rows through ``Tensor.data``.

    Everything else that changes weights is noticed: operations on a parameter itself, optimizers,
    replacing a tensor, and edits through ``.data`` of whole tensors or of small ones.
    """
    _CHANGES[0] += 1


register_optimizer_step_post_hook(changed)


class WeightCache(Generic[Made]):
    """Caches values made from modules, made again once weights, classes or methods have changed.

    A value is dropped with its module, as long as it holds no reference to it.
    """

    def __init__(self) -> None:
        self._made = WeakKeyDictionary[nn.Module, tuple[object, Callable[[], int], int, Made]]()

    def get(self, module: nn.Module, parts: list[nn.Module], make: Callable[[], Made]) -> Made:
        """Return the value of a module with these parts; ``make`` makes it if new or changed."""
        each = (table for part in parts for table in (part._parameters, part._buffers) if table)
        tensors = [tensor for table in each for tensor in table.values() if tensor is not None]
        versions = [0 if tensor.is_inference() else tensor._version for tensor in tensors]
        at, sizes = list(map(Tensor.data_ptr, tensors)), list(map(Tensor.numel, tensors))
        named = [(type(part), *vars(part)) for part in parts]
        version = list(map(ref, parts)), named, _CHANGES[0], versions, at, sizes
        known, now, then, made = self._made.get(module, (None, int, 0, None))
        if known != version or made is None or now() != then:
            now, made = _checksum_of(tensors), make()
            self._made[module] = version, now, now(), made
        return made


def _checksum_of(tensors: list[Tensor]) -> Callable[[], int]:
    """Return a function that computes a checksum of small tensors and 64 numbers of larger ones.

    It may be called as long as the tensors keep their present addresses and sizes.
    """
    kernels = library()
    assert kernels is not None
    read = [t for t in tensors if t.device.type == "cpu" and t.is_contiguous()]
    at = (ctypes.c_void_p * len(read))(*map(pointer, read))
    words = (ctypes.c_int64 * len(read))(*(t.numel() * t.element_size() // 4 for t in read))
    return functools.partial(kernels.checksum, len(read), at, words)
