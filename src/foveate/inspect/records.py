"""Recording what a model computes: attention weights, hidden states, of one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, cast
from weakref import ref

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.inspect.words import Units
from foveate.nn.attention import BaseAttention, Tap
from foveate.nn.state import State

Labels = Sequence[str]
LAYERS = "layers", "blocks", "layer", "block", "h"  # what a list of layers is called


def block_of(name: str) -> str:
    """The name of a module without its layer.

    ``decoder.layers.3.cross_attention`` is of the block ``decoder.cross_attention``.
    """
    parts = name.split(".")
    return ".".join(p for p in parts if p not in LAYERS and not p.isdecimal())


def spaced(block: str) -> str:
    """The name of a block as text: ``decoder cross-attention``."""
    return block.replace("_", "-").replace(".", " ")


def suffixes(block: str) -> list[str]:
    """A dotted name and its endings, the longest first: ``a.b`` gives ``a.b`` and ``b``."""
    parts = block.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of one sentence (or image, or series) through a whole model.

    ``maps`` holds, by the dotted name of the module that formed them, weights of shape (H, T, S):
    head, query, key; exactly 0 where masked. ``rows`` and ``columns`` label queries and keys by
    the map's name, by its block (``encoder.self_attention``), by the end of the block's name
    (``cross_attention``), or under ``""`` for every other block.
    Row t of a decoder's map belongs to the label *produced* at t.
    """

    maps: dict[str, NDArray[np.float32]]
    rows: dict[str, list[str]]
    columns: dict[str, list[str]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        maps: Mapping[str, Tensor],
        source: Labels = (),
        target: Labels = (),
        title: str = "",
        row: int = 0,
    ) -> AttentionRecord:
        """The captured maps of one row of a batch, with the tokens of their axes.

        ``source`` is what an encoder read, ``target`` what a decoder read, its start included. Each
        position of a decoder produces the next token, the last one an unknown token (``…``).
        """
        read, before = list(source), list(target)
        produced = [*before[1:], "…"] if before else []
        own, cross = (produced, before), (produced, read)
        labels = {name: cross if name.endswith("cross_attention") else own for name in maps} | {
            name: (read, read) for name in maps if name.startswith("encoder")
        }
        return cls(
            {name: weights[row].detach().float().cpu().numpy() for name, weights in maps.items()},
            {name: rows for name, (rows, _) in labels.items() if rows},
            {name: keys for name, (_, keys) in labels.items() if keys},
            title,
        )

    def axes(self, name: str) -> tuple[list[str], list[str]]:
        """Labels of the queries (T) and keys (S) of one map; empty where none were given."""
        keys = [name, *suffixes(block_of(name)), ""]
        return (
            next((self.rows[key] for key in keys if key in self.rows), []),
            next((self.columns[key] for key in keys if key in self.columns), []),
        )

    def labels(self, name: str) -> tuple[list[str], list[str]]:
        """Labels of the queries (T) and keys (S) of a map; their numbers where none were given."""
        (rows, columns), (_, height, width) = self.axes(name), self.maps[name].shape
        return rows or [*map(str, range(height))], columns or [*map(str, range(width))]

    def row_means(self, name: str) -> Literal["at", "producing"]:
        """What a row of a map stands for: the word a decoder is *producing*, or one it is *at*."""
        return "at" if block_of(name).startswith("encoder") else "producing"

    def blocks(self) -> dict[str, list[str]]:
        """Names of the maps of each block, both in the order of the model."""
        by_block: dict[str, list[str]] = {}
        for name in self.maps:
            by_block.setdefault(block_of(name), []).append(name)
        return by_block

    def names(self, block: str | None = None) -> list[str]:
        """Names of the maps of a block, which may be given by the end of its name.

        ``cross_attention`` is enough where only the decoder has one; empty where there is none.
        Raises `UserError` naming the blocks where several would fit.
        """
        if block is None:
            return list(self.maps)
        blocks = self.blocks()
        fitting = [block] if block in blocks else [b for b in blocks if block in suffixes(b)]
        if len(fitting) > 1:
            raise UserError(f"{block!r} could be any of: {', '.join(fitting)}")
        return blocks[fitting[0]] if fitting else []

    def layers(self, block: str) -> list[str]:
        """Names of the maps of a block. Raises `UserError` naming the blocks that exist."""
        names = self.names(block)
        if not names:
            known = ", ".join(self.blocks()) or "none: this model has no attention"
            raise UserError(f"no block {block!r} here; there are: {known}")
        return names

    def drawn(self, name: str) -> NDArray[np.float32]:
        """One map (H, T, S) without the padding that has no label.

        Raises `UserError` where there are more labels than weights, where a weight would be
        cut away with the padding, or where a weight is not a number.
        """
        weights = self.maps[name]
        if not np.isfinite(weights).all():
            raise UserError(f"{name}: weights that are not numbers; has the training diverged?")
        rows, columns = self.axes(name)
        height, width = len(rows) or weights.shape[1], len(columns) or weights.shape[2]
        labelled = weights[:, :height, :width]
        if labelled.shape[1:] != (height, width):
            raise UserError(
                f"{name}: weights of shape {weights.shape} for {height} rows and {width} columns; "
                "give one label for each query and key"
            )
        lost = float(np.sum(weights[:, :height, width:]))
        if lost > 1e-6:
            raise UserError(
                f"{name}: keys without a label carry a weight of {lost:.3g}; label every key that "
                "is not padding, and mask padding"
            )
        return labelled

    def select(
        self, block: str = "cross_attention", layer: int = -1, head: int | None = None
    ) -> NDArray[np.float32]:
        """One map of shape (T, S): a layer of a block, one head or the mean of all.

        Raises `UserError` naming the blocks, layers or heads that exist.
        """
        names = self.layers(block)
        if not -len(names) <= layer < len(names):
            raise UserError(f"layer {layer} of {block}: there are {len(names)}")
        heads = self.drawn(names[layer])
        if head is None:
            mean: NDArray[np.float32] = heads.mean(axis=0, dtype=np.float32)
            return mean
        if not 0 <= head < len(heads):
            raise UserError(f"head {head} of {names[layer]}: there are {len(heads)}")
        chosen: NDArray[np.float32] = heads[head]
        return chosen


# ----------------------------------------------------------------------------------------- foreign
# Models of other libraries at the same hook points: plain torch and Hugging Face.
#
# An ``nn.MultiheadAttention`` returns its weights. In any other module whose class is called an
# attention the output of the softmax over (B, H, T, S) is intercepted, and the fused product is
# computed by its equation. These packages are not imported.

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
CROSS = {"crossattention", "cross_attn", "encoder_attn", "encdecattention", "multihead_attn"}
EAGER = "_attn_implementation_internal"  # of a config of transformers: the implementation


class ForeignAttention:
    """An attention module of another library; with a ``tap`` its forward is replaced."""

    def __init__(self, name: str, module: nn.Module, model: nn.Module) -> None:
        self.name, self.module, self.model = name, module, model
        self._tap: Tap | None = None

    @property
    def tap(self) -> Tap | None:
        return self._tap

    @tap.setter
    def tap(self, tap: Tap | None) -> None:
        installed = self._tap is not None
        self._tap = tap
        if tap is None and installed:
            del self.module.forward
        if tap is not None and not installed:
            self.forward = self.module.forward
            self.module.forward = self.tapped_forward

    @property
    def num_heads(self) -> int | None:
        return getattr(self.module, "num_heads", None)

    @contextmanager
    def timed(self) -> Iterator[Callable[[Tensor], int]]:
        yield self.at

    def at(self, weights: Tensor) -> int:
        """The place of the first query; earlier ones of a decoder are among its keys."""
        own = self.name.startswith("decoder") and self.name.endswith("self_attention")
        if weights.shape[2] == 1 and self.name.endswith("cross_attention"):
            raise ConfigError(
                f"{self.name}: step by step it cannot be known which row this is; run the whole "
                "target at once, or silence the head"
            )
        return weights.shape[3] - weights.shape[2] if own else 0

    def tapped_forward(self, *args: Any, **named: Any) -> Any:
        """The module's own forward; the tap is called with its weights."""
        with SoftmaxHook(self):
            return self.forward(*args, **named)


class SoftmaxHook(TorchFunctionMode):
    """Calls the tap with the output of each softmax over keys, which the tap may replace."""

    def __init__(self, point: ForeignAttention) -> None:
        super().__init__()
        self.point = point

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return self.product(*args, **(kwargs or {}))
        output = func(*args, **(kwargs or {}))
        return self.tapped(output) if func in SOFTMAX and output.dim() == 4 else output

    def tapped(self, weights: Tensor) -> Tensor:
        """The weights after the tap."""
        replaced = None if self.point.tap is None else self.point.tap(weights)
        return weights if replaced is None else replaced

    def product(
        self, query: Tensor, key: Tensor, value: Tensor,
        attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """`scaled_dot_product_attention` by its equation, with the tap on the weights."""
        if enable_gqa:
            shared = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~seen, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = self.tapped(
            scores.softmax(dim=-1).nan_to_num(0.0)
        )  # a query without keys yields zeros
        return F.dropout(weights, dropout_p) @ value


class ForeignMultiHead(ForeignAttention):
    """An ``nn.MultiheadAttention``, which returns the weights of each head."""

    def tapped_forward(
        self, query: Tensor, key: Tensor, value: Tensor,
        key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The module's own forward; weights that the tap returns mix the values instead."""
        output, weights = self.forward(
            query, key, value, key_padding_mask, True, attn_mask, False, is_causal
        )
        rows = weights if weights.dim() == 4 else weights[None]
        replaced = None if self.tap is None else self.tap(rows)
        if replaced is not None:
            weights = replaced if weights.dim() == 4 else replaced[0]
            output = self.mixed(weights, value)
        if not need_weights:
            return output, None
        return output, weights.mean(dim=-3) if average_attn_weights else weights

    def mixed(self, weights: Tensor, value: Tensor) -> Tensor:
        """W_o [A_1 V_1; …; A_H V_H] + b. Raises ``ConfigError`` where keys were added."""
        module = cast(nn.MultiheadAttention, self.module)
        if module.bias_k is not None or module.add_zero_attn:
            raise ConfigError(f"{self.name} adds keys of its own: its weights cannot be replaced")
        if module.batch_first is False and value.dim() == 3:
            value = value.transpose(0, 1)
        packed, bias = module.in_proj_weight, module.in_proj_bias
        weight = module.v_proj_weight if packed is None else packed.chunk(3)[2]
        values = F.linear(value, weight, None if bias is None else bias.chunk(3)[2])
        heads = values.unflatten(-1, (module.num_heads, -1)).transpose(-3, -2)
        mixed: Tensor = module.out_proj((weights @ heads).transpose(-3, -2).flatten(-2))
        return mixed.transpose(0, 1) if module.batch_first is False and mixed.dim() == 3 else mixed


def foreign(model: nn.Module) -> dict[str, ForeignAttention]:
    """The attentions of a model of another library; those with a tap keep their object."""
    adapters: list[ForeignAttention] = []
    for name, module in model.named_modules():
        tapped = getattr(module.__dict__.get("forward"), "__self__", None)
        if isinstance(tapped, ForeignAttention):
            adapters.append(tapped)
        elif isinstance(module, nn.MultiheadAttention):
            adapters.append(ForeignMultiHead(name, module, model))
        elif _is_attention(module) and not any(map(_is_attention, list(module.modules())[1:])):
            adapters.append(ForeignAttention(name, module, model))
    names = [foveate_name(point.name, point.module) for point in adapters]
    if len(set(names)) == len(names):
        for point, name in zip(adapters, names, strict=True):
            point.name = name
    return {point.name: point for point in adapters}


def _is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def foveate_name(name: str, module: nn.Module) -> str:
    """The name that an attention would have in foveate; its own where that is not clear."""
    parts = [part.lower() for part in name.split(".")]
    numbers = [part for part, before in zip(parts[1:], parts, strict=False) if before in LAYERS]
    number = next(filter(str.isdecimal, numbers), None)
    sides = [part for part in parts if part in ("encoder", "decoder")]
    causal = getattr(module, "is_causal", None)
    if not sides and causal is not None:
        sides = ["decoder" if causal else "encoder"]
    if number is None or not sides:
        return name
    cross = CROSS & set(parts) or getattr(module, "is_cross_attention", False)
    return f"{sides[0]}.layers.{number}.{'cross' if cross else 'self'}_attention"


@contextmanager
def explicit_attention(model: nn.Module) -> Iterator[None]:
    """Switch off what computes no weights: PyTorch's fast path and fused attention."""
    fast = torch.backends.mha.get_fastpath_enabled()
    owners = (getattr(module, "config", None) for module in model.modules())
    configs = {id(config): config for config in owners}.values()
    before = [(config, getattr(config, EAGER)) for config in configs if hasattr(config, EAGER)]
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for config, _ in before:
            setattr(config, EAGER, "eager")
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for config, kind in before:
            setattr(config, EAGER, kind)


# ------------------------------------------------------------------------------------- hook points
# The attention weights of a model of foveate or another library, by name, each with a ``tap``.
#
# A tap is called with weights (B, H, T, S) and may return others, which mix the values instead.

Where = str | Iterable[str] | Callable[[str], bool]
LISTED = 12  # names that an error lists


class OwnHookPoint:
    """The tap of an attention of foveate; None leaves the model as it is."""

    def __init__(self, module: BaseAttention) -> None:
        self.module = module

    @property
    def tap(self) -> Tap | None:
        return self.module.tap

    @tap.setter
    def tap(self, tap: Tap | None) -> None:
        self.module.tap = tap

    @property
    def num_heads(self) -> int | None:
        return self.module.num_heads

    @contextmanager
    def timed(self) -> Iterator[Callable[[Tensor], int]]:
        """Count steps; yields a function that gives the position of the first query of weights."""
        clock = Clock()
        with self.module.register_forward_pre_hook(clock.before_call, with_kwargs=True):
            yield clock.at


HookPoint = OwnHookPoint | ForeignAttention


class Clock:
    """The position of the first query of a call: that of the state, and the calls since then.

    A recurrent decoder attends once per step before its state advances, a Transformer once a pass.
    """

    def __init__(self) -> None:
        self.start, self.read, self.steps = 0, 0, 0
        self.of: Callable[[], State | None] = lambda: None

    def before_call(
        self, module: nn.Module, args: tuple[object, ...], named: dict[str, object]
    ) -> None:
        """Note the position at which a call of the module begins."""
        state = named.get("state", args[3] if len(args) > 3 else None)
        if not isinstance(state, State):
            self.start, self.of = 0, lambda: None
            return
        same = self.of() is state and state.position == self.read
        self.start = self.start + self.steps if same else state.position
        self.of, self.read = ref(state), state.position

    def at(self, weights: Tensor) -> int:
        """The position of the first query of the weights (B, H, T, S) of this call."""
        self.steps = weights.shape[2]
        return self.start


def hook_points(model: nn.Module) -> dict[str, HookPoint]:
    """All attention modules of a model by name, in the order of the model.

    Those of foveate have the dotted names of their modules. Those of plain PyTorch and of Hugging
    Face have the names that they would have in foveate (``decoder.layers.0.cross_attention``) where
    that is clear, else the names of their modules.
    """
    attentions: dict[str, HookPoint] = {
        name: OwnHookPoint(module)
        for name, module in model.named_modules()
        if isinstance(module, BaseAttention)
    }
    return attentions or dict(foreign(model))


def chosen(model: nn.Module, where: Where) -> dict[str, HookPoint]:
    """The hook points whose names fit. Raises ``ConfigError`` naming those that exist.

    A text fits a name that holds it, part by part (``cross_attention``, ``layers.1``, ``encoder``),
    a block (``decoder.cross_attention``), or as a pattern (``decoder.layers.*.cross*``).
    """
    available = hook_points(model)
    if callable(where):
        return {name: point for name, point in available.items() if where(name)}
    patterns = [where] if isinstance(where, str) else list(where)
    for pattern in patterns:
        if not any(fits(name, pattern) for name in available):
            raise ConfigError(f"no attention is called {pattern!r}; {existing(available)}")
    return {n: point for n, point in available.items() if any(fits(n, p) for p in patterns)}


def existing(available: Mapping[str, HookPoint]) -> str:
    """Which attentions there are, for an error."""
    if not available:
        return "this model has no attention"
    names = [*list(available)[:LISTED], *(["…"] if len(available) > LISTED else [])]
    return f"there are: {', '.join(names)}"


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern; see `chosen`."""
    dotted = (f".{name}.", f".{block_of(name)}.")
    return fnmatchcase(name, pattern) or any(f".{pattern}." in each for each in dotted)


@contextmanager
def tapped(
    taps: Mapping[str, Tap], places: Mapping[str, HookPoint], first: bool = False
) -> Iterator[None]:
    """Set taps for the context, after those that are set already (or before them: ``first``)."""
    before = {name: places[name].tap for name in taps}
    hosts = {s.model for name in taps if isinstance(s := places[name], ForeignAttention)}
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(explicit_attention(host))
        try:
            for name, tap in taps.items():
                there = before[name]
                places[name].tap = _chained(tap, there) if first else _chained(there, tap)
            yield
        finally:
            for name in taps:
                places[name].tap = before[name]


def _chained(first: Tap | None, second: Tap | None) -> Tap | None:
    """One tap after the other: the second is called with what the first returns."""
    if first is None or second is None:
        return first or second
    earlier, later = first, second

    def both(weights: Tensor) -> Tensor | None:
        replaced = earlier(weights)
        again = later(weights if replaced is None else replaced)
        return replaced if again is None else again

    return both


# ----------------------------------------------------------------------------------------- capture
# Capturing weights: taps are set, the model runs, taps are removed.

LIMIT = 2 * 2**30  # bytes of maps
BYTES = 4  # of a weight, kept in single precision


@contextmanager
def capture(
    model: nn.Module, where: Where = lambda name: True, limit: int = LIMIT
) -> Iterator[dict[str, Tensor]]:
    """Collect the weights (B, H, T, S) of attentions, those that are mixed in the end, by name.

    ``where`` names blocks, layers or maps (``"cross_attention"``, ``"decoder.layers.1"``, a
    pattern, several of them), or is a function that chooses names; see `chosen`. Calls of a module
    that is called several times (a recurrent decoder attends once per step) are joined along the
    queries T; keys that did not exist yet get 0. The outputs of the model do not change. Models of
    plain PyTorch (``nn.MultiheadAttention``) and of Hugging Face compute explicit attention
    meanwhile.

        with capture(model, "cross_attention") as maps:
            model(source, target)
        maps["decoder.layers.2.cross_attention"]

    Raises ``ConfigError`` where nothing has such a name, or as soon as it is foreseen that the maps
    of all layers together would take more than ``limit`` bytes.
    """
    attentions = chosen(model, where)
    maps: dict[str, Tensor] = {}

    def tap(name: str) -> Callable[[Tensor], None]:
        def see(weights: Tensor) -> None:
            remaining = len(attentions.keys() - maps.keys() - {name})
            held = sum(map(Tensor.numel, maps.values())) + weights.numel()
            _refuse_above(limit, held + remaining * weights.numel(), weights, len(attentions))
            seen = weights.detach().float()
            maps[name] = _joined(name, maps[name], seen) if name in maps else seen

        return see

    with tapped({name: tap(name) for name in attentions}, attentions):
        yield maps


def _refuse_above(limit: int, numbers: int, weights: Tensor, layers: int) -> None:
    """``numbers`` of weights are foreseen: L·B·H·T·S, each layer taken to be as large as this."""
    if numbers * BYTES <= limit:
        return
    rows, heads, queries, keys = weights.shape
    raise ConfigError(
        f"{layers} maps of {rows} × {heads} heads × {queries} queries × {keys} keys would take "
        f"{numbers * BYTES / 2**30:.3g} GiB, more than the limit of {limit / 2**30:.3g}: ask for "
        'fewer, as in capture(model, "decoder.layers.0"), for a shorter input, or raise limit'
    )


def _joined(name: str, before: Tensor, now: Tensor) -> Tensor:
    """Calls one after the other: (B, H, T₁, S₁) and (B, H, T₂, S₂) as (B, H, T₁ + T₂, S)."""
    if before.shape[:2] != now.shape[:2]:
        raise ConfigError(
            f"{name} was called for {len(before)} rows and then for {len(now)}: calls of several "
            "batches, or of a search that drops rows, are no one map; look at a forced pass over "
            "the outcome (run.explain)"
        )
    keys = max(before.shape[3], now.shape[3])
    wide = [F.pad(weights, (0, keys - weights.shape[3])) for weights in (before, now)]
    return torch.cat(wide, dim=2)


class Call(NamedTuple):
    """One call of a module: its arguments by position, and its output."""

    args: tuple[Any, ...]
    output: Any


@contextmanager
def calls_of(*modules: nn.Module) -> Iterator[list[Call]]:
    """Collect the calls of modules, in their order."""
    calls: list[Call] = []

    def record(module: nn.Module, args: tuple[object, ...], output: object) -> None:
        calls.append(Call(args, output))

    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(module.register_forward_hook(record))
        yield calls


# ------------------------------------------------------------------------------------------ forced
# A forced pass: a model reads an example with its whole target. Every task makes one of an example
# (`foveate.tasks.base.Task.forced`).

Maps = Mapping[str, NDArray[np.float32]]  # by name (H, T, S), between the pieces that are read


def everywhere(name: str) -> bool:
    """Every attention of a model."""
    return True


@dataclass(frozen=True)
class ForcedPass:
    """A model and an example with its target, which can be run repeatedly.

    ``run`` computes the example and returns (N,) scores: log p of each token of the target, of the
    label, or the values of a forecast (``score_name``), with a graph if gradients are on.
    ``label`` makes a record of maps between tokens, with ``units`` on its axes. ``read`` are the
    tokens that "encoder" and "decoder" read, ``produced`` those that the scores belong to. ``row``
    is the row of the batch that holds the example; ``answer_at`` the position of the encoder's
    output from which a label is predicted, None for all. ``first`` is the position of the first
    score among the tokens read. ``token`` names the classes of the output.
    """

    model: nn.Module
    run: Callable[[], Tensor]
    label: Callable[[Maps, Units], AttentionRecord]
    produced: Sequence[str]
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    row: int = 0
    first: int = 0
    answer_at: int | None = None
    token: Callable[[int], str] | None = None
    score_name: str = "log p"
    units: Units = "auto"

    @torch.inference_mode()
    def scores(self) -> NDArray[np.float64]:
        """The scores (N,) of the example."""
        numbers: NDArray[np.float64] = self.run().double().cpu().numpy()
        return numbers

    def difference(
        self, before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """How much each score has decreased; for a forecast the absolute difference."""
        return before - after if self.score_name == "log p" else np.abs(before - after)

    @torch.inference_mode()
    def maps(self, where: Where = everywhere) -> Maps:
        """The weights of every attention, (H, T, S), between pieces."""
        with capture(self.model, where) as captured:
            self.run()
        return {name: weights[self.row].cpu().numpy() for name, weights in captured.items()}

    def record(self) -> AttentionRecord:
        """The weights of every attention, with labels on both axes."""
        return self.label(self.maps(), self.units)

    def labelled(self, maps: Maps, note: str) -> AttentionRecord:
        """Maps that were computed from others, with labels on their axes and a note of how."""
        made = self.label(maps, self.units)
        return replace(made, notes=[*made.notes, note])
