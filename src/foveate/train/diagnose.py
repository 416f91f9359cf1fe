"""Looking at a step that went wrong or may: numbers that are not finite, memory.

Lives here: what is done once, when there is a question. Does not live here: the loop that asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from foveate.tasks.base import Loss


def why_not_finite(
    model: nn.Module, batches: Sequence[Any], forward: Callable[[Any], Loss], rate: float
) -> str:
    """Where numbers first left the finite: the step is run again; and the likely cause."""
    remedy = (
        f"likely the learning rate ({rate:.2g} here) is too high or its warm-up too short; "
        'precision = "fp32" tells whether rounding is to blame'
    )
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"the weights {name} are not finite: {remedy}"
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    first = next((name for name, grad in gradients.items() if not _finite(grad)), "")
    for batch in batches:
        layer, loss = _first_overflow(model, batch, forward)
        if not _finite(loss.total):
            return (
                f"the loss is {float(loss.total)}, and {layer or 'no layer'} is the first whose "
                f"output is not finite (of the gradients, that of {first}): look at these "
                f"examples, if they hold anything odd; else {remedy}"
            )
    return f"the loss is finite, but the gradient of {first} is not: {remedy}"


def _first_overflow(
    model: nn.Module, batch: Any, forward: Callable[[Any], Loss]
) -> tuple[str | None, Loss]:
    """The first module whose output holds NaN or +∞ (-∞ is what masks are made of)."""
    found: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, given: Any, output: Any) -> None:
            if any(bool((t.isnan() | t.isposinf()).any()) for t in _tensors(output)):
                found.append(name)

        return look

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            handle = module.register_forward_hook(watch(name or "the model"))
            stack.callback(handle.remove)
        loss = forward(batch)
    return (found[0] if found else None), loss


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor) and output.is_floating_point():
        yield output
    elif isinstance(output, tuple | list):
        for part in output:
            yield from _tensors(part)


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def peak_memory(device: torch.device) -> float | None:
    """The most memory that the process has held so far, in MiB; ``None`` where unknown."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    try:
        import resource
    except ImportError:
        return None  # Windows
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, on a GPU, in PyTorch or in Python."""
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or "can't allocate memory" in str(error)
