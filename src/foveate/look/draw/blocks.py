"""A model's blocks in the order of computation: what they are called, compute, read and give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from torch import Tensor, nn

from foveate.config import Config, Configurable
from foveate.look.draw.colors import Hue
from foveate.look.forward import by_rows
from foveate.look.hooks import ForcedPass
from foveate.look.records import LAYERS, block_of
from foveate.look.stages import Trace, backwards, over_steps, traced
from foveate.nn.attention import BaseAttention
from foveate.nn.linear import CappedLinear, FeedForward, ResidualBlock
from foveate.nn.positions import Position, Sinusoidal
from foveate.nn.recurrent import Cell

HUES = {"attention": Hue.WEIGHT, "feed-forward": Hue.LAYER, "recurrence": Hue.STATE,
        "linear map": Hue.OUTPUT, "embedding": Hue.INPUT}  # fmt: skip
FAMILIES = {  # of kinds, in the legend's terms
    "attention": "attention",
    "feed_forward": "feed-forward",
    "cell": "recurrence",
    "state_space": "recurrence",
    "stem": "embedding",
    "bridge": "linear map",
}
EQUATIONS = {  # of PyTorch classes, whose docstrings give them in TeX
    CappedLinear: "c tanh(y / c), y = W x + b",
    nn.Linear: "y = W x + b",
    nn.Embedding: "y = E[id]",
    nn.Conv2d: "y = W ∗ x + b",
    nn.GroupNorm: "γ (x − mean x) / √(var x + ε) + β",
}
MATHEMATICAL = re.compile("[=Σ√⊙←∗₁ᵀ|]")


@dataclass(frozen=True)
class ModelBlock:
    """A module that is drawn as one block.

    ``parameters`` are those that no earlier block has. ``output`` is the shape of what it gives.
    The output of the last block of a ``branch`` is added to the residual stream, which passes
    beside them. ``reads`` names other parts whose output it reads. A recurrent cell has a label for
    each of its ``steps``, in the order of the text.
    """

    name: str
    label: str
    layer: int | None
    family: str
    hue: int | None
    equation: str
    parameters: int
    output: str
    steps: list[str]
    backwards: bool
    branch: int | None = None
    reads: Sequence[str] = ()


@dataclass(frozen=True)
class ModelPart:
    """A column of the picture: an encoder, a decoder, what comes of them."""

    name: str
    blocks: list[ModelBlock]


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that are one block each, by name, in order of construction.

    Attention, cells and other kinds are one block; encoders, layers and lists are divided. A module
    that is divided and has its own parameters is a block for these.
    """
    blocks: dict[str, nn.Module] = {}

    def descend(name: str, module: nn.Module) -> None:
        whole = _is_block(module)
        kind = None if (config := _config(module)) is None else config.kind
        parameter = next(module.parameters(recurse=whole), None)
        if parameter is not None or (whole and kind not in (None, "none")):
            blocks[name] = module
        for child, inner in () if whole else module.named_children():
            descend(f"{name}.{child}" if name else child, inner)

    descend("", model)
    return blocks


def _is_block(module: nn.Module) -> bool:
    inner = list(module.modules())[1:]
    if isinstance(module, BaseAttention | Cell):
        return True
    if not inner or any(isinstance(part, BaseAttention | Cell) for part in inner):
        return not inner
    if _config(module) is not None:
        return _family(module) not in ("encoder", "decoder", "model")
    listed = isinstance(module, nn.ModuleList | nn.Sequential)
    return not listed and not any(isinstance(part, Configurable) for part in inner)


def _config(module: nn.Module) -> Config | None:
    config = vars(module).get("config") if isinstance(module, Configurable) else None
    return config if isinstance(config, Config) else None


def _family(module: nn.Module) -> str:
    """Return the family of a module's kind, or the sort of a PyTorch module."""
    if isinstance(module, BaseAttention):
        return "attention"
    if (config := _config(module)) is not None:
        return str(config.family)
    if isinstance(module, nn.Embedding):
        return "stem"
    return "bridge" if isinstance(module, nn.Linear | nn.Conv2d) else type(module).__name__


def parts_of(forced: ForcedPass, trace: Trace | None = None) -> list[ModelPart]:
    """Return a model's blocks with the order, shapes and connections of a forced pass."""
    trace, model = trace or traced(forced, kinds=(Cell,)), forced.model
    blocks = [call for call in trace.calls if not isinstance(call.module, Position)]
    trace = replace(trace, calls=blocks)  # a position is drawn where its embeddings are computed
    modules = blocks_of(model)
    owners = {name: _owner(name, modules) for name, _ in model.named_modules()}
    first: dict[str, int] = {}  # the number of the first call in each block
    for number, call in enumerate(trace.calls):
        first.setdefault(owners[call.name], number)
    order, before = {}, -1
    for place, (name, module) in enumerate(modules.items()):
        if _family(module) != "position":  # its tables are read where another block is computed
            before = first.get(name, before)
        order[name] = before, place
    columns = _columns(model, sorted(modules, key=lambda name: order[name]))
    branches, reads = _connections(trace, owners, columns, first)
    seen: set[Tensor] = set()
    parts: dict[str, list[ModelBlock]] = {}
    for name in columns:
        block = _block(name, modules[name], trace, forced, seen)
        block = replace(block, branch=branches.get(name), reads=reads.get(name, []))
        parts.setdefault(columns[name], []).append(block)
    return [ModelPart(name=name, blocks=blocks) for name, blocks in parts.items()]


def _owner(name: str, modules: dict[str, nn.Module]) -> str:
    """Return the block that a module belongs to, or "" if it contains blocks."""
    parts = name.split(".")
    return next((n for i in range(len(parts), 0, -1) if (n := ".".join(parts[:i])) in modules), "")


def _columns(model: nn.Module, names: Sequence[str]) -> dict[str, str]:
    """Return each block's column: its encoder or decoder, else the last of those between them."""
    children = dict(model.named_children())
    tops = list(dict.fromkeys(name.split(".")[0] for name in names))
    sides = [t for t in tops if t and _family(children[t]) in ("encoder", "decoder")]
    titles: dict[str, str] = {}
    for side, run in groupby(tops, key=lambda top: top if top in sides else ""):
        group = list(run)
        titles |= {top: side or group[-1] for top in group}
    return {name: titles[name.split(".")[0]] for name in names}


def _connections(
    trace: Trace, owners: dict[str, str], columns: dict[str, str], first: dict[str, int]
) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return the residual branch of each block, and the other columns that it reads from."""
    givers: dict[int, str] = {}  # by tensor, the column that output it first
    last: dict[int, int] = {}  # by tensor, the number of the call that output it last
    tops = {name.split(".")[0]: column for name, column in columns.items()}
    branches: dict[str, int] = {}
    reads: dict[str, list[str]] = {}
    for number, call in enumerate(trace.calls):
        if isinstance(call.module, ResidualBlock):
            start = last.get(id(call.read[0]), number)
            for inner in trace.calls[start + 1 : number]:
                block = owners[inner.name]
                if block and first[block] > start:
                    branches.setdefault(block, number)
        column = tops.get(call.name.split(".")[0], "")
        others = {givers.get(id(x), column) for x in call.read} - {column, ""}
        if owners[call.name] and others:
            reads.setdefault(owners[call.name], sorted(others))
        for tensor in call.gave:
            givers.setdefault(id(tensor), column)
            last[id(tensor)] = number
    return branches, reads


def _block(
    name: str, module: nn.Module, trace: Trace, forced: ForcedPass, seen: set[Tensor]
) -> ModelBlock:
    calls = [call for call in trace.calls if call.name == name]
    tensors = dict(module.named_parameters(recurse=_is_block(module)))
    counts = [p.numel() for p in tensors.values() if p not in seen]
    seen.update(tensors.values())
    gave = calls[0].gave[:1] if calls else []
    steps: list[str] = []
    if "state" in (stages := trace.stages.get(name, {})):
        gave = [over_steps(stages["state"])]
        steps = forced.words(name, gave[0].shape[1])
    sort = FAMILIES.get(family := _family(module), family.replace("_", " "))
    return ModelBlock(
        name=name, label=_label(name, module), layer=_layer(name), family=sort, hue=HUES.get(sort),
        equation=equation_of(module), parameters=sum(counts),
        output=" × ".join(map(str, gave[0].shape)) or "1" if gave else "", steps=steps,
        backwards=isinstance(module, Cell) and backwards(name),
    )  # fmt: skip


def _label(name: str, module: nn.Module) -> str:
    """Return the name without its part, with its layer: ``self-attention 2``, ``norm``."""
    parts, numbers = block_of(name).split("."), [n for n in name.split(".") if n.isdecimal()]
    label = "cell" if isinstance(module, Cell) else parts[-1].replace("_", "-")
    if len(parts) == 1 and name != parts[0]:
        label = type(module).__name__
    back = isinstance(module, Cell) and backwards(name)
    return " ".join([label, *numbers[:1]]) + ", backwards" * back


def _layer(name: str) -> int | None:
    """Return the layer that a block belongs to, unless it is the layer itself."""
    match = re.search(rf"\.(?:{'|'.join(LAYERS)})\.(\d+)\.", name)
    return int(match[1]) if match else None


def equation_of(module: nn.Module) -> str:
    """Return what a block computes: by its kinds, or the first paragraph with an equation in the
    docstrings of its class and its bases.
    """
    if isinstance(module, Cell):
        read = ("input", "before", "cell before", "fed")
        return "; ".join(text for name, text in module.equations().items() if name not in read)
    if isinstance(module, BaseAttention):
        texts = {name: by_rows(text) for name, text in module.equations().items()}
        parts = [texts[name] for name in ("output", "context", "weights")]
        inner = [texts[name] for name in ("score", "query features") if name in texts]
        return "; ".join([*parts, *(each for each in inner if each not in texts["weights"])])
    if isinstance(module, FeedForward | Sinusoidal):
        return module.equation.replace("f(x", "φ(x")  # f is a sublayer
    bias = "bias" in dict(module.named_parameters(recurse=False))
    for kind, equation in EQUATIONS.items():
        if isinstance(module, kind):
            return equation if bias else equation.removesuffix(" + b")
    documents = [
        " ".join(paragraph.replace("``", "").split())
        for each in type(module).__mro__
        if not each.__module__.startswith(("torch", "builtins"))
        for paragraph in (each.__dict__.get("__doc__") or "").split("\n\n")
    ]
    return next(filter(MATHEMATICAL.search, documents), documents[0] if documents else "")
