"""Attention of other libraries at the same hook points: plain torch and Hugging Face.

An ``nn.MultiheadAttention`` returns its weights. In any other module whose class is called an
attention the output of the softmax over (B, H, T, S) is intercepted, and the fused product is
computed by its equation. These packages are not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foveate.config import ConfigError
from foveate.inspect.records import LAYERS
from foveate.nn.attention import Tap

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

    def at(self, weights: Tensor) -> int:
        """The place of the first query; earlier ones of a decoder are among its keys."""
        own = self.name.startswith("decoder") and self.name.endswith("self_attention")
        if weights.shape[2] == 1 and self.name.endswith("cross_attention"):
            raise ConfigError(
                f"{self.name}: step by step it cannot be known which row this is; run the whole "
                "target at once, or silence the head"
            )
        return weights.shape[3] - weights.shape[2] if own else 0

    def tapped_forward(self, *args: Any, **named: Any) -> object:
        """The module's own forward; the tap is called with its weights."""
        with SoftmaxHook(self):
            return self.forward(*args, **named)


class SoftmaxHook(TorchFunctionMode):
    """Calls the tap with the output of each softmax over keys, which the tap may replace."""

    def __init__(self, point: ForeignAttention) -> None:
        super().__init__()
        self.point = point

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> object:
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
