"""The machine: processor, threads, memory, and how fast its matrix products are."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from foveate.config import Tree
from foveate.system import processor_name, system_text
from foveate.train.journal import peak_memory

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIZE = 2048  # rows and columns of the products; 512 and 4,096 are slower on the CPUs tried
MIB = 2**20
START_METHOD = "spawn" if sys.platform == "win32" else "forkserver"  # of processes of their own


def quickest(
    work: Callable[[], object], seconds: float = 0.0, least: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:  # fmt: skip
    """The time of the quickest call of those in ``seconds``, and of ``least`` calls."""
    best, calls, until = math.inf, 0, clock() + seconds
    while calls < least or clock() < until:
        started = clock()
        work()
        best, calls = min(best, clock() - started), calls + 1
    return best


def product_rate(
    dtype: torch.dtype,
    seconds: float = 1.0,
    size: int = SIZE,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """GFLOP/s of square matrix products, 2·size³ each: the best of those done in the time.

    Where one would take longer (bf16 on processors without it), products of an eighth of the size.
    """
    rate = _product_rate(dtype, seconds / 10, size // 8, device, clock)
    if 2 * size**3 / rate / 1e9 > seconds:
        return rate
    return _product_rate(dtype, seconds, size, device, clock)


def _product_rate(
    dtype: torch.dtype, seconds: float, size: int, device: str, clock: Callable[[], float]
) -> float:
    a = torch.randn(size, size, device=device).to(dtype)
    _wait(a @ a)  # the first call chooses its kernel
    return 2 * size**3 / quickest(lambda: _wait(a @ a), seconds, clock=clock) / 1e9


def ceilings(seconds: float = 1.0, device: str = "cpu") -> dict[str, float]:
    """GFLOP/s of the best matrix product by precision; what a model can reach at most."""
    return {
        name: round(product_rate(dtype, seconds, device=device), 1)
        for name, dtype in DTYPES.items()
    }


def describe() -> Tree:
    """Machine, versions and commit (``None`` outside a git checkout)."""
    machine: Tree = {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": _commit(),
    }
    if hasattr(os, "getloadavg"):
        machine["load_before"] = round(os.getloadavg()[0], 2)
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    return machine


def resident() -> float | None:
    """MiB that the process holds in memory now; ``None``: unknown."""
    pages = system_text("/proc/self/statm").split()
    if sys.platform == "linux" and len(pages) > 1:
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return None


def peak(device: str = "cpu") -> float | None:
    """The most MiB that the process (or on a GPU its tensors) held so far; ``None``: unknown."""
    return peak_memory(torch.device(device))


def _wait(result: torch.Tensor) -> None:
    if result.is_cuda:
        torch.cuda.synchronize(result.device)


def _commit() -> str | None:
    """The commit of the checkout that this file is part of."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
            encoding="utf-8",
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


# What a stretch of work consists of: matrix products counted, time divided among operations.
#
# **Counted FLOPs.** Every product that PyTorch dispatches counts by its shapes, (m × k)(k × n) as
# 2·m·k·n: linear layers forwards and backwards, batched products of attention, fused attention
# (five products in its backward, which forms the weights anew), LSTM kernels. Padding counts; sums,
# norms and softmax do not. Native kernels are not dispatched: PyTorch computes and counts the same
# without them.

# Groups of operations by what their names hold; the first that fits takes an operation.
GROUPS = {
    "attention, native": ("Attend",),
    "attention, fused": ("scaled_dot_product", "flash_attention", "efficient_attention"),
    "recurrence, fused": ("lstm", "gru", "rnn"),
    "products in batches": ("bmm",),
    "products": ("mm", "linear", "matmul", "conv", "_Map"),
    "softmax, loss": ("softmax", "nll_loss", "cross_entropy", "CrossEntropy", "logsumexp"),
    "dropout": ("bernoulli", "dropout", "Dropout", "random_"),
    "optimiser": ("adam", "_foreach", "sgd"),
    "norms": ("norm",),
    "embedding": ("embedding", "index"),
    "copies": ("copy_", "cat", "clone", "contiguous", "stack", "fill_", "zero_", "_to_copy"),
}
REST = "other"
Shape = Sequence[int]
# Native kernels, which count with their own time.
NATIVE = ("Attend", "Scan", "Convolve", "_ByteDropout", "_LinearCrossEntropy", "_Map")


@dataclass
class Counted:
    """FLOPs of matrix products by the name of the operation."""

    by_operation: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by_operation.values())


@contextmanager
def counting() -> Iterator[Counted]:
    """Count the products within; the result is filled at the end."""
    counted = Counted()
    aten = torch.ops.aten
    kernels: dict[object, Callable[..., int]] = {
        aten.mkldnn_rnn_layer: _rnn_layer,
        aten.convolution_backward: _convolution_backward,
    }
    with FlopCounterMode(display=False, custom_mapping=kernels) as counter:
        yield counted
    for operation, flops in counter.get_flop_counts().get("Global", {}).items():
        counted.by_operation[str(operation)] = int(flops)


def _rnn_layer(x: Shape, weight_x: Shape, weight_h: Shape, *rest: object, **named: object) -> int:
    """A layer of recurrence in one kernel: a product with each weight at every step."""
    rows = x[0] * x[1]
    return int(2 * rows * (weight_x[0] * weight_x[1] + weight_h[0] * weight_h[1]))


def _convolution_backward(
    y: Shape, x: Shape, weight: Shape, *rest: Sequence[bool], **named: object
) -> int:
    """Each gradient that is wanted costs what the convolution did, whatever its groups.

    PyTorch's own formula counts a convolution of one channel each as one of all channels.
    """
    transposed, wanted = rest[4], rest[7][:2]  # gradients of inputs, of weights
    each = conv_flop_count(list(x), list(weight), list(y), transposed=bool(transposed))
    return int(sum(wanted) * each)


@contextmanager
def shares() -> Iterator[dict[str, float]]:
    """The share of each group of operations in the time of the processor (or GPU) within."""
    time_shares: dict[str, float] = {}
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        yield time_shares
    own = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    spent: dict[str, float] = {}
    for event in profiler.key_averages():
        if event.key.startswith(("aten::", "foveate::", "torch::", *NATIVE)):
            name = group_of(event.key)
            spent[name] = spent.get(name, 0.0) + float(getattr(event, own))
    whole = sum(spent.values()) or 1.0
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    time_shares |= {name: round(time / whole, 3) for name, time in ordered}


def group_of(operation: str) -> str:
    """The group of an operation such as ``aten::addmm``."""
    name = operation.partition("::")[2] or operation
    for group, parts in GROUPS.items():
        if any(part in name for part in parts):
            return group
    return REST
