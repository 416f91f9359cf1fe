"""Peak memory of training and decoding, and what it consists of.

Each runs in its own process. Weights, gradients and optimiser state are counted from their
shapes; activations from the tensors that autograd saves for the largest batch; program and data
are the memory of the process before the model is built. The rest of the peak is temporary
tensors, and memory that the allocator holds.
"""

import multiprocessing
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from foveate.config import Tree
from foveate.decode.engine import SearchRequest
from foveate.measure import decoding, training
from foveate.measure.machine import MIB, START_METHOD, describe, resident
from foveate.measure.training import Say, Workload, mute, workload
from foveate.run import device
from foveate.run.training import job_of
from foveate.tasks.engine import TorchEngine
from foveate.tasks.text_to_text import TextToText
from foveate.train.config import Precision, resolve
from foveate.train.journal import peak_memory

STEPS = 3  # training steps, on the largest batches among others
ROWS = 64  # sentences decoded together


def measure_memory(shape: str, overrides: Sequence[str] = (), say: Say = mute) -> Tree:
    """Return peaks in MiB and their parts: training, and decoding with beam 5 if it applies."""
    fresh = multiprocessing.get_context(START_METHOD)
    result: Tree = {"what": "memory"}
    for name, work in {"training": of_training, "decoding": of_decoding}.items():
        say(f"{shape}: the peak of {name}, in a process of its own")
        with fresh.Pool(1) as pool:
            summary, parts = pool.apply(work, (shape, list(overrides)))
        result |= summary
        if parts is not None:
            result[name] = parts
    return result | {"machine": describe()}


Parts = tuple[Tree, dict[str, float] | None]


def of_training(shape: str, overrides: list[str]) -> Parts:
    """Return the peak of a few training steps, the largest batch among them."""
    with workload(shape, overrides) as work:
        work.task.lengths("train")
        base = resident() or 0.0
        precision = resolve(work.config.train.precision, device())
        model = work.model()
        weights = size_of(model.parameters())
        training.train(work, model, precision, steps=STEPS)
        highest = peak_memory(device()) or 0.0
        activations = saved(work, model, precision)
    parts = {
        "program and data": 0.0 if device() == "cuda" else base,
        "weights": weights,
        "gradients": weights,
        "optimiser": size_of_optimizer(work, model),
        "kept activations": activations,
    }
    return work.summary() | {"precision": precision.name}, _with_rest(parts, highest)


def of_decoding(shape: str, overrides: list[str]) -> Parts:
    """Return the peak of one batch with beam 5; ``None`` if the task decodes no sources."""
    with workload(shape, overrides) as work:
        if not isinstance(work.task, TextToText):
            return {}, None
        sources = work.task.source_tokenizer.encode_ids(work.task.corpus("test").sources)
        base = resident() or 0.0
        model = work.model().eval()
        request = SearchRequest(decoding.forced(5), batch_tokens=10**9)
        TorchEngine(work.task, model).outputs(sorted(sources, key=len)[-ROWS:], request)
        highest = peak_memory(device()) or 0.0
    parts = {
        "program and data": 0.0 if device() == "cuda" else base,
        "weights": size_of(model.parameters()),
    }
    return {}, _with_rest(parts, highest)


def saved(work: Workload, model: torch.nn.Module, precision: Precision) -> float:
    """Return the MiB that autograd saves for the loss of the batch with the most positions."""
    sizes = dict[int, int]()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    lengths = work.task.lengths("train")
    largest = max(work.batches(), key=lambda b: len(b) * int(lengths[b].max(initial=0)))
    batch = work.task.batch("train", largest.tolist())
    model.train()
    with precision.context(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        loss = job_of(work.config, work.task, model).objective.loss(work.task, model, batch)
    del loss
    return sum(sizes.values()) / MIB


def size_of(tensors: Iterable[Tensor]) -> float:
    """Return the size of tensors in MiB."""
    return sum(t.numel() * t.element_size() for t in tensors) / MIB


def size_of_optimizer(work: Workload, model: torch.nn.Module) -> float:
    """Return the MiB of the optimiser's state, measured by one step with zero gradients."""
    optimizer = work.config.train.optimizer.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = (value for state in optimizer.state.values() for value in state.values())
    return size_of(value for value in states if isinstance(value, torch.Tensor))


def _with_rest(parts: dict[str, float], highest: float) -> dict[str, float]:
    whole = parts | {"temporaries and allocator": highest - sum(parts.values()), "peak": highest}
    return {f"{name} MiB": round(value, 1) for name, value in whole.items()}
