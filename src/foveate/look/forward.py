"""The frames of a forward pass: what every module computed at every position, in order.

Modules are recorded by hooks, attention and cells by probes (`foveate.look.stages`). What is
computed between two modules (tanh, a concatenation, a mean) has a frame of its own if the trace
says which function of PyTorch made it of which frames.
"""

import re
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.look.hooks import ForcedPass
from foveate.look.stages import Calls, Trace, attention_stages, backwards, cell_stages, traced
from foveate.nn.attention import BaseAttention
from foveate.nn.embedding import TokenStem
from foveate.nn.linear import Dropout, FeedForward, GatedFeedForward, ResidualBlock
from foveate.nn.positions import Position
from foveate.nn.recurrent import Cell

Array = NDArray[np.floating]
Describe = Callable[[nn.Module], str]  # returns the equation of a module
GRADIENT = "gradient of "  # prefix of the frames of a backward pass; the last one's name below
OF_WEIGHTS = f"{GRADIENT}weights"
LEFT_OUT = {"tanh layer", "unit query", "unit key", "query W"}  # stages of some scores alone
_READS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
STAGE_READS: Mapping[str, list[str]] = _READS["attention"]
CELL_READS: Mapping[str, list[str]] = _READS["cell"]


def by_rows(equation: str) -> str:
    """Return an equation of an attention with vectors as rows (Vaswani et al., 2017): x W_Q."""
    products = re.sub(
        r"W_([qkvo]) (\[.*?\]|\w+)( \+ b_\1)?",
        lambda m: f"{m[2]} W_{m[1].upper()}" + f" + b_{m[1].upper()}" * bool(m[3]),
        equation,
    )
    return products.replace("√K", "√d_k").replace("[c of every head]", "[c⁰; c¹; …]")


@dataclass(frozen=True)
class ForwardFrame:
    """The output of a module, or the values computed before the next module read them.

    ``values`` are (H, T, N), a row for each position, with one head where there are none. ``rows``
    and ``columns`` are the parts of the model whose positions they count, empty if they count none;
    ``names`` label the columns. ``block`` is the module's dotted name. ``reads`` are the numbers of
    the frames that it is computed from, as far as known.
    """

    name: str
    block: str
    equation: str
    values: Array
    rows: str
    columns: str = ""
    reads: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@dataclass
class ModuleCalls:
    """The inputs and outputs of a module: of one call, or of all calls if each is one step."""

    name: str
    module: nn.Module
    read: list[tuple[Tensor, ...]] = field(default_factory=list)
    gave: list[Tensor] = field(default_factory=list)

    def tensors(self, argument: int | None = None) -> list[Tensor]:
        """Return one argument of all calls, or without ``argument`` their outputs."""
        if argument is None:
            return self.gave
        return [read[argument] for read in self.read if len(read) > argument]

    def joined(self, row: int, argument: int | None = None) -> Array | None:
        """Return one row of the batch, (T, N), over all calls: of an argument, or of the output."""
        return _joined(self.tensors(argument), row)


def _joined(tensors: Sequence[Tensor], row: int) -> Array | None:
    """Return one row of the batch of several tensors, (T, N); None if they do not fit together."""
    parts = [part for x in tensors if (part := _positions(x, row)) is not None]
    alike = {part.shape[1:] for part in parts}
    return np.concatenate(parts) if len(alike) == 1 and len(parts) == len(tensors) else None


def _positions(x: Tensor, row: int) -> Array | None:
    """Return a row of a batch as (T, N); None if it has no positions with vectors."""
    if x.dim() == 4:
        x = x.flatten(2).mT  # the cells of an image
    if x.dim() not in (2, 3):
        return None
    values = x[min(row, len(x) - 1)].detach().cpu()
    return (values.float() if x.is_floating_point() else values).reshape(-1, x.shape[-1]).numpy()


def frames(forced: ForcedPass, blocks: Mapping[str, nn.Module], equation: Describe,
           train: bool = False, trace: Trace | None = None) -> list[ForwardFrame]:  # fmt: skip
    """Return the frames of a forced pass through ``blocks``, by their dotted names, in order.

    The last one is the probability of each token, label or class, if the pass scores these. With
    ``train`` the loss follows, and its gradient from the last frame back to the first. ``trace`` is
    that of the pass, if it has been run.
    """
    trace = trace or traced(forced, train)
    units = {inner: part for name, block in blocks.items() for inner, part in _divided(name, block)}
    units |= {
        name: part
        for name, part in forced.model.named_modules()
        if isinstance(part, Dropout | ResidualBlock | Position)
        and not any(name.startswith(f"{b}.") for b in blocks)
    }
    calls = _by_module(trace, units)
    film = _Film(forced, equation, trace)
    for each in calls:
        film.add(each.name, each, trace.stages.get(each.name, {}))
    back = film.going_back(calls, blocks, -trace.scores) if train else ()
    return [*film.finished(), *back]


def _divided(name: str, block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a feed-forward network and what is between them; other blocks whole."""
    inside = ("inner", "gate", "dropout", "outer")
    parts = [(f"{name}.{n}", m) for n, m in block.named_children() if n in inside]
    yield from parts if isinstance(block, FeedForward) else [(name, block)]


def _by_module(trace: Trace, units: Container[str]) -> list[ModuleCalls]:
    """Return the calls of some modules, steps of one together, by their first outputs."""
    modules: list[ModuleCalls] = []
    for call in trace.calls:
        output = call.output[0] if isinstance(call.output, tuple) and call.output else call.output
        if call.name not in units or not isinstance(output, Tensor):
            continue
        passed = (*call.args, *call.named.values())
        is_step = output.dim() == 2 or output.shape[1] == 1
        made = next((each for each in modules if each.name == call.name and is_step), None)
        if made is None:
            modules.append(made := ModuleCalls(call.name, call.module))
        made.read.append(tuple(x for x in passed if isinstance(x, Tensor)) or tuple(call.read))
        made.gave.append(output)
    return modules


class _Film:
    """Collects frames in order; what each has read is looked up by its numbers."""

    def __init__(self, forced: ForcedPass, equation: Describe, trace: Trace) -> None:
        self.forced, self.equation, self.trace = forced, equation, trace
        self.frames: list[ForwardFrame] = []
        self.inputs: list[Sequence[Array | str]] = []  # per frame: arrays or names of stages
        self.counts: dict[str, int] = {}  # positions of each part

    def add(self, name: str, calls: ModuleCalls, stages: Mapping[str, Calls]) -> None:
        """Add the frames of a module."""
        module, row = calls.module, self.forced.row
        if isinstance(module, BaseAttention):
            return self._attention(name, module, calls, stages)
        if isinstance(module, Cell):
            return self._cell(name, module, stages)
        read, gave = calls.joined(row, 0), calls.joined(row)
        if isinstance(module, Position) and read is not None and gave is not None:
            return self._position(name, module, read, gave, calls.read[0][1])
        if isinstance(module, ResidualBlock):
            change = calls.joined(row, 1)
            if gave is not None and read is not None and change is not None:
                last = self.frames[-1].block if self.frames else name
                self._make("residual sum", last, "x + f(x)", gave, [read, change])
            return None
        if isinstance(module, TokenStem) and (ids := calls.read[0][0]).dim() == 2:
            own = ids[min(row, len(ids) - 1), :, None].cpu().numpy().astype(np.float64)
            self._make("tokens", name, "id of each token", own, [])
            scale = " · √D" if module.scale != 1 else ""
            if gave is not None:
                text = f"E[id]{scale}" if type(module) is TokenStem else self.equation(module)
                self._make("embedding", name, text, gave, ["tokens"])
            return None
        if read is not None and read.dtype.kind == "f" and self._find(read, 0) is None:
            self._between(name, read, calls.tensors(0))
        if gave is not None and not isinstance(module, Dropout):
            self._make(*self._named(name, module), gave, [] if read is None else [read])
        return None

    def _named(self, name: str, module: nn.Module) -> tuple[str, str, str]:
        """Return the name, block and equation of a module's output."""
        parent, _, last = name.rpartition(".")
        if isinstance(network := self.forced.model.get_submodule(parent), FeedForward):
            bias = " + {}" if network.config.bias else ""
            texts = {
                "inner": ("inner layer", "z = x W₁" + bias.format("b₁")),
                "gate": ("gate", "x V" + bias.format("c")),
                "outer": ("outer layer", "y = a W₂" + bias.format("b₂")),
            }
            return texts[last][0], parent, texts[last][1]
        numbers = [part for part in name.split(".") if not part.isdecimal()]
        title = {"blocks.norm": "norm"}.get(".".join(numbers[-2:]), numbers[-1].replace("_", "-"))
        return ("logits" if name == "output" else title), name, self.equation(module)

    def _between(self, name: str, values: Array, tensors: Sequence[Tensor]) -> None:
        """Add a frame for values computed from earlier frames before a module read them."""
        path, _, _ = name.rpartition(".")
        parent = self.forced.model.get_submodule(path)
        if isinstance(parent, FeedForward):
            text = re.sub("(?<![a-z])x", "z", parent.activation)
            gated = isinstance(parent, GatedFeedForward)
            reads: list[Array | str] = ["inner layer", *["gate"] * gated]
            text = f"a = {text} ⊙ (x V + c)" if gated else f"a = {text}"
            return self._make("activation", path, text, values, reads)
        if not self.frames:
            return None
        title, columns = self.trace.making_of(*tensors)
        parts = [part for x in columns if (part := _joined(x, self.forced.row)) is not None]
        numbers = [self._find(part, len(self.frames)) for part in parts]
        sources = [self.frames[number] for number in numbers if number is not None]
        if not columns or len(sources) < len(columns):
            self._make("input", name, "", values, [])
        elif title in ("tanh", "ReLU", "σ"):
            self._make(title, sources[0].block, f"{title}(z)", values, parts)
        else:
            text = f"[{'; '.join(each.name for each in sources)}]" if title == "joined" else ""
            self._make(title, name, text, values, parts)
        return None

    def _position(
        self, name: str, position: Position, before: Array, values: Array, at: Tensor
    ) -> None:
        """Add the embeddings with their positions, and the positions alone if these are added."""
        text, nothing = self.equation(position), torch.zeros(1, *before.shape, device=at.device)
        if type(position).embed is Position.embed:
            return None
        if not position.adds:
            return self._make("with position", name, text, values, [before])
        with torch.no_grad():
            alone = position.embed(nothing, at)[0].cpu().numpy()
        self._make("position", name, text, alone, [])
        return self._make("input", name, "x + PE(t)", values, [before, alone])

    def _attention(
        self, name: str, module: BaseAttention, calls: ModuleCalls, captured: Mapping[str, Calls]
    ) -> None:
        row = self.forced.row
        heads = [
            {stage.name: stage for stage in attention_stages(module, captured, head, row)}
            for head in range(module.num_heads)
        ]
        query, first = calls.joined(row, 0), ModuleCalls(name, module, calls.read[:1])
        memory = first.joined(row, 1)  # the same in every call
        own = self._part(name, len(heads[0]["query"].values))
        keys = len(heads[0]["value"].values)
        key_part = own if memory is None else self._part("encoder", keys)
        plain = "mask" in heads[0] and not heads[0]["mask"].values.any()
        skipped = LEFT_OUT | ({"mask"} if plain else set())
        if plain and "bias" not in heads[0]:
            skipped = skipped | {"masked score"}
        for stage in heads[0].values():
            values = np.stack([head[stage.name].values for head in heads])
            if stage.name in skipped:
                continue
            if stage.name == "output":
                if len(heads) > 1:
                    merged = np.concatenate([h["context"].values for h in heads], axis=-1)
                    text = "[c⁰; c¹; …], of every head"
                    self._make("concatenated heads", name, text, merged, ["context"])
                values = values[:1]
            source = {"query": query, "key": query if memory is None else memory}
            source["value"] = source["key"]
            before = [f.name for f in self.frames[-1:] if f.block == name]
            reads: list[Array | str] = [*STAGE_READS.get(stage.name, before)]
            if (x := source.get(stage.name)) is not None:
                reads = [x]
            place = {"query": own, "key": key_part}
            rows, columns = (place.get(stage.axes[i], "") for i in (0, -1))
            self._append(
                ForwardFrame(stage.name, name, by_rows(stage.equation), values, rows, columns),
                reads,
            )

    def _cell(self, name: str, module: Cell, captured: Mapping[str, Calls]) -> None:
        if not captured:
            return
        stages = {s.name: s for s in cell_stages(module, captured, self.forced.row)}
        for stage in stages.values():
            values = stage.values[::-1] if backwards(name) else stage.values
            reads: list[Array | str] = [*CELL_READS.get(stage.name, ("input", "fed", "before"))]
            if stage.name == "kept" and "cell" in stages:
                reads = ["forget gate", "cell before"]
            elif stage.name == "state" and "cell" not in stages:
                reads = ["kept", "added", "sum"]
            elif stage.name in ("input", "fed", "before", "cell before"):
                reads = [values] if stage.name in ("input", "fed") else []
            self._make(stage.name, name, stage.equation, np.ascontiguousarray(values), reads)

    def _part(self, name: str, count: int) -> str:
        """Return the part of the model that has this many positions, preferring the named one."""
        top = name.split(".")[0]
        if top not in self.counts and (
            top in self.forced.read or count not in self.counts.values()
        ):
            self.counts[top] = count
        sides = [top, *reversed(self.counts)]
        return next((side for side in sides if self.counts.get(side) == count), "")

    def _find(self, values: Array, before: int) -> int | None:
        """Return the last frame of these values before a number, else the first after it."""
        same = [n for n, f in enumerate(self.frames) if np.array_equal(f.values, values[None])]
        return next((n for n in reversed(same) if n < before), same[0] if same else None)

    def _make(
        self, name: str, block: str, equation: str, values: Array, reads: Sequence[Array | str]
    ) -> None:
        part = self._part(block, len(values))
        self._append(ForwardFrame(name, block, equation, values[None], part), reads)

    def _append(self, frame: ForwardFrame, reads: Sequence[Array | str]) -> None:
        self.frames.append(frame)
        self.inputs.append(reads)

    def finished(self) -> list[ForwardFrame]:
        """Return all frames with what they read, the probabilities last."""
        if self.frames and self.frames[-1].name == "logits" and self.forced.score_name == "log p":
            logits = self.frames[-1]
            exp = np.exp(np.float64(logits.values) - logits.values.max(axis=-1, keepdims=True))
            p = exp / exp.sum(axis=-1, keepdims=True)
            text = "p_i = exp(z_i) / Σ_j exp(z_j)"
            self._append(replace(logits, name="softmax", equation=text, values=p), ["logits"])
        return [
            replace(frame, reads=tuple(dict.fromkeys(self._numbers(number))))
            for number, frame in enumerate(self.frames)
        ]

    def going_back(
        self, calls: Sequence[ModuleCalls], blocks: Mapping[str, nn.Module], loss: Tensor
    ) -> Iterator[ForwardFrame]:
        """Yield the loss at each target, then the gradient norm of its mean L at each position.

        Goes through the frames of modules from the last to the first, then through the weights.
        """
        row, of_frames = self.forced.row, dict[int, list[Tensor]]()
        for each in calls:
            for argument in (None, 0):
                values, tensors = each.joined(row, argument), each.tensors(argument)
                if values is None or not all(x.requires_grad for x in tensors):
                    continue
                values = values[::-1] if backwards(each.name) else values
                if (number := self._find(values, 0)) is not None:  # the frame that holds them
                    of_frames.setdefault(number, tensors)
        weights = dict[nn.Parameter, str]()
        for name, part in blocks.items():
            weights |= {x: name for x in part.parameters() if x.dim() > 1 and x not in weights}
        tensors = [x for each in of_frames.values() for x in each]
        gradients = torch.autograd.grad(loss.mean(), [*tensors, *weights], materialize_grads=True)
        at_hand, block = iter(gradients), self.frames[-1].block
        norms = {k: self._norms([next(at_hand) for _ in of_frames[k]]) for k in of_frames}
        losses, names = loss.detach().double().cpu().numpy(), (*self.forced.produced,)
        text = "L_t = −log p(y_t);   L = mean of L_t"
        yield ForwardFrame("loss", block, text, losses[None, None], "", names=names)
        for number in sorted(norms, reverse=True):
            at = self.frames[number]
            values = norms[number][:: -1 if backwards(at.block) else 1][None, None]
            yield ForwardFrame(GRADIENT + at.name, at.block, "‖∂L/∂x_t‖", values, "", at.rows)
        squares = dict.fromkeys(weights.values(), 0.0)
        for name, gradient in zip(weights.values(), at_hand, strict=True):
            squares[name] += float(gradient.double().square().sum())
        values, names = np.sqrt([[[*squares.values()]]]), (*squares,)
        yield ForwardFrame(OF_WEIGHTS, "weights", "‖∂L/∂W‖", values, "", names=names)

    def _norms(self, gradients: Sequence[Tensor]) -> Array:
        parts = [_positions(gradient, self.forced.row) for gradient in gradients]
        return np.linalg.norm(np.concatenate([x for x in parts if x is not None]), axis=-1)

    def _numbers(self, number: int) -> Iterator[int]:
        """Yield the numbers of the frames that a frame has read."""
        block = self.frames[number].block
        for source in self.inputs[number]:
            if isinstance(source, str):
                earlier = enumerate(self.frames[:number])
                yield from [n for n, f in earlier if (f.name, f.block) == (source, block)][-1:]
            elif (place := self._find(source, number)) is not None and place != number:
                yield place


def places_of(forced: ForcedPass, film: Sequence[ForwardFrame]) -> dict[str, list[str]]:
    """Return the words of each part's positions, else its labels in attention, else numbers."""
    counts = {frame.rows: frame.values.shape[1] for frame in reversed(film) if frame.rows}
    parts = dict.fromkeys(frame.rows for frame in film if frame.rows)
    return {part: forced.words(part, counts[part], _labels(forced, film, part)) for part in parts}


def produced_of(forced: ForcedPass, words: Sequence[str]) -> list[str]:
    """Return what each decoder position produces: its next input, if nothing is scored."""
    after = dict(enumerate(forced.produced, start=forced.first))
    return [after.get(t, ([*words, ""])[t + 1]) for t in range(len(words))]


def _labels(forced: ForcedPass, film: Sequence[ForwardFrame], part: str) -> list[str]:
    """Return the labels of the keys in an attention to a part."""
    for frame in film:
        if frame.name == "weights" and frame.columns == part:
            try:
                return forced.label({frame.block: frame.values}, "tokens").labels(frame.block)[1]
            except UserError:
                return []
    return []
