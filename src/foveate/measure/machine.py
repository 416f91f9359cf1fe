"""The machine: processor, threads, memory, and the speed of its matrix products."""

import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from foveate.config import Tree
from foveate.system import processor_name

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIZE = 2048  # rows and columns of the products; 512 and 4,096 are slower on the CPUs tried
MIB = 2**20


def quickest(work: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    """Return the time of the fastest of all calls in ``seconds``, at least one."""
    best, until = math.inf, clock() + seconds
    while best == math.inf or clock() < until:
        started = clock()
        work()
        best = min(best, clock() - started)
    return best


def product_rate(
    dtype: torch.dtype,
    seconds: float = 1.0,
    size: int = SIZE,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the GFLOP/s of square matrix products (2·size³ FLOPs each): the best in the time.

    If one product would take longer (bf16 on processors without it), it has an eighth of the size.
    """
    rate = 0.0
    for rows, limit in ((size // 8, seconds / 10), (size, seconds)):
        a = torch.randn(rows, rows, device=device).to(dtype)
        _square(a)  # the first call chooses its kernel
        rate = 2 * rows**3 / quickest(partial(_square, a), limit, clock) / 1e9
        if 2 * size**3 / rate / 1e9 > seconds:
            break
    return rate


def ceilings(seconds: float = 1.0, device: str = "cpu") -> dict[str, float]:
    """Return the GFLOP/s of the fastest matrix product by precision: a bound for any model."""
    return {
        name: round(product_rate(dtype, seconds, device=device), 1)
        for name, dtype in DTYPES.items()
    }


def describe() -> Tree:
    """Return machine, versions and commit (``None`` outside a git checkout)."""
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


def _square(matrix: torch.Tensor) -> None:
    if (matrix @ matrix).is_cuda:
        torch.cuda.synchronize(matrix.device)


def _commit() -> str | None:
    """Return the commit of the checkout that contains this file."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
            encoding="utf-8",
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


# What work consists of: matrix products counted, time divided among operations.
#
# **Counted FLOPs.** Every product that PyTorch dispatches counts by its shapes, (m × k)(k × n) as
# 2·m·k·n: linear layers forward and backward, batched products of attention, fused attention (five
# products in its backward pass, which recomputes the weights), LSTM kernels. Padding counts; sums,
# norms and softmax do not. Native kernels are not dispatched: for counting they are switched off,
# and PyTorch computes the same.

# Groups of operations by parts of their names; the first match takes an operation.
GROUPS = {
    "attention, native": ("Attend",),
    "attention, fused": ("scaled_dot_product", "flash_attention", "efficient_attention"),
    "recurrence, fused": ("lstm", "gru", "rnn"),
    "products in batches": ("bmm",),
    "products": ("mm", "linear", "matmul", "conv", "_Map"),
    "softmax, loss": ("softmax", "nll_loss", "cross_entropy", "_LinearLoss", "logsumexp"),
    "dropout": ("bernoulli", "dropout", "Dropout", "random_"),
    "optimiser": ("adam", "_foreach", "sgd"),
    "norms": ("norm",),
    "embedding": ("embedding", "index"),
    "copies": ("copy_", "cat", "clone", "contiguous", "stack", "fill_", "zero_", "_to_copy"),
}
REST = "other"
Shape = Sequence[int]
# Native kernels, timed separately.
NATIVE = ("Attend", "Scan", "Convolve", "_ByteDropout", "_LinearLoss", "_Map")


def counting() -> FlopCounterMode:
    """Return a context that counts the matrix products within it: its ``get_total_flops()``."""
    aten = torch.ops.aten
    kernels: dict[object, Callable[..., int]] = {
        aten.mkldnn_rnn_layer: _rnn_layer,
        aten.convolution_backward: _convolution_backward,
    }
    return FlopCounterMode(display=False, custom_mapping=kernels)


def _rnn_layer(x: Shape, weight_x: Shape, weight_h: Shape, *rest: object, **named: object) -> int:
    """Count a recurrent layer in one kernel: one product with each weight at every step."""
    return int(2 * x[0] * x[1] * (weight_x[0] * weight_x[1] + weight_h[0] * weight_h[1]))


def _convolution_backward(
    y: Shape, x: Shape, weight: Shape, *rest: Sequence[bool], **named: object
) -> int:
    """Count each requested gradient as much as the convolution itself, whatever its groups.

    PyTorch's own formula counts a depthwise convolution as one over all channels.
    """
    transposed, wanted = rest[4], rest[7][:2]  # gradients of inputs, of weights
    each = conv_flop_count(list(x), list(weight), list(y), transposed=bool(transposed))
    return int(sum(wanted) * each)


@contextmanager
def shares() -> Iterator[dict[str, float]]:
    """Yield each group of operations' share of the processor's (or GPU's) time in the block."""
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
    """Return the group of an operation such as ``aten::addmm``."""
    name = operation.partition("::")[2] or operation
    groups = (group for group, parts in GROUPS.items() if any(part in name for part in parts))
    return next(groups, REST)
