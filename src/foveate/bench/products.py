"""What a stretch of work consists of: matrix products counted, time divided among operations.

**Counted FLOPs.** Every product that PyTorch dispatches is seen with its shapes, and (m × k)(k × n)
counts as 2·m·k·n: linear layers forwards and backwards, batched products of attention, fused
attention (five products in its backward, which forms the weights anew), LSTM kernels. Padding in
a batch counts as the work that it is; sums, norms, softmax and the like do not count. What native
kernels multiply is not dispatched: with them left out PyTorch computes, and counts, the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

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
NATIVE = ("Attend", "Scan", "_ByteDropout", "_LinearCrossEntropy", "_Map")  # their own time


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
    kernels: dict[Any, Callable[..., int]] = {torch.ops.aten.mkldnn_rnn_layer: _rnn_layer}
    with FlopCounterMode(display=False, custom_mapping=kernels) as counter:
        yield counted
    for operation, flops in counter.get_flop_counts().get("Global", {}).items():
        counted.by_operation[str(operation)] = int(flops)


def _rnn_layer(
    x: Any, weight_x: Any, weight_h: Any, *rest: Any, out_shape: Any = None, **named: Any
) -> int:
    """A layer of recurrence in one kernel: a product with each weight at every step."""
    rows = x[0] * x[1]
    return int(2 * rows * (weight_x[0] * weight_x[1] + weight_h[0] * weight_h[1]))


@contextmanager
def shares() -> Iterator[dict[str, float]]:
    """The share of each group of operations in the time of the processor (or GPU) within."""
    found: dict[str, float] = {}
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        yield found
    own = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    spent: dict[str, float] = {}
    for event in profiler.key_averages():
        if event.key.startswith(("aten::", "foveate::", "torch::", *NATIVE)):
            name = group_of(event.key)
            spent[name] = spent.get(name, 0.0) + float(getattr(event, own))
    whole = sum(spent.values()) or 1.0
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    found |= {name: round(time / whole, 3) for name, time in ordered}


def group_of(operation: str) -> str:
    """The group of an operation such as ``aten::addmm``."""
    name = operation.partition("::")[2] or operation
    for group, parts in GROUPS.items():
        if any(part in name for part in parts):
            return group
    return REST
