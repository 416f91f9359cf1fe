"""The cost of models: time and memory against length, operations, steps, path lengths."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from foveate.bench.budget import Contender, Say
from foveate.bench.decoding import forced
from foveate.bench.machine import MIB, counting, quickest
from foveate.data.tokenizer import SPECIALS
from foveate.decode.engine import SearchRequest
from foveate.draw.charts import line_chart
from foveate.draw.drawings import Drawing
from foveate.draw.parts import Cell
from foveate.draw.texts import TableDrawing
from foveate.errors import UserError
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.native.kernels import without_kernels
from foveate.nn.attention import BaseAttention
from foveate.nn.recurrent import Cell as RecurrentCell
from foveate.nn.recurrent import Recurrence
from foveate.nn.ssm import SelectiveStateSpace
from foveate.run import Run
from foveate.tasks.engine import TorchEngine
from foveate.tasks.language import Language
from foveate.tasks.text_to_text import TextToText

OUTPUTS = (16, 64, 256, 512)  # generated tokens
READ = (16, 32, 64, 128, 256)  # tokens on each side in a training step
ROWS = 8  # examples in a training step
SHORT, LONG = 32, 64  # lengths at which operations are counted
SOURCE = 16  # source tokens when generation is measured
FITTED = 4  # the number of longest lengths to which an exponent is fitted


def exponent(
    lengths: Sequence[int], figures: Sequence[float | None], fitted: int = FITTED
) -> float | None:
    """Fit p of figure ∝ length^p by least squares of the logarithms over the longest ``fitted``.

    None if fewer than two figures are known; infinite figures and NaN count as unknown.
    """
    pairs = zip(lengths, figures, strict=True)
    known = [(n, f) for n, f in pairs if f is not None and 0 < f < math.inf]
    if len(known) < 2:
        return None
    x, y = np.log(np.array(known[-fitted:], dtype=float)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of live tensors made within the block; ``peak`` is their maximum."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._alive = {id(part.untyped_storage()) for part in model.parameters()}
        self._parts = [part.untyped_storage() for part in model.parameters()]  # no id is reused

    def __torch_dispatch__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        arguments: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
    ) -> object:
        result = function(*arguments, **(named or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._alive:
            return
        self._alive.add(key)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._free, key, size).atexit = False

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.bytes -= size


@torch.inference_mode()
def most_bytes(model: nn.Module, work: Callable[[], object]) -> int:
    """Return the peak bytes of live tensors in a second call, weights left out."""
    with without_kernels():
        work()
        with LiveTensors(model) as live:
            work()
    return live.peak


def best_of(work: Callable[[], object]) -> float:
    """Return the seconds of the quicker of two calls; NaN if the model refuses the length."""
    try:
        return quickest(work, least=2)
    except UserError:
        return math.nan


def writer(run: Run, length: int) -> Callable[[], object]:
    """Return a function that writes ``length`` tokens greedily after a source or a prompt."""
    task, search = run.task, forced(1, length)
    if isinstance(task, TextToText):
        ids = [len(SPECIALS) + n % 20 for n in range(SOURCE)]
        request = SearchRequest(search, batch_tokens=10**9)
        return lambda: TorchEngine(task, run.model).outputs([ids], request)
    return lambda: run.generate([""], max_length=length, beam_size=1)


def written(contenders: Sequence[Contender], say: Say) -> list[Drawing]:
    """Draw tokens per second and peak memory of generation against the output's length."""
    speeds: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {}
    if not isinstance(contenders[0].run.task, TextToText | Language):
        return []
    for each in contenders:
        say(f"{each.name}: writing {OUTPUTS[0]} to {OUTPUTS[-1]} tokens")
        for length in OUTPUTS:
            work = writer(each.run, length)
            speeds.setdefault(each.name, []).append(length / best_of(work))
            peaks.setdefault(each.name, []).append(most_bytes(each.run.model, work) / MIB)
    across = "tokens of the output"
    return [
        line_chart(
            OUTPUTS, speeds, across, "tokens a second", "Speed of writing", log="x",
            caption="greedy, one source, quickest of two",
        ),
        line_chart(
            OUTPUTS, peaks, across, "MiB", "Peak memory of writing", log="x",
            caption="most bytes of tensors alive at a time, weights left out: a cache of keys and "
            "values grows with the output, a recurrent state does not",
        ),
    ]  # fmt: skip


# n words, D numbers in a vector, N in a channel's state (Vaswani et al., 2017, table 1).

ATTENTION, RECURRENT, SPACE = "self-attention", "recurrent", "state space"
LAWS = {  # operations per layer, sequential steps, longest path between two positions
    ATTENTION: ("n² · D + n · D²", "1", "1"),
    RECURRENT: ("n · D²", "n", "n"),
    SPACE: ("n · D · N + n · D²", "n", "n"),
}


def layers_of(side: nn.Module) -> dict[str, int]:
    """Count the layers of each law on one side of a model; two directions count as one layer."""
    counts: dict[str, int] = {}
    parts = dict(side.named_modules())
    for name, part in parts.items():
        second = name.endswith((".1", ".backwards")) and isinstance(
            part, Recurrence | SelectiveStateSpace
        )
        inner = isinstance(parts.get(name.rpartition(".")[0]), Recurrence)
        law = None
        if isinstance(part, BaseAttention) and not name.endswith("cross_attention"):
            law = ATTENTION
        elif isinstance(part, Recurrence) or (isinstance(part, RecurrentCell) and not inner):
            law = RECURRENT
        elif isinstance(part, SelectiveStateSpace):
            law = SPACE
        if law is not None and not second:
            counts[law] = counts.get(law, 0) + 1
    return counts


def laws(contenders: Sequence[Contender]) -> list[Drawing]:
    """Return the table of layers, counted in the model, and its operations, counted at run time."""
    rows: list[list[Cell]] = []
    for each in contenders:
        model = each.run.model
        parts = dict(model.named_children())
        sides = {name: parts[name] for name in ("encoder", "decoder") if name in parts}
        path = ""
        if isinstance(model, EncoderDecoder):
            crosses = any(name.endswith("cross_attention") for name, _ in model.named_modules())
            path = "1, by attention" if crosses else "n, through the states"
        for name, side in sides.items():
            counts = layers_of(side)
            if not counts:
                continue
            longest = "1" if ATTENTION in counts else "n"
            of_source = path if name == "decoder" else ""
            rows.append([each.name, name, *_formulas(counts), longest, of_source])
    if not rows:
        return []
    columns = ["model", "side", "layers", "operations a layer", "sequential steps",
               "longest path", "path from a source word"]  # fmt: skip
    caption = (
        "counted from the modules: n words, vectors of D numbers, states of N; sequential steps "
        "are those of one training pass, which no number of processors shortens"
    )
    table = TableDrawing(title="Layers", columns=columns, rows=rows, caption=caption)
    return [table, *operations(contenders)]


def _formulas(counts: dict[str, int]) -> tuple[str, str, str]:
    """Return formulas of the layers, of the operations of one, and of the sequential steps."""
    names = ", ".join(f"{count} {law}" for law, count in counts.items())
    steps = [
        str(count) if term == "1" else term if count == 1 else f"{count} {term}"
        for law, count in counts.items()
        for term in [LAWS[law][1]]
    ]
    return names, "; ".join(LAWS[law][0] for law in counts), " + ".join(steps)


def operations(contenders: Sequence[Contender]) -> list[Drawing]:
    """Draw the matrix products of a training step at two lengths, and its time against length."""
    rows: list[list[Cell]] = []
    times: dict[str, list[float]] = {}
    for each in contenders:
        if not isinstance(each.run.task, TextToText | Language):
            return []
        with without_kernels(), counting() as short:
            stepper(each.run, SHORT)()
        with without_kernels(), counting() as long:
            stepper(each.run, LONG)()
        times[each.name] = [1000 * best_of(stepper(each.run, n)) for n in READ]
        power = exponent(READ, times[each.name], fitted=3)
        rows.append(
            [each.name, short.total / SHORT / ROWS / 1e6, long.total / LONG / ROWS / 1e6,
             long.total / max(1, short.total), power]
        )  # fmt: skip
    columns = ["model", f"MFLOP a word, n = {SHORT}", f"n = {LONG}", "growth at twice n",
               "time grows as n to the power"]  # fmt: skip
    return [
        TableDrawing(
            title="A training step, measured", columns=columns, rows=rows,
            caption=f"forward and backward, {ROWS} examples of n tokens; matrix products counted; "
            f"all of n = {LONG} divided by those of n = {SHORT}: 2 is linear, 4 quadratic",
        ),
        line_chart(
            READ, times, "tokens of each side", "ms", "Time of one training step", log="xy",
            caption=f"{ROWS} examples; a gap is a length that the model refuses",
        ),
    ]  # fmt: skip


def stepper(run: Run, length: int) -> Callable[[], object]:
    """Return a forward and backward pass over examples of a length; the token ids do not matter."""
    model, top = run.model, len(SPECIALS)
    ids = torch.full((ROWS, length), top, device=next(model.parameters()).device)
    read = (ids, ids) if isinstance(model, EncoderDecoder) else (ids,)

    def step() -> None:
        model(*read).float().logsumexp(-1).mean().backward()
        model.zero_grad()

    return step
