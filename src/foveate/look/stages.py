"""The stages of an attention, or of a recurrent cell, with their numbers.

A *captured* stage is what the model computed in its own forward pass (`foveate.nn.context`), bit
for bit. A *derived* one is computed here, in double precision, from captured stages, and is
compared with the captured stage that it leads to.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foveate.look.hooks import Call, ForcedPass, calls_of, tensors_in
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Probed, probed
from foveate.nn.recurrent import Cell, GRUCell, LSTMCell

Array = NDArray[np.floating]
Made = tuple[str, tuple[Tensor, ...]]  # what made a tensor ("tanh", "joined"), and of which others
Gates = dict[str, Tensor]  # of a cell by name, each (B, T, H), from 0 (shut) to 1 (open)
# What a function of PyTorch, called with a dimension, makes of its first argument.
MAKERS: dict[tuple[str, object], str] = {
    ("tanh", None): "tanh", ("relu", None): "ReLU", ("sigmoid", None): "σ",
    ("mean", 1): "mean of positions", ("cat", -1): "joined", ("stack", 1): "steps",
}  # fmt: skip
# The stages of attention and of cells in the order in which they are shown.
ATTENTION = (
    *("query", "normed query", "rotated query", "unit query", "query W", "query features", "key"),
    *("normed key", "rotated key", "unit key", "key features", "mixed key", "tanh layer", "score"),
    *("bias", "mask", "masked score", "weights of mixtures", "weights", "value", "mixed value"),
    *("context", "output"),
)
CELLS = (
    *("input", "fed", "before", "cell before", "sum", "reset gate", "update gate", "input gate"),
    *("forget gate", "output gate", "candidate", "kept", "added", "cell", "state"),
)
AXES = {  # axes of stages of attention; "query size" for those not listed
    "query feature": ("query features",),
    "key feature": ("key features",),
    "key size": ("key", "normed key", "rotated key", "unit key", "value"),
    "mixture size": ("mixed key", "mixed value"),
    "query key": ("score", "bias", "mask", "masked score", "weights"),
    "query key size": ("tanh layer",),
    "query mixture": ("weights of mixtures",),
}


@dataclass(frozen=True)
class Stage:
    """A stage of every step: ``values`` with ``axes``, query or step first if it has one."""

    name: str
    equation: str
    values: Array
    axes: tuple[str, ...]


@dataclass
class Calls:
    """A stage's values in each call of its module, and their equation."""

    equation: str
    values: list[Tensor] = field(default_factory=list)


Stages = dict[str, Calls]  # by name


@dataclass
class Trace:
    """The calls of all modules in one pass, in the order in which they end, and its scores.

    ``stages`` are by the names of attentions and cells, ``made`` says what is between modules.
    """

    calls: list[Call] = field(default_factory=list)
    stages: dict[str, Stages] = field(default_factory=dict)
    scores: Tensor = field(default_factory=torch.Tensor)
    made: dict[Tensor, Made] = field(default_factory=dict)

    def making_of(self, *steps: Tensor) -> tuple[str, list[tuple[Tensor, ...]]]:
        """Return how tensors were made, "" if they differ in that, and the steps of each part."""
        makings = [self.made.get(step, ("", ())) for step in steps]
        made, parts = makings[0]
        if {(name, len(of)) for name, of in makings} != {(made, len(parts))}:
            return "", []
        if made == "steps" or (len(parts) == 1 and made in ("", "joined")):  # the same numbers
            return self.making_of(*(part for _, of in makings for part in of))
        return made, [*zip(*(of for _, of in makings), strict=True)]


class Between(TorchFunctionMode):
    """Notes how the tensors that are computed within it were made, and of which others."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Tensor, Made] = {}

    def __torch_function__(self, func: Callable[..., object], types: Sequence[type],
                           args: Sequence[object] = (),
                           kwargs: Mapping[str, object] | None = None) -> object:  # fmt: skip
        output, of = func(*args, **(kwargs or {})), (*tensors_in((*args[:1],)),)
        if isinstance(output, Tensor) and of and output is not of[0]:
            made = MAKERS.get((func.__name__, (kwargs or {}).get("dim")), "")
            if made or (output.data_ptr(), output.numel()) == (of[0].data_ptr(), of[0].numel()):
                self.made[output] = made, of
        return output


def traced(forced: ForcedPass,
           train: bool = False,
           kinds: tuple[type[nn.Module], ...] = (BaseAttention, Cell)) -> Trace:  # fmt: skip
    """Run a pass and return its trace, with a graph if ``train``, and the stages of some kinds.

    Modules of these kinds compute by their equations, cells step by step.
    """
    names = {part: name for name, part in forced.model.named_modules()}
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad() if train else torch.inference_mode())
        calls = stack.enter_context(calls_of(*names))
        stages = stack.enter_context(stages_by_name(forced.model, *kinds))
        between = stack.enter_context(Between())
        scores = forced.run()
    named = [call._replace(name=names[call.module]) for call in calls]
    steps: dict[str, list[Tensor]] = {}
    for call in named:
        if isinstance(call.module, Cell):
            steps.setdefault(call.name, []).append(call.gave[0])
    for outputs in steps.values():
        between.made[outputs[-1]] = "last position", (torch.stack(outputs, dim=1),)
    return Trace(named, stages, scores, between.made)


@contextmanager
def capture_stages(module: nn.Module) -> Iterator[Stages]:
    """Collect the stages of a module and of its parts, by name, in the order of computation."""
    stages: Stages = {}

    def record(name: str, values: Tensor, equation: str) -> None:
        stages.setdefault(name, Calls(equation)).values.append(values.detach().float().cpu())

    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, Probed):
                stack.enter_context(probed(part, record))
        yield stages


def attention_stages(
    module: BaseAttention, calls: Mapping[str, Calls], head: int, row: int = 0
) -> list[Stage]:
    """Return the stages of one head for one row of the batch, including derived ones, in order."""
    whole = {name: joined(name, calls[name].values) for name in calls}
    rows = len(whole["query"])
    captured = {
        name: values[row * len(values) // rows][head * values.shape[1] // module.num_heads].numpy()
        for name, values in whole.items()
    }
    stages: dict[str, Stage] = {}
    for name, values in captured.items():
        axes = _axes(name)
        if axes[:2] == ("query", "key"):
            values = np.broadcast_to(values, (len(captured["query"]), *values.shape[1:]))
        stages[name] = Stage(name, calls[name].equation, values, axes)
    for stage in _masked(module, captured):
        stages[stage.name] = stage
    return _ordered(stages, ATTENTION)


def _axes(name: str) -> tuple[str, ...]:
    return tuple(next((axes for axes in AXES if name in AXES[axes]), "query size").split())


def joined(name: str, values: Sequence[Tensor]) -> Tensor:
    """Join a stage over all queries, (B, H, …): a recurrent decoder computes one query per call.

    Keys, values and whatever else belongs to no query are the same in every call.
    """
    axes = _axes(name)
    if axes[0] != "query" or len(values) == 1:
        joined = values[0]
    else:
        widest = max(part.shape[-1] for part in values)
        at = values[0].dim() - len(axes)
        joined = torch.cat([F.pad(part, (0, widest - part.shape[-1])) for part in values], at)
    missing = {"output": 1, "bias": 0}.get(name)  # one for all heads, one for all rows
    return joined if missing is None else joined.unsqueeze(missing)


def _masked(module: BaseAttention, captured: Mapping[str, Array]) -> Iterator[Stage]:
    """Yield the scores with their bias and mask, which give the weights."""
    terms = {"bias": " + b_i", "mask": " + mask_i"}
    added = [name for name in terms if name in captured]
    if not added or "score" not in captured or not isinstance(module, Attention):
        return
    if not module.score.gives_weights:
        double = {name: values.astype(np.float64) for name, values in captured.items()}
        score = sum((double[name] for name in added), double["score"])
        blind = double["weights"].max(axis=-1, keepdims=True) == 0  # every key is hidden
        score = np.where(blind, -np.inf, score)
        equation = "e_i ← e_i" + "".join(terms[name] for name in added)
        yield Stage("masked score", equation, score, _axes("masked score"))


def over_steps(call: Calls) -> Tensor:
    """Return a stage of a recurrent cell over all steps, (B, T, …)."""
    return torch.cat(call.values, 1) if call.values[0].dim() == 3 else torch.stack(call.values, 1)


@contextmanager
def stages_by_name(model: nn.Module, *kinds: type[nn.Module]) -> Iterator[dict[str, Stages]]:
    """Collect the stages of each module of some kinds, by its dotted name.

    Inside the context, cells run step by step, by their equations; outputs differ from those of a
    kernel by rounding.
    """
    parts = {name: part for name, part in model.named_modules() if isinstance(part, kinds)}
    with ExitStack() as stack:
        yield {name: stack.enter_context(capture_stages(part)) for name, part in parts.items()}


def gates_of(calls: Stages) -> Gates:
    """Return the gates of a recurrent cell by name, in the order of computation."""
    names = (name for name in calls if name.endswith(" gate"))
    return {name.removesuffix(" gate"): over_steps(calls[name]) for name in names}


def backwards(name: str) -> bool:
    """Return whether a cell of this name reads from the end: the second direction of a layer."""
    return name.endswith(".1.cell")


def called(name: str) -> str:
    """Return the name of a cell in words: ``decoder cell 0``, ``encoder cell 1, backwards``."""
    number = next(filter(str.isdecimal, name.split(".")), "")
    return f"{name.split('.')[0]} cell {number}".strip() + ", backwards" * backwards(name)


def cell_stages(cell: Cell, calls: Mapping[str, Calls], row: int = 0) -> list[Stage]:
    """Return the stages of a recurrent cell for one row of the batch, over the steps."""
    captured: dict[str, Array] = {}
    for name, call in calls.items():
        whole = over_steps(call)
        captured[name] = whole[min(row, len(whole) - 1)].numpy()
    stages = {
        name: Stage(name, calls[name].equation, values, ("step", "size"))
        for name, values in captured.items()
    }
    double = {name: values.astype(np.float64) for name, values in captured.items()}
    derived: dict[str, tuple[str, Array]] = {}
    if isinstance(cell, LSTMCell):
        derived["kept"] = "f ⊙ c_{t−1}", double["forget gate"] * double["cell before"]
        derived["added"] = "i ⊙ c̃", double["input gate"] * double["candidate"]
    elif isinstance(cell, GRUCell):
        update = double["update gate"]
        derived["kept"] = "z ⊙ h_{t−1}", update * double["before"]
        derived["added"] = "(1 − z) ⊙ n", (1 - update) * double["candidate"]
    for name, (equation, values) in derived.items():
        stages[name] = Stage(name, equation, values, ("step", "size"))
    return _ordered(stages, CELLS)


def _ordered(stages: Mapping[str, Stage], names: Sequence[str]) -> list[Stage]:
    """Return the stages in the order of the names; those without a name there come last."""
    known = [stages[name] for name in names if name in stages]
    return known + [stage for name, stage in stages.items() if name not in names]
