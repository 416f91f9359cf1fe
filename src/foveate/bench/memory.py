"""How much memory training and decoding take at most, and what it is made of.

Each runs in a process of its own. Weights, gradients and the optimiser's numbers are counted from
their shapes; what a forward pass keeps for the backward one from the tensors that autograd saves
(for the batch of the most places); the program with the data is what the process holds before the
model is made. What then lacks to the peak are temporaries, and what the allocator holds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

import torch

from foveate.bench import decoding, training
from foveate.bench.machine import MIB, describe, peak, resident, start_method
from foveate.bench.workload import Workload, workload
from foveate.run import device
from foveate.train.precision import Precision, resolve

STEPS = 3  # of training, those of the largest batches among them
ROWS = 64  # sentences decoded together


def measure(shape: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Peaks in MiB and their parts, of training and of decoding with beam 5 (where it decodes)."""
    fresh = multiprocessing.get_context(start_method())
    found: dict[str, Any] = {"what": "memory"}
    for name, work in {"training": of_training, "decoding": of_decoding}.items():
        with fresh.Pool(1) as pool:
            said, parts = pool.apply(work, (shape, list(overrides)))
        found |= said
        if parts is not None:
            found[name] = parts
    return found | {"machine": describe()}


Parts = tuple[dict[str, Any], dict[str, float] | None]


def of_training(shape: str, overrides: list[str]) -> Parts:
    """The peak of some steps, the largest batch among them."""
    with workload(shape, overrides) as work:
        work.task.lengths("train")
        base = resident() or 0.0
        precision = resolve(work.config.train.precision, device())
        model = work.model()
        weights = size_of(model.parameters())
        training.train(work, model, precision, steps=STEPS)
        highest = peak(device()) or 0.0
        kept = saved(work, model, precision)
    parts = {
        "program and data": 0.0 if device() == "cuda" else base,
        "weights": weights,
        "gradients": weights,
        "optimiser": size_of_optimizer(work, model),
        "kept activations": kept,
    }
    return work.said() | {"precision": precision.name}, _with_rest(parts, highest)


def of_decoding(shape: str, overrides: list[str]) -> Parts:
    """The peak of one batch with beam 5; ``None`` for a task that does not decode sources."""
    with workload(shape, overrides) as work:
        if not hasattr(work.task, "source_tokenizer") or not hasattr(work.task, "search"):
            return {}, None
        sources = work.task.source_tokenizer.encode_ids(work.task.corpus("test").sources)
        base = resident() or 0.0
        model = work.model().eval()
        longest = sorted(sources, key=len)[-ROWS:]
        work.task.search(model, longest, decoding.forced(5), 10**9)
        highest = peak(device()) or 0.0
    parts = {
        "program and data": 0.0 if device() == "cuda" else base,
        "weights": size_of(model.parameters()),
    }
    return {}, _with_rest(parts, highest)


def saved(work: Workload, model: torch.nn.Module, precision: Precision) -> float:
    """MiB that autograd keeps of one forward pass on the batch of the most places."""
    config, found = work.config, dict[int, int]()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    lengths = work.task.lengths("train")
    batches = work.task.plan(lengths, config.train.batch_tokens, config.seed).epoch(0)
    largest = max(batches, key=lambda b: len(b) * int(lengths[b].max(initial=0)))
    batch = work.task.batch("train", largest.tolist())
    model.train()
    with precision.context(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        loss = work.task.loss(model, batch, config.objective.build())
    del loss
    return sum(found.values()) / MIB


def size_of(tensors: Any) -> float:
    """MiB of some tensors."""
    return sum(t.numel() * t.element_size() for t in tensors) / MIB


def size_of_optimizer(work: Workload, model: torch.nn.Module) -> float:
    """MiB of what the optimiser remembers of each weight, by one step along no gradient."""
    optimizer = work.config.train.optimizer.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = (value for state in optimizer.state.values() for value in state.values())
    return size_of(value for value in states if isinstance(value, torch.Tensor))


def _with_rest(parts: dict[str, float], highest: float) -> dict[str, float]:
    rest = highest - sum(parts.values())
    whole = parts | {"temporaries and allocator": rest, "peak": highest}
    return {f"{name} MiB": round(value, 1) for name, value in whole.items()}
