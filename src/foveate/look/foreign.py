"""Attention of other libraries at the same hook points: plain torch and Hugging Face.

An ``nn.MultiheadAttention`` returns its weights. In any other module whose class name contains
"attention", or which the user names, the output of a softmax over keys is intercepted, and the
weights of a fused product are computed beside it. Outputs stay the same, bit for bit, as long as no
tap returns other weights. These packages are not imported.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from foveate.config import ConfigError
from foveate.look.records import LAYERS
from foveate.nn.attention import Tap

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
CROSS = {"crossattention", "cross_attn", "encoder_attn", "encdecattention", "multihead_attn"}
IMPLEMENTATION = "_attn_implementation_internal"  # attribute of a transformers config
SEEN = (None, "eager", "sdpa")  # implementations whose weights can be intercepted
LISTED = 12  # names that an error lists
HEADS = "num_heads", "num_attention_heads", "n_heads", "n_head"


class ForeignAttention:
    """An attention module of another library; with a ``tap`` its forward is replaced.

    ``named`` means that the user named the module, so that every softmax over keys counts.
    ``calls`` counts its calls, and ``unclear`` those whose weights could not be identified.
    """

    def __init__(self, name: str, module: nn.Module, model: nn.Module, named: bool = False) -> None:
        self.name, self.module, self.model, self.named = name, module, model, named
        self.calls = self.unclear = 0
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
            self.calls = self.unclear = 0
            self.forward = self.module.forward
            self.module.forward = self.tapped_forward

    @property
    def num_heads(self) -> int | None:
        counts = (getattr(self.module, name, None) for name in HEADS)
        return next((count for count in counts if isinstance(count, int)), None)

    def at(self, weights: Tensor) -> int:
        """Return the position of the first query; a decoder's keys include earlier ones."""
        own = self.name.startswith("decoder") and self.name.endswith("self_attention")
        if weights.shape[2] == 1 and self.name.endswith("cross_attention"):
            raise ConfigError(
                f"{self.name}: step by step the row of the query is unknown; run the whole "
                "target at once, or silence the head"
            )
        return weights.shape[3] - weights.shape[2] if own else 0

    def tapped_forward(self, *args: Any, **named: Any) -> object:
        """Run the module's own forward and call the tap with its weights."""
        self.calls += 1
        inputs = [x for x in tree_leaves((args, named)) if isinstance(x, Tensor)]
        with SoftmaxHook(self, inputs) as hook:
            output = self.forward(*args, **named)
        self.unclear += not hook.understood
        return output

    def tapped(self, weights: Tensor) -> Tensor | None:
        """Return the tap's result for the weights, in which rows without any key are 0."""
        if self.tap is None:
            return None
        return self.tap(weights.masked_fill(weights.isnan().all(dim=-1, keepdim=True), 0.0))


class SoftmaxHook(TorchFunctionMode):
    """Calls the tap with the output of each softmax over keys, which the tap may replace.

    The output is recognised if it has the shape (B, H, T, S) or (B·H, T, S), the first input has B
    rows of T positions, and some input has S, unless S also counts keys of earlier steps.
    """

    def __init__(self, point: ForeignAttention, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.point, self.understood = point, False
        by_dim = [[x.shape for x in inputs if x.dim() == dim] for dim in (3, 4)]
        self.shapes = by_dim[0] or by_dim[1]

    def sizes(self, rows: int, count: int | None = None) -> set[int]:
        """Return the sizes of the first inputs except the batch's, and the cells of images."""
        sizes = set[int]()
        for shape in self.shapes[:count]:
            if rows in shape[:2]:
                batch = 0 if shape[0] == rows else 1
                rest = [*shape[:batch], *shape[batch + 1 :]]
                sizes |= {*rest, math.prod(rest[:2]), math.prod(rest[1:])}
        return sizes

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        named = kwargs or {}
        output = func(*args, **named)
        if func is F.scaled_dot_product_attention:
            return self.product(output, *args, **named)
        dim = named.get("dim", args[1] if len(args) > 1 else None)
        if func not in SOFTMAX or dim not in (-1, output.dim() - 1):
            return output
        replaced = self.tapped(output)
        return output if replaced is None else replaced

    def tapped(self, weights: Tensor) -> Tensor | None:
        """Return the tap's result for recognised weights; None for others."""
        by_head = self.by_head(weights)
        if by_head is None:
            return None
        self.understood = True
        replaced = self.point.tapped(by_head)
        return None if replaced is None else replaced.reshape(weights.shape)

    def by_head(self, weights: Tensor) -> Tensor | None:
        """Return the weights as (B, H, T, S); None if they are not attention weights."""
        heads, named = self.point.num_heads, self.point.named
        if weights.dim() == 3:
            weighs_queries = bool(self.sizes(len(weights))) or (named and not heads)
            if not weighs_queries and (heads is None or len(weights) % heads):
                return None
            weights = weights[:, None] if weighs_queries else weights.unflatten(0, (-1, heads or 1))
        if weights.dim() != 4 or named:
            return weights if weights.dim() == 4 else None
        rows, count, steps, keys = weights.shape
        fits = steps in self.sizes(rows, 1) and (keys > steps or keys in self.sizes(rows))
        return weights if fits and heads in (None, count) else None

    def product(self, output: Tensor, query: Tensor, key: Tensor, value: Tensor,
                attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
                scale: float | None = None, enable_gqa: bool = False) -> Tensor:  # fmt: skip
        """Return scaled dot-product attention, by its equation if the weights are replaced."""
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
        replaced = self.tapped(scores.softmax(dim=-1))
        return output if replaced is None else F.dropout(replaced, dropout_p) @ value


class ForeignMultiHead(ForeignAttention):
    """An ``nn.MultiheadAttention``, which returns the weights of each head."""

    def tapped_forward(self, query: Tensor, key: Tensor, value: Tensor,
                       key_padding_mask: Tensor | None = None, need_weights: bool = True,
                       attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                       is_causal: bool = False) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Run the module's own forward; weights that the tap returns mix the values instead."""
        self.calls += 1
        options = need_weights, attn_mask, average_attn_weights, is_causal
        output, theirs = self.forward(query, key, value, key_padding_mask, *options)
        training = self.module.training
        try:  # once more for the weights, without drawing the random numbers of dropout
            self.module.training = False
            with fast_path(False):
                _, weights = self.forward(
                    query, key, value, key_padding_mask, True, attn_mask, False, is_causal
                )
        finally:
            self.module.training = training
        replaced = self.tapped(weights if weights.dim() == 4 else weights[None])
        if replaced is None:
            return output, theirs
        weights = replaced if weights.dim() == 4 else replaced[0]
        mean = weights.mean(dim=-3) if average_attn_weights else weights
        return self.mixed(weights, value), mean if need_weights else None

    def mixed(self, weights: Tensor, value: Tensor) -> Tensor:
        """Return W_o [A_1 V_1; …; A_H V_H] + b. Raises ``ConfigError`` if the module adds keys."""
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


def foreign(model: nn.Module, named: Iterable[str] = ()) -> dict[str, ForeignAttention]:
    """Return the attentions of a model of another library; those with a tap keep their object.

    Raises ``ConfigError`` if none of the modules matches a name given by the user.
    """
    patterns = tuple(named)
    every = dict(model.named_modules())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ConfigError(f"no module is called {pattern!r}; there are: {_own_modules(model)}")
    adapters: list[ForeignAttention] = []
    for name, module in every.items():
        tapped = getattr(module.__dict__.get("forward"), "__self__", None)
        chosen = any(fnmatchcase(name, pattern) for pattern in patterns)
        if patterns and not chosen:
            continue
        if isinstance(tapped, ForeignAttention):
            adapters.append(tapped)
        elif isinstance(module, nn.MultiheadAttention):
            adapters.append(ForeignMultiHead(name, module, model))
        elif chosen or (
            _is_attention(module) and not any(map(_is_attention, list(module.modules())[1:]))
        ):
            adapters.append(ForeignAttention(name, module, model, chosen))
    names = [foveate_name(point.name, point.module) for point in adapters]
    if len(set(names)) == len(names) and not patterns:
        for point, name in zip(adapters, names, strict=True):
            point.name = name
    return {point.name: point for point in adapters}


def _own_modules(model: nn.Module) -> str:
    """Return the names of some modules that are not PyTorch's own."""
    every = model.named_modules()
    names = [name for name, m in every if name and not type(m).__module__.startswith("torch.")]
    return ", ".join([*names[:LISTED], *["…"] * (len(names) > LISTED)]) or "none but PyTorch's own"


def refuse_unknown(model: nn.Module) -> None:
    """Raise ``ConfigError`` for a model none of whose modules is recognised as attention."""
    raise ConfigError(
        f"no module of {type(model).__name__} is recognised as attention, by nn.MultiheadAttention "
        'or by "attention" in the name of its class: name those that are, as in '
        f'capture(model, modules="blocks.*.mixer"); there are: {_own_modules(model)}'
    )


def report_unclear(unclear: Sequence[ForeignAttention], captured: bool) -> None:
    """Warn of attentions whose weights were not recognised.

    Raises ``ConfigError`` if nothing else was ``captured``.
    """
    names = ", ".join(f"{point.name} ({type(point.module).__name__})" for point in unclear)
    message = (
        f"the weights of {names} are not captured: no softmax in it has a row for each query and "
        "a column for each key. If a module inside forms them, or its softmax is to be captured "
        f'as it is, name it: capture(model, modules="{unclear[0].name}")'
    )
    if not captured:
        raise ConfigError(message)
    warnings.warn(message, stacklevel=2)


def _is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def foveate_name(name: str, module: nn.Module) -> str:
    """Return the name that an attention would have in foveate; its own if that is not clear."""
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
def fast_path(on: bool) -> Iterator[None]:
    """Switch PyTorch's fast path of Transformer layers on or off."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(on)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def explicit_attention(model: nn.Module, reads: bool) -> Iterator[None]:
    """Make a model compute its weights explicitly, without changing outputs if taps only read.

    PyTorch's fast path computes none: it is switched off if weights may be replaced (not
    ``reads``); otherwise a layer is computed a second time beside it. A Hugging Face implementation
    with a kernel of its own is replaced by the explicit one.
    """
    owners = (getattr(module, "config", None) for module in model.modules())
    configs = {id(config): config for config in owners}.values()
    before = [(c, kind) for c in configs if (kind := getattr(c, IMPLEMENTATION, None)) not in SEEN]
    layers = [m for m in model.modules() if isinstance(m, nn.TransformerEncoderLayer)]
    with ExitStack() as stack:
        try:
            for config, _ in before:
                setattr(config, IMPLEMENTATION, "eager")
            for layer in layers if reads else ():
                stack.enter_context(_beside_fast_path(layer))
            if not reads:
                stack.enter_context(fast_path(False))
            yield
        finally:
            for config, kind in before:
                setattr(config, IMPLEMENTATION, kind)


@contextmanager
def _beside_fast_path(layer: nn.TransformerEncoderLayer) -> Iterator[None]:
    """Compute a layer a second time, for its weights, after the fast path has run."""
    if "forward" in layer.__dict__:  # set by an outer capture
        yield
        return
    own = layer.forward

    def forward(src: Tensor, *args: Any, **named: Any) -> Tensor:
        point = getattr(layer.self_attn.__dict__.get("forward"), "__self__", None)
        before = point.calls if isinstance(point, ForeignAttention) else None
        output = own(src, *args, **named)
        if isinstance(point, ForeignAttention) and point.calls == before:
            with fast_path(False), torch.no_grad():
                if src.is_nested:  # only the real positions of each row
                    lengths = torch.tensor([len(row) for row in src.unbind()], device=src.device)
                    src = torch.nested.to_padded_tensor(src, 0.0)
                    real = torch.arange(src.shape[1], device=src.device) < lengths[:, None]
                    args, named = (), {"src_key_padding_mask": ~real}
                own(src, *args, **named)
        return output

    layer.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        del layer.forward
