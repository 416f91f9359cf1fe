"""How time and memory grow with length."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from foveate.bench import decoding, training
from foveate.bench.machine import MIB, START_METHOD, ceilings, describe, peak, quickest, resident
from foveate.bench.training import Say, Workload, mute, workload
from foveate.config import Tree, kinds
from foveate.engine.base import SearchRequest
from foveate.kinds import load_kinds
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Mask
from foveate.nn.recurrent import LSTMCell
from foveate.nn.ssm import SelectiveStateSpace
from foveate.run import device
from foveate.tasks.text_to_text import TextToText
from foveate.train.config import Precision, resolve
from foveate.training import job_of

SIZE, HEADS = 256, 4
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
PATIENCE = 60.0  # seconds: a figure that would take longer is left out
ROOM = 8000.0  # MB: the same
FITTED = 4  # the longest lengths, to which the exponents are fitted
Layer = Callable[[Tensor], Tensor]
Maker = Callable[["Variant", int], Layer]  # of a variant and the longest length


@dataclass(frozen=True)
class Variant:
    """A layer to measure; ``make`` is called in a process of its own."""

    name: str
    make: Maker
    kind: str = ""  # of attention
    causal: bool = False


Figures = list[tuple[float, float] | None]  # ms and MB; None: it would take too long or too much


def measure_length(
    lengths: Sequence[int] = LENGTHS,
    seconds: float = 0.5,
    report: Say = mute,
    only: Sequence[str] = (),
) -> Tree:
    """All variants (or those whose names hold one of ``only``) at all lengths, shortest first."""
    fresh = multiprocessing.get_context(START_METHOD)
    if START_METHOD == "forkserver":
        fresh.set_forkserver_preload(["foveate.bench.growth"])  # imports once, then forks
    load_kinds()
    growths = {}
    for variant in variants():
        if only and not any(part in variant.name for part in only):
            continue
        figures: Figures = []
        for length in sorted(lengths):
            if worth(figures, sorted(lengths)):
                with fresh.Pool(1) as pool:
                    figures.append(pool.apply(cost, (variant, length, max(lengths), seconds)))
            else:
                figures.append(None)
        growths[variant.name] = described(figures, sorted(lengths))
        times = ("-" if each is None else f"{each[0]:.4g}" for each in figures)
        report(f"{variant.name:24}" + "".join(f"{time:>10}" for time in times) + " ms")
    return {
        "what": "length",
        "hidden_size": SIZE,
        "num_heads": HEADS,
        "lengths": sorted(lengths),
        "kinds": growths,
        "ceilings_gflops": ceilings(0.3),
        "machine": describe(),
    }


def variants() -> list[Variant]:
    """Each kind of attention without and with a causal mask, an LSTM, a selective state space."""
    layers = []
    for kind, config in kinds("attention")["attention"].items():
        names = {"full": ("full, fused", "full, explicit")}.get(kind, (kind,))
        for name in names:
            make = explicit if name.endswith("explicit") else attention
            layers.append(Variant(name, make, kind))
            if config.owner.causal:  # type: ignore[union-attr]
                layers.append(Variant(f"{name}, causal", make, kind, True))
    return [*layers, Variant("lstm", lstm, causal=True), Variant("mamba", mamba, causal=True)]


# ------------------------------------------------------------------------------ one figure


def cost(variant: Variant, length: int, longest: int, seconds: float) -> tuple[float, float]:
    """Milliseconds and megabytes of a variant at one length, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load_kinds()
    layer = variant.make(variant, longest)
    x = torch.randn(1, length, SIZE, requires_grad=True)
    before = peak() or 0.0
    best = quickest(lambda: layer(x).sum().backward(), seconds, clock=time.process_time)
    return round(1000 * best, 3), round((peak() or 0.0) - before, 1)


def attention(variant: Variant, longest: int) -> Layer:
    """A kind of attention."""
    config = kinds("attention")["attention"][variant.kind]
    values: Tree = {"num_heads": HEADS}
    if "max_length" in config.model_fields:
        values["max_length"] = longest
    layer: BaseAttention = config(**values).build(SIZE)
    mask = Mask(causal=variant.causal)
    return lambda x: layer(x, None, mask)


def explicit(variant: Variant, longest: int) -> Layer:
    """Full attention with its weights formed, as it is for a tap, a score of one's own, entmax."""
    layer: BaseAttention = Attention.Config.parse({"num_heads": HEADS}).build(SIZE)
    layer.tap = lambda weights: None
    mask = Mask(causal=variant.causal)
    return lambda x: layer(x, None, mask)


def lstm(variant: Variant, longest: int) -> Layer:
    """A recurrent layer of LSTM cells."""
    cell: LSTMCell = LSTMCell.Config().build(SIZE, SIZE)
    return lambda x: cell.run(x, cell.start(x[:, 0]))[0]


def mamba(variant: Variant, longest: int) -> Layer:
    """A selective state space."""
    layer: nn.Module = SelectiveStateSpace.Config().build(SIZE)
    return layer


# ------------------------------------------------------------------------------ growth


def worth(figures: Figures, lengths: Sequence[int]) -> bool:
    """Whether the next figure should fit into the patience and the memory that there are.

    Time and memory are taken to grow by the square from the last length to the next.
    """
    if not figures:
        return True
    if figures[-1] is None:
        return False
    milliseconds, megabytes = figures[-1]
    times = (lengths[len(figures)] / lengths[len(figures) - 1]) ** 2
    return milliseconds * times < 1000 * PATIENCE and megabytes * times < ROOM


def exponent(
    lengths: Sequence[int], figures: Sequence[float | None], fitted: int = FITTED
) -> float | None:
    """P of figure ∝ length^p, by least squares of the logarithms over the longest ``fitted``.

    ``None`` where fewer than two figures are known; infinite ones and NaN are not.
    """
    pairs = zip(lengths, figures, strict=True)
    known = [(n, f) for n, f in pairs if f is not None and 0 < f < math.inf]
    if len(known) < 2:
        return None
    x, y = np.log(np.array(known[-fitted:], dtype=float)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def described(figures: Figures, lengths: Sequence[int]) -> Tree:
    """The figures of one variant and how they grow."""
    times, sizes = zip(*((None, None) if each is None else each for each in figures), strict=True)
    return {
        "milliseconds": list(times),
        "megabytes": list(sizes),
        "exponent_time": exponent(lengths, times),
        "exponent_memory": exponent(lengths, sizes),
    }


# ------------------------------------------------------------------------------------------ memory
# How much memory training and decoding take at most, and what it is made of.
#
# Each runs in a process of its own. Weights, gradients and the optimiser's numbers are counted
# from their shapes; activations from the tensors that autograd saves for the largest batch; the
# program with the data is the memory of the process before the model is made. The rest of the peak
# are temporaries, and memory that the allocator holds.

STEPS = 3  # of training, those of the largest batches among them
ROWS = 64  # sentences decoded together


def measure_memory(shape: str, overrides: Sequence[str] = (), say: Say = mute) -> Tree:
    """Peaks in MiB and their parts, of training and of decoding with beam 5 (where it decodes)."""
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
    """The peak of some steps, the largest batch among them."""
    with workload(shape, overrides) as work:
        work.task.lengths("train")
        base = resident() or 0.0
        precision = resolve(work.config.train.precision, device())
        model = work.model()
        weights = size_of(model.parameters())
        training.train(work, model, precision, steps=STEPS)
        highest = peak(device()) or 0.0
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
    """The peak of one batch with beam 5; ``None`` for a task that does not decode sources."""
    with workload(shape, overrides) as work:
        if not isinstance(work.task, TextToText):
            return {}, None
        sources = work.task.source_tokenizer.encode_ids(work.task.corpus("test").sources)
        base = resident() or 0.0
        model = work.model().eval()
        longest = sorted(sources, key=len)[-ROWS:]
        request = SearchRequest(decoding.forced(5), batch_tokens=10**9)
        work.task.engine(model).outputs(longest, request)
        highest = peak(device()) or 0.0
    parts = {
        "program and data": 0.0 if device() == "cuda" else base,
        "weights": size_of(model.parameters()),
    }
    return {}, _with_rest(parts, highest)


def saved(work: Workload, model: torch.nn.Module, precision: Precision) -> float:
    """MiB that autograd keeps of the loss of the batch of the most places, of all its passes."""
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
        loss = job_of(work.config, work.task, model).loss(model, batch)
    del loss
    return sum(sizes.values()) / MIB


def size_of(tensors: Iterable[Tensor]) -> float:
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
