"""The stages of an attention, or of a recurrent cell, with their numbers.

A *captured* stage is what the model computed in its own forward pass (`foveate.nn.context`), bit
for bit. A *derived* one is computed here, in double precision, from captured stages, and is
compared with the captured stage that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Probed, probed
from foveate.nn.recurrent import Cell, GRUCell, LSTMCell

Array = NDArray[np.floating]

# Equation and axes of each stage of attention, in the order in which they are shown.
ATTENTION = {
    "query": ("q = W_q x", "query size"),
    "rotated query": ("q_t = R_t q", "query size"),
    "unit query": ("q / ‖q‖", "query size"),
    "query W": ("qᵀ W", "query size"),
    "query features": ("φ(q)", "query feature"),
    "key": ("k_i = W_k x_i", "key size"),
    "rotated key": ("k_i = R_i k_i", "key size"),
    "unit key": ("k_i / ‖k_i‖", "key size"),
    "key features": ("φ(k_i)", "key feature"),
    "mixed key": ("E K", "mixture size"),
    "product": ("q · k_i", "query key"),
    "tanh layer": ("tanh(q + k_i)", "query key size"),
    "score": ("e_i = score(q, k_i)", "query key"),
    "bias": ("b_i, of the position encoding", "query key"),
    "mask": ("0, or −∞ where hidden", "query key"),
    "masked score": ("e_i = score + bias + mask", "query key"),
    "exp": ("exp(e_i − max e)", "query key"),
    "sum": ("Σ_i exp(e_i − max e)", "query one"),
    "weights of mixtures": ("softmax(q (E K)ᵀ / √K)", "query mixture"),
    "weights": ("α = normalize(e)", "query key"),
    "value": ("v_i = W_v x_i", "key size"),
    "mixed value": ("F V", "mixture size"),
    "weighted values": ("α_i v_i", "query key size"),
    "context": ("c = Σ_i α_i v_i", "query size"),
    "output of the head": ("W_o c, of this head's columns of W_o", "query size"),
    "output": ("o = W_o [c of every head] + b", "query size"),
}
SCORES = {
    "scaled_dot": "e_i = q · k_i / √K",
    "dot": "e_i = q · k_i",
    "general": "e_i = qᵀ W k_i",
    "additive": "e_i = vᵀ tanh(q + k_i)",
    "cosine": "e_i = s cos(q, k_i)",
    "location": "e_i = w_i · q",
    "affine_location": "e_i = w_i · q + b_i",
}
# The same of the cells: the equation is that of the first cell in whose column it stands.
CELLS = {
    "input": {"": "x_t"},
    "before": {"": "h_{t−1}"},
    "cell before": {"lstm": "c_{t−1}"},
    "sum": {"rnn": "W x_t + b + U h_{t−1} + c"},
    "reset gate": {"gru": "r = σ(W_r x_t + U_r h_{t−1} + b_r)"},
    "update gate": {"gru": "z = σ(W_z x_t + U_z h_{t−1} + b_z)"},
    "input gate": {"lstm": "i = σ(W_i x_t + U_i h_{t−1} + b_i)"},
    "forget gate": {"lstm": "f = σ(W_f x_t + U_f h_{t−1} + b_f)"},
    "output gate": {"lstm": "o = σ(W_o x_t + U_o h_{t−1} + b_o)"},
    "candidate": {
        "gru": "n = tanh(W x_t + b + r ⊙ (U h_{t−1} + c))",
        "gru_cho": "n = tanh(W x_t + b + U (r ⊙ h_{t−1}) + c)",
        "lstm": "c̃ = tanh(W x_t + U h_{t−1} + b)",
    },
    "kept": {"lstm": "f ⊙ c_{t−1}", "gru": "z ⊙ h_{t−1}"},
    "added": {"lstm": "i ⊙ c̃", "gru": "(1 − z) ⊙ n"},
    "cell": {"lstm": "c_t = f ⊙ c_{t−1} + i ⊙ c̃"},
    "state": {
        "rnn": "h_t = f(sum), f tanh unless the config says otherwise",
        "gru": "h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}",
        "lstm": "h_t = o ⊙ tanh(c_t)",
        "": "h_t",
    },
}


@dataclass(frozen=True)
class Stage:
    """A stage of every step: ``values`` with ``axes``, query or step first where it has one.

    ``place`` is the function and the line that computed it, empty for a derived stage, whose
    ``error`` is its largest difference from the captured stage ``leads_to``, relative to the
    largest number there (at least 1).
    """

    name: str
    equation: str
    values: Array
    axes: tuple[str, ...]
    place: str = ""
    leads_to: str = ""
    error: float = 0.0

    @property
    def captured(self) -> bool:
        """Whether the model itself computed it."""
        return bool(self.place)

    @property
    def origin(self) -> str:
        """How the numbers were had, in words."""
        if self.place:
            return f"captured · {self.place}"
        return f"derived · gives {self.leads_to} to {self.error:.0e}"


@dataclass
class Calls:
    """What a stage was in each call of its module, and where it was computed."""

    place: str
    values: list[Tensor] = field(default_factory=list)


@contextmanager
def capture_stages(module: nn.Module) -> Iterator[dict[str, Calls]]:
    """Collect the stages of a module and of its parts, by name, in the order of computation."""
    stages: dict[str, Calls] = {}

    def record(name: str, values: Tensor, frame: FrameType) -> None:
        code = frame.f_code
        place = f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})"
        stages.setdefault(name, Calls(place)).values.append(values.detach().float().cpu())

    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, Probed):
                stack.enter_context(probed(part, record))
        yield stages


# --------------------------------------------------------------------------------------- attention


def attention_stages(
    module: BaseAttention, calls: Mapping[str, Calls], head: int, row: int = 0
) -> list[Stage]:
    """The stages of one head for one row of the batch, derived ones included, in their order."""
    whole = {name: joined(name, calls[name].values) for name in calls}
    rows = len(whole["query"])
    captured = {
        name: values[row * len(values) // rows][head * values.shape[1] // module.num_heads].numpy()
        for name, values in whole.items()
    }
    stages: dict[str, Stage] = {}
    for name, values in captured.items():
        equation, axes = _described(module, name)
        if axes[:2] == ("query", "key"):
            count = len(captured["query"])
            values = np.broadcast_to(values, (count, *values.shape[1:]))
        stages[name] = Stage(name, equation, values, axes, calls[name].place)
    for stage in _derived(module, captured, whole, head, row):
        stages[stage.name] = stage
    order = {name: number for number, name in enumerate(ATTENTION)}
    return sorted(stages.values(), key=lambda stage: order.get(stage.name, len(order)))


def _described(module: BaseAttention, name: str) -> tuple[str, tuple[str, ...]]:
    """The equation and the axes of a stage of an attention."""
    equation, axes = ATTENTION.get(name, ("", "query size"))
    if name in ("query", "key", "value", "output") and name not in module.config.project:
        plain = {"query": "q = x", "output": "o = [c of every head]"}
        equation = plain.get(name, f"{name[0]}_i = x_i")
    if isinstance(module, Attention):
        score, normalizer = module.config.score.kind or "", module.config.normalizer.kind or ""
        if name == "score":
            equation = SCORES.get(score, f"e_i = {score}(q, k_i)")
        if name == "weights":
            soft = "α_i = exp(e_i) / Σ_j exp(e_j)"
            equation = soft if normalizer == "softmax" else f"α = {normalizer}(e)"
    elif name == "weights":
        equation = "α_i = φ(q) · φ(k_i) / Σ_j φ(q) · φ(k_j)"
    return equation, tuple(axes.split())


def joined(name: str, values: Sequence[Tensor]) -> Tensor:
    """A stage over all queries, (B, H, …): a recurrent decoder computes one query a call.

    Keys, values and what else belongs to no query are the same in every call.
    """
    axes = ATTENTION.get(name, ("", "query size"))[1].split()
    if axes[0] != "query" or len(values) == 1:
        joined = values[0]
    else:
        widest = max(part.shape[-1] for part in values)
        at = values[0].dim() - len(axes)
        joined = torch.cat([F.pad(part, (0, widest - part.shape[-1])) for part in values], at)
    missing = {"output": 1, "bias": 0}.get(name)  # of all heads, and of all rows
    return joined if missing is None else joined.unsqueeze(missing)


def _derived(
    module: BaseAttention,
    captured: Mapping[str, Array],
    whole: Mapping[str, Tensor],
    head: int,
    row: int,
) -> Iterator[Stage]:
    """What lies between captured stages, each compared with the captured one that it leads to."""
    double = {name: values.astype(np.float64) for name, values in captured.items()}
    derive = partial(_compared, module, captured)
    if isinstance(module, Attention) and "score" in double and not module.score.gives_weights:
        scale, score = module.score.scale, double["score"]
        if scale is not None and scale != 1:
            query = double.get("rotated query", double["query"])
            product = query @ double.get("rotated key", double["key"]).T
            yield derive("product", product, "score", product * scale)
        if "bias" in double or "mask" in double:
            score = score + double.get("bias", 0.0) + double.get("mask", 0.0)
        blind = double["weights"].max(axis=-1, keepdims=True) == 0  # every key is hidden
        score = np.where(blind, -np.inf, score)
        if module.config.normalizer.kind == "softmax":
            temperature: float = module.config.normalizer.tree().get("temperature", 1.0)
            top = score.max(axis=-1, keepdims=True)
            exp = np.exp((score - np.where(np.isfinite(top), top, 0)) / temperature)
            total = exp.sum(axis=-1, keepdims=True)
            weights = exp / np.where(total == 0, 1, total)
        else:
            rows = torch.from_numpy(score).float()
            weights = np.where(blind, 0, module.normalizer(rows).detach().numpy())
        if "bias" in double or "mask" in double:
            yield derive("masked score", score, "weights", weights)
        if module.config.normalizer.kind == "softmax":
            yield derive("exp", exp, "weights", weights)
            yield derive("sum", total, "weights", weights)
    parts = double["weights"][:, :, None] * double["value"][None]
    yield derive("weighted values", parts, "context", parts.sum(axis=1))
    if isinstance(module.output, nn.Linear):
        weight = module.output.weight.detach().double().cpu().numpy()
        bias = module.output.bias
        contexts = whole["context"][row].double().numpy()  # (H, T, V)
        by_head = weight.reshape(len(weight), len(contexts), -1)
        outputs = np.einsum("htv,dhv->htd", contexts, by_head)
        added = 0 if bias is None else bias.detach().double().cpu().numpy()
        yield derive("output of the head", outputs[head], "output", outputs.sum(axis=0) + added)


def _compared(
    module: BaseAttention,
    captured: Mapping[str, Array],
    name: str,
    values: Array,
    leads_to: str,
    result: Array,
) -> Stage:
    """A derived stage, and how far what follows from it is from what the model computed."""
    equation, axes = _described(module, name)
    return Stage(name, equation, values, axes, "", leads_to, _error(result, captured[leads_to]))


def _error(result: Array, captured: Array) -> float:
    return float(np.abs(result - captured).max() / max(1.0, np.abs(captured).max()))


# ------------------------------------------------------------------------------------------- cells


def cell_stages(cell: Cell, calls: Mapping[str, Calls], row: int = 0) -> list[Stage]:
    """The stages of a recurrent cell for one row of the batch, over the steps."""
    captured: dict[str, Array] = {}
    for name, call in calls.items():
        first = call.values[0]
        whole = torch.cat(call.values, 1) if first.dim() == 3 else torch.stack(call.values, 1)
        captured[name] = whole[min(row, len(whole) - 1)].numpy()
    stages = {
        name: Stage(name, _equation(cell, name), values, ("step", "size"), calls[name].place)
        for name, values in captured.items()
    }
    double = {name: values.astype(np.float64) for name, values in captured.items()}
    carried, added, leads_to = None, None, "state"
    if isinstance(cell, LSTMCell):
        carried = double["forget gate"] * double["cell before"]
        added, leads_to = double["input gate"] * double["candidate"], "cell"
    elif isinstance(cell, GRUCell):
        carried = double["update gate"] * double["before"]
        added = (1 - double["update gate"]) * double["candidate"]
    if carried is not None and added is not None:
        error = _error(carried + added, captured[leads_to])
        for name, values in (("kept", carried), ("added", added)):
            equation, axes = _equation(cell, name), ("step", "size")
            stages[name] = Stage(name, equation, values, axes, "", leads_to, error)
    order = {name: number for number, name in enumerate(CELLS)}
    return sorted(stages.values(), key=lambda stage: order.get(stage.name, len(order)))


def _equation(cell: Cell, name: str) -> str:
    """The equation of a stage of a cell, or of the class that it derives from."""
    equations = CELLS.get(name, {})
    kinds = [base.Config.kind or "" for base in type(cell).__mro__ if issubclass(base, Cell)]
    return next((equations[kind] for kind in [*kinds, ""] if kind in equations), "")
