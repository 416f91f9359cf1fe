"""A model as a picture: its blocks to scale, in the order of computation, and its rendering.

Widths are √ of the sizes of vectors, heights √ of numbers of parameters, so a matrix of V × D
has an area of √(V D). Shapes, order and residual connections are those of one forward pass.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from inspect import getsourcelines
from itertools import groupby
from math import sqrt
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from pydantic import Field
from torch import Tensor, nn

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.config import Config, Configurable
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Label, Text, visible
from foveate.look.draw.terminal import cut
from foveate.look.hooks import Call, ForcedPass
from foveate.look.records import LAYERS, block_of
from foveate.look.stages import Trace, backwards, over_steps, traced
from foveate.nn.attention import BaseAttention
from foveate.nn.capped import CappedLinear
from foveate.nn.feed_forward import FeedForward
from foveate.nn.linear import ResidualBlock
from foveate.nn.positions import Sinusoidal
from foveate.nn.recurrent import Cell

BARS = "bar: √ of the number of parameters; ┣┓ … ⊕┛: a branch that the residual stream passes"
SCALE = "width: √ of the size of a vector; height: √ of the number of parameters"
HUES = {"attention": 0, "feed-forward": 1, "recurrence": 2, "linear map": 3, "embedding": 5}
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
EDGES = 3  # positions of an unrolled cell that are drawn before the last


class ModelBlock(DrawingPart):
    """A module that is drawn as one block.

    ``widths`` are the sizes of the vectors that it reads, of larger ones inside, and of those that
    it gives. ``parameters`` are those that no earlier block has, ``shared`` those that one has.
    ``output`` is the shape of what it gives, at each of its ``calls``. The output of the last block
    of a ``branch`` is added to the residual stream, which passes beside them. ``reads`` names other
    parts whose output it reads. A recurrent cell has a place for each of its ``steps``, in the
    order of the text, and ``states`` from step to step. ``walk`` is the block and the layer of the
    view `steps`.
    """

    name: str
    label: Label
    layer: int | None = None
    family: str
    hue: int | None = None
    does: str
    place: str
    equation: Text = ""
    widths: list[int]
    parameters: int
    shared: int = 0
    weights: list[str] = Field(default_factory=list)
    output: str = ""
    calls: int = 0
    branch: int | None = None
    reads: list[str] = Field(default_factory=list)
    steps: list[Label] = Field(default_factory=list)
    states: str = ""
    backwards: bool = False
    walk: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        """The parameters that determine its height."""
        return self.parameters + self.shared

    @property
    def heading(self) -> str:
        """The name, and the parts that it reads from: ``cross-attention 2 ← encoder``."""
        return self.label + f" ← {', '.join(self.reads)}" * bool(self.reads)

    @property
    def shape(self) -> str:
        """The shape of its output, and the number of calls if there are several."""
        several = self.calls > 1 and not self.steps
        return f"{self.output}, {self.calls} times" if several else self.output

    @property
    def amount(self) -> str:
        """The numbers of its own and of shared parameters."""
        return f"{self.parameters:,}" + f" + {self.shared:,} shared" * bool(self.shared)

    @property
    def sizes(self) -> str:
        """The sizes of its vectors, without repetition: ``256 → 1,024 → 256``."""
        return " → ".join(f"{size:,}" for size, _ in groupby(self.widths))


class ModelPart(DrawingPart):
    """A column of the picture: an encoder, a decoder, what comes of them."""

    name: str
    does: str
    blocks: list[ModelBlock]

    @property
    def parameters(self) -> int:
        """The number of parameters in its blocks."""
        return sum(block.parameters for block in self.blocks)


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


def picture(
    model: nn.Module,
    forced: ForcedPass | None = None,
    title: str = "",
    trace: Trace | None = None,
) -> ModelDrawing:
    """Draw a model, with the order, shapes and connections of a forced pass, or of its trace.

    Without one, blocks are in order of construction.
    """
    trace = trace or (Trace() if forced is None else traced(forced, kinds=(Cell,)))
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
        block = _block(name, modules[name], model, trace, forced, seen)
        update = {"branch": branches.get(name), "reads": reads.get(name, [])}
        parts.setdefault(columns[name], []).append(block.model_copy(update=update))
    children = dict(model.named_children())
    drawn = [
        ModelPart(name=name, does=type(children.get(name, model)).__name__, blocks=blocks)
        for name, blocks in parts.items()
    ]
    total = sum(block.parameters for part in drawn for block in part.blocks)
    return ModelDrawing(title=f"{title}{total:,} parameters", caption=SCALE, parts=drawn)


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
    name: str, module: nn.Module, model: nn.Module, trace: Trace, forced: ForcedPass | None,
    seen: set[Tensor],
) -> ModelBlock:  # fmt: skip
    calls = [call for call in trace.calls if call.name == name]
    tensors = dict(module.named_parameters(recurse=_is_block(module)))
    counts = [p.numel() for p in tensors.values() if p not in seen]
    shared = sum(p.numel() for p in tensors.values()) - sum(counts)
    seen.update(tensors.values())
    gave = calls[0].gave[:1] if calls else []
    steps: list[str] = []
    if forced is not None and "state" in (stages := trace.stages.get(name, {})):
        gave = [over_steps(stages["state"])]
        steps = forced.words(name, gave[0].shape[1])
    sort = FAMILIES.get(family := _family(module), family.replace("_", " "))
    kind, count = type(module), module.num_heads if isinstance(module, BaseAttention) else 0
    heads = f", {count} head{'s' * (count > 1)}" if count else ""
    return ModelBlock(
        name=name, label=_label(name, module), layer=_layer(name), family=sort, hue=HUES.get(sort),
        does=kind.__name__ + heads, place=_place(kind.__module__, kind.__qualname__),
        equation=equation_of(module), widths=_widths(module, tensors, calls, gave),
        parameters=sum(counts), shared=shared,
        weights=[f"{name} {_shape(p)}" for name, p in tensors.items()],
        output=_shape(gave[0]) if gave else "", calls=len(calls), steps=steps,
        states="" if not isinstance(module, Cell) else "h" if module.states == 1 else "h, c",
        backwards=isinstance(module, Cell) and backwards(name), walk=_walk(name, model),
    )  # fmt: skip


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "1"


def _size(tensor: Tensor) -> int:
    """Return the size of the vectors in (…, D), or the number of channels in (B, C, H, W)."""
    return 1 if not tensor.dim() else tensor.shape[1 if tensor.dim() == 4 else -1]


def _widths(
    module: nn.Module,
    tensors: dict[str, nn.Parameter],
    calls: Sequence[Call],
    gave: list[Tensor],
) -> list[int]:
    """Return widths, by inner maps and, at the ends, by input and output; none if unknown."""
    if isinstance(module, Cell):
        return [module.weight_ih.shape[1], module.hidden_size]
    maps = [
        (m.weight.shape[1], m.weight.shape[0])[:: -1 if isinstance(m, nn.Embedding) else 1]
        for m in module.modules()
        if isinstance(m, nn.Linear | nn.Embedding | nn.Conv2d)
    ]
    if not maps and tensors:
        maps = [(size := _size(next(iter(tensors.values()))), size)]
    read = [x for x in (calls[0].read if calls else [])[:1] if x.is_floating_point()]
    ends = [_size(x) for x in read] or [pair[0] for pair in maps[:1]]
    ends += [_size(x) for x in gave] or [pair[1] for pair in maps[-1:]]
    if len(ends) < 2:
        return []
    inside = max((outer for _, outer in maps[:-1]), default=0)
    return [ends[0], inside, ends[1]] if inside > max(ends) else ends


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


def _walk(name: str, model: nn.Module) -> tuple[str, int] | None:
    """Return block and layer for the view `steps`; None if it is neither attention nor cell."""
    parts = [n for n, m in model.named_modules() if isinstance(m, BaseAttention | Cell)]
    alike = [n for n in parts if block_of(n) == block_of(name)]
    return (block_of(name), alike.index(name)) if name in alike else None


@cache
def _place(module: str, name: str) -> str:
    """Return file and line of a class, or only the file if its source cannot be read."""
    file = module.replace(".", "/") + ".py"
    try:
        return f"{file}:{getsourcelines(getattr(sys.modules[module], name))[1]}"
    except (OSError, TypeError, AttributeError):
        return file


def equation_of(module: nn.Module) -> str:
    """Return what a block computes: by its kinds, or from the docstring of its class."""
    if isinstance(module, Cell):
        read = ("input", "before", "cell before", "fed")
        return "; ".join(text for name, text in module.equations().items() if name not in read)
    if isinstance(module, BaseAttention):
        texts = module.equations()
        parts = [texts[name] for name in ("output", "context", "weights")]
        inner = [texts[name] for name in ("score", "query features") if name in texts]
        return "; ".join([*parts, *(each for each in inner if each not in texts["weights"])])
    if isinstance(module, FeedForward | Sinusoidal):
        return module.equation
    bias = "bias" in dict(module.named_parameters(recurse=False))
    for kind, equation in EQUATIONS.items():
        if isinstance(module, kind):
            return equation if bias else equation.removesuffix(" + b")
    return _documented(type(module))


def _documented(kind: type) -> str:
    """Return the first paragraph with an equation in the docstrings of a class and its bases."""
    documents = [
        " ".join(paragraph.replace("``", "").split())
        for each in kind.__mro__
        if not each.__module__.startswith(("torch", "builtins"))
        for paragraph in (each.__dict__.get("__doc__") or "").split("\n\n")
    ]
    return next(filter(MATHEMATICAL.search, documents), documents[0] if documents else "")


def _folded(part: ModelPart) -> list[ModelBlock | str]:
    """Return a part's blocks, with only the first and last of equal layers, and a line between."""
    layers = [list(run) for _, run in groupby(part.blocks, key=lambda block: block.layer)]
    rows: list[ModelBlock | str] = []
    for _, run in groupby(layers, key=lambda layer: [(b.does, b.widths, b.size) for b in layer]):
        alike = list(run)
        if len(alike) > 3 and alike[0][0].layer is not None:
            each = sum(block.parameters for block in alike[1])
            first, second, *_, last, _ = (layer[0].layer for layer in alike)
            between = f"layers {second} … {last}: as layer {first}, {each:,} each"
            rows += [*alike[0], between, *alike[-1]]
        else:
            rows += [block for layer in alike for block in layer]
    return rows


def _unrolled(block: ModelBlock) -> list[str]:
    """Return the positions of a cell that are drawn; an empty one replaces those between."""
    few = len(block.steps) <= EDGES + 2
    return list(block.steps) if few else [*block.steps[:EDGES], "", block.steps[-1]]


WIDEST, TALLEST, LEAST = 1.1, 0.9, 0.36  # inches: the largest block, the lowest row
BESIDE, WORDS, PLACE = 0.2, 2.5, 0.64  # inches: stream to branch, a text, a position of a cell
SIZE = 8.0  # points
GREY, STREAM = "#6b7280", "#d5d8de"


@dataclass(frozen=True)
class ScaledPart:
    """A part of the picture in inches: its rows, their positions, and the scale of blocks."""

    part: ModelPart
    across: float
    down: float

    @cached_property
    def rows(self) -> list[ModelBlock | str]:
        return _folded(self.part)

    @cached_property
    def lanes(self) -> tuple[float, float, float]:
        """The centres of the stream and of branches, and where texts begin, from the left."""
        main = [w for b in self.part.blocks if b.branch is None for w in self.widths(b)]
        side = [self.widths(b) for b in self.part.blocks if b.branch is not None and b.widths]
        middle, widest = max(main, default=0.2) / 2, max(map(max, side), default=0.0)
        begin = middle + max((widths[-1] for widths in side), default=0.0) / 2 + BESIDE
        return middle, begin + widest / 2, max(2 * middle, (begin + widest) * bool(side)) + 0.12

    @property
    def width(self) -> float:
        places = max((len(_unrolled(block)) for block in self.part.blocks), default=0)
        return self.lanes[2] + max(WORDS, places * PLACE + 0.1)

    @property
    def height(self) -> float:
        return sum(map(self.row, self.rows)) + 0.4

    def widths(self, block: ModelBlock) -> list[float]:
        return [self.across * sqrt(size) for size in block.widths]

    def tall(self, block: ModelBlock) -> float:
        return max(0.03, self.down * sqrt(block.size)) if block.widths else 0.0

    def row(self, row: ModelBlock | str) -> float:
        """Return the height of a row with its text."""
        if isinstance(row, str):
            return LEAST
        return max(LEAST, self.tall(row) + 0.08) + PLACE * bool(row.steps)


def _column(ax: Axes, column: ScaledPart, left: float) -> None:
    """Draw the blocks of a part from top to bottom; the stream is as wide as its vectors."""
    part, rows, (middle, side, words) = column.part, column.rows, column.lanes
    heading = f"{part.name} · {part.does} · {part.parameters:,}"
    figures.write(ax, left, 0.5, heading, size=SIZE)
    y, stream = 0.7, 0.0

    def band(top: float, bottom: float, width: float) -> None:
        place = left + middle - width / 2, top
        ax.add_patch(Rectangle(place, width, bottom - top, fc=STREAM, ec="none", zorder=1))

    branches = [None, *(None if isinstance(row, str) else row.branch for row in rows), None]
    for number, row in enumerate(rows):
        height = column.row(row)
        if isinstance(row, str):
            band(y, y + height, stream)
            figures.write(ax, left + words, y + height / 2, row, GREY, size=SIZE - 1)
            y += height
            continue
        body, tall, widths = height - PLACE * bool(row.steps), column.tall(row), column.widths(row)
        top, bottom = y + (body - tall) / 2, y + (body + tall) / 2
        color = GREY if row.hue is None else colors.line(row.hue)
        if row.branch is None:
            band(y, top, stream or (widths or [0])[0])
            stream = (widths or [stream])[-1]
            band(bottom, y + height, stream)
        else:
            band(y, y + height, stream)
            ends = branches[number] != row.branch, branches[number + 2] != row.branch
            _branch(ax, (left + middle, left + side, stream), (y, y + height), ends)
        if widths:
            x = left + (middle if row.branch is None else side)
            heights = np.linspace(top, bottom, len(widths)).tolist()
            edge = [(x - w / 2, at) for w, at in zip(widths, heights, strict=True)]
            edge += [(x + w / 2, at) for w, at in zip(widths[::-1], heights[::-1], strict=True)]
            fill = color if row.parameters else "white"
            ax.add_patch(Polygon(edge, fc=fill, ec=color, lw=1, zorder=3))
        figures.write(ax, left + words, y + body / 2 - 0.07, row.heading, size=SIZE)
        facts = " · ".join(each for each in (row.sizes, row.shape, row.amount) if each)
        figures.write(ax, left + words, y + body / 2 + 0.07, facts, GREY, size=SIZE - 1.5)
        _unroll(ax, row, left + words, y + body, color)
        y += height


def _branch(
    ax: Axes, x: tuple[float, float, float], y: tuple[float, float], ends: tuple[bool, bool]
) -> None:
    """Draw the line from the stream through a branch, and back to where it is added."""
    middle, side, stream = x
    top, bottom = y[0] + 0.06 * ends[0], y[1] - 0.06 * ends[1]
    line = partial(ax.plot, color=GREY, lw=1.0, zorder=2)
    line([side, side], [top, bottom])
    if ends[0]:
        line([middle + stream / 2, side], [top, top])
    if ends[1]:
        line([middle, side], [bottom, bottom])
        ax.plot(middle, bottom, "o", mfc="white", mec="black", mew=0.8, ms=6, zorder=4)
        ax.plot(middle, bottom, "+", mec="black", mew=0.8, ms=5, zorder=5)


def _unroll(ax: Axes, block: ModelBlock, left: float, y: float, color: str) -> None:
    """Draw a box for each position of a cell, arrows for its states, and its inputs below."""
    places, box, middle = _unrolled(block), 0.34, y + 0.17
    for number, word in enumerate(places):
        x = left + number * PLACE
        if word:
            ax.add_patch(Rectangle((x, y), box, box, fc="white", ec=color, lw=1.2))
            figures.write(ax, x + 0.05, middle, "cell", size=SIZE - 2)
        figures.write(ax, x, y + box + 0.12, cut(word, 8) if word else "…", size=SIZE - 1.5)
        if number < len(places) - 1:
            arrow = {"arrowstyle": "<-" if block.backwards else "->", "color": color}
            ends = (x + PLACE, middle), (x + box * bool(word), middle)
            ax.annotate("", *ends, arrowprops=arrow)
            figures.write(ax, x + box + 0.05, middle - 0.08, block.states, GREY, size=SIZE - 2)


class ModelDrawing(Drawing):
    """A model as parts with blocks, in the order in which data goes through them."""

    kind: Literal["model"] = "model"
    parts: list[ModelPart]

    def arrays(self) -> Arrays:
        """Return a row for each block: its name, class, shape and parameters."""
        blocks = [block for part in self.parts for block in part.blocks]
        columns = ("name", "does", "place", "equation", "output", "parameters", "shared")
        return {key: np.array([getattr(block, key) for block in blocks]) for key in columns}

    def figure(self) -> Figure:
        """Draw a column for each part, its blocks to scale; below, what their classes compute."""
        blocks = [block for part in self.parts for block in part.blocks]
        across = WIDEST / sqrt(max((size for block in blocks for size in block.widths), default=1))
        down = TALLEST / sqrt(max((block.size for block in blocks), default=1) or 1)
        columns = [ScaledPart(part, across, down) for part in self.parts]
        wide, tall = max(sum(c.width for c in columns), 5.0) + 0.2, max(c.height for c in columns)
        texts = dict.fromkeys(f"{b.does} · {b.place} · {b.equation}" for b in blocks if b.equation)
        legend = [line for each in texts for line in textwrap.wrap(each, int(wide * 16))]
        notes = textwrap.wrap("; ".join([self.caption, *self.notes]), int(wide * 16))
        below = 0.14 * len(legend + notes) + 0.2
        made, ax = figures.page(wide, 0.4 + tall + below)
        figures.write(ax, 0.12, 0.22, self.title, size=SIZE + 2)
        left = 0.12
        for column in columns:
            _column(ax, column, left)
            left += column.width
        for number, line in enumerate([*legend, *notes]):
            figures.write(ax, 0.12, 0.5 + tall + 0.14 * number, line, GREY, size=SIZE - 1.5)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a line per block beside the residual stream, ┃, then what each class computes.

        Its width is that of its contents.
        """
        blocks = [block for part in self.parts for block in part.blocks]
        most = sqrt(max((block.size for block in blocks), default=1) or 1)
        names = max((len(block.heading) for block in blocks), default=0)
        lines, texts = [self.title], dict[tuple[str, str], ModelBlock]()
        for part in self.parts:
            rows = _folded(part)
            lines += ["", f"{part.name} ({part.does}), {part.parameters:,} parameters"]
            for row, after in zip(rows, [*rows[1:], ""], strict=True):
                if isinstance(row, str):
                    lines.append(f"  ┃   {row}")
                    continue
                texts.setdefault((row.does, row.equation), row)
                ends = row.branch is not None and (
                    isinstance(after, str) or after.branch != row.branch
                )
                mark = "┃ " if row.branch is None else "⊕┛" if ends else "┣┓"
                bar = "█" * round(10 * sqrt(row.size) / most) or "▏"
                facts = f"{row.heading:<{names}} {row.sizes:<20} {row.shape:<12} {row.amount}"
                lines.append(f"  {mark} {bar:<10} {facts}")
                if row.steps:
                    arrow = " ← " if row.backwards else " → "
                    places = arrow.join(visible(word) if word else "…" for word in _unrolled(row))
                    lines.append(f"  ┃     {row.states}: {places}")
        for block in texts.values():
            lines += ["", f"{block.does}: {block.place}", *textwrap.wrap(block.equation, 96)]
        return "\n".join([*lines, "", BARS, *self.notes])
