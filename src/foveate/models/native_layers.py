"""A Transformer's layers as the kernels read them, where these know all their parts.

The equations are those of `foveate.models.transformer`, the twin that everyone else gets;
``tests/laws`` hold both to the same numbers. Lives here: which modules the kernels know, and their
weights laid out. Does not live here: what is computed (`native_encoder`, `native_decoder`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from foveate.native.kept import Kept
from foveate.native.kernels import at, library
from foveate.native.layers import Layer, Norm, Stack
from foveate.native.linear import Packed, pack, pack_int8
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import ReLU
from foveate.nn.int8 import Int8Linear
from foveate.nn.linear import Linear
from foveate.nn.norm import LayerNorm
from foveate.nn.normalizer import Softmax
from foveate.nn.position import Learned, NoPosition, Sinusoidal, SinusoidalHalves
from foveate.nn.score import ScaledDot

ADDED = {NoPosition, Sinusoidal, SinusoidalHalves, Learned}  # positions that are vectors, added
PARTS = {"query", "key", "value", "output"}
LINEAR = {Linear, nn.Linear, Int8Linear}


class PackedStack:
    """The weights of an encoder's or a decoder's layers, laid out for the kernels."""

    def __init__(self, kernels: ctypes.CDLL, stack: Any) -> None:
        self.kernels, self.kept = kernels, list[Packed]()
        config, layers = stack.config, list(stack.layers)
        self.native = Stack(
            len(layers),
            config.hidden_size,
            config.num_heads,
            config.ffn_size,
            config.norm_order == "post",
            (Layer * len(layers))(*map(self._layer, layers)),
            native_norm(stack.norm),
        )

    def _layer(self, layer: Any) -> Layer:
        none, feed = Packed(), layer.feed_forward
        back, cross = getattr(layer, "self_attention", None), _cross(layer)
        if back is None:
            own = self.map(layer.unit.forget, layer.unit.value), none
        else:
            own = self.map(back.query, back.key, back.value), self.map(back.output)
        return Layer(
            *own,
            none if cross is None else self.map(cross.query),
            none if cross is None else self.map(cross.output),
            self.map(feed.inner),
            self.map(feed.outer),
            (Norm * 3)(*(native_norm(block.norm) for block in layer.blocks)),
        )

    def map(self, *parts: nn.Module) -> Packed:
        """One map of the outputs of several, kept as long as the stack."""
        self.kept.append(packed(self.kernels, *parts))
        return self.kept[-1]


_STACKS = Kept[PackedStack | None]()


def packed_stack(stack: Any, make: type[PackedStack] = PackedStack) -> PackedStack | None:
    """The layers of an encoder or decoder for the kernels, as ``make`` packs them.

    None where there is no kernel, or not for such a model. Nobody may look inside what is native:
    with taps and hooks, and in training, PyTorch computes.
    """
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or stack.training:
        return None
    kernels = library()
    if kernels is None:
        return None
    parts = inside(stack)
    if any(map(watched, parts)):
        return None
    return _STACKS.of(stack, parts, lambda: make(kernels, stack) if _known(stack) else None)


def starts_of(
    keys: Bool[Tensor, "B S"] | None, shape: Sequence[int]
) -> tuple[Int[Tensor, "B+1"], Int[Tensor, "P"] | None]:
    """Where each source begins among all real places (P), and which these are; None for all."""
    rows, length = shape
    if keys is None:
        return torch.arange(0, rows * length + 1, length), None
    starts = torch.zeros(rows + 1, dtype=torch.long)
    torch.cumsum(keys.sum(dim=1), dim=0, out=starts[1:])
    return starts, keys.flatten().nonzero().flatten()


def native_norm(norm: Any) -> Norm:
    """A norm, or an identity, for the kernels."""
    if isinstance(norm, nn.Identity):
        return Norm()
    return Norm(at(norm.norm.weight), at(norm.norm.bias), norm.norm.eps)


def packed(kernels: ctypes.CDLL, *parts: nn.Module) -> Packed:
    """One map of the outputs of several."""
    weight, bias, scale = (_stacked(parts, name) for name in ("weight", "bias", "scale"))
    assert weight is not None
    if scale is None:
        return pack(weight, bias, kernels.panel())
    return pack_int8(weight, scale, bias, kernels.int8_panel())


def watched(module: nn.Module) -> bool:
    """Whether somebody looks at what a module does, or changes it."""
    tapped = getattr(module, "tap", None) is not None
    return tapped or bool(module._forward_hooks or module._forward_pre_hooks)


def plain_numbers(module: nn.Module) -> bool:
    """Whether all that is learnt is in fp32 and in this machine's memory."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in module.parameters())


def inside(module: nn.Module) -> list[nn.Module]:
    """A module and all in it; ``modules()`` takes ten times as long, for every sentence."""
    found = [module]
    for each in found:
        found += [part for part in each._modules.values() if part is not None]
    return found


def _known(stack: Any) -> bool:
    """Whether the kernels compute just what these modules do."""
    norms = (stack.norm, *_norms(stack))
    return (
        type(stack.position) in ADDED
        and stack.config.norm_order in ("pre", "post")
        and all(type(norm) in (LayerNorm, nn.Identity) for norm in norms)
        and all(type(layer) is stack.layer and _plain_layer(layer) for layer in stack.layers)
        and stack.config.hidden_size % 4 == 0
        and plain_numbers(stack)
    )


def _norms(stack: Any) -> Iterator[Any]:
    return (block.norm for layer in stack.layers for block in layer.blocks)


def _plain_layer(layer: Any) -> bool:
    both = getattr(layer, "self_attention", None), _cross(layer)
    feed = layer.feed_forward
    attentions = [attention for attention in both if attention is not None]
    return type(feed) is ReLU and type(feed.inner) in LINEAR and all(map(_plain, attentions))


def _cross(layer: Any) -> Any:
    return getattr(layer, "cross_attention", None)


def _plain(attention: Any) -> bool:
    """Softmax over scaled dot products of projected heads, none of them shared."""
    return (
        type(attention) is Attention
        and type(attention.score) is ScaledDot
        and type(attention.normalizer) is Softmax
        and set(attention.config.project) == PARTS
        and attention.key_heads == attention.num_heads
        and attention.config.head_size is None
        and type(attention.query) in LINEAR
    )


def _stacked(parts: Sequence[nn.Module], name: str) -> Tensor | None:
    """What the parts have under a name, one below the other, zeros for who lacks it; None where
    all do.
    """
    found: list[Tensor | None] = [getattr(part, name, None) for part in parts]
    if all(part is None for part in found):
        return None
    sizes = [len(cast(Tensor, part.weight)) for part in parts]
    return torch.cat(
        [torch.zeros(n) if f is None else f for f, n in zip(found, sizes, strict=True)]
    )
