"""A Transformer decoder's steps in one native call each, where the kernels know all its parts.

The equations are those of `foveate.models.transformer`, which is the twin that everyone else gets;
``tests/laws`` hold both to the same numbers. Nothing is copied when beams are reordered: keys and
values stay where they were written, and each hypothesis knows in which rows its ancestors stood.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.models.encoder import Memory
from foveate.models.ssru import SSRUDecoder, SSRULayer
from foveate.models.transformer import DecoderLayer, TransformerDecoder
from foveate.native.kept import Kept
from foveate.native.kernels import address, at, library
from foveate.native.linear import Packed, pack, pack_int8
from foveate.native.shares import shared
from foveate.native.step import Decoder, Layer, Norm, Reading
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import ReLU
from foveate.nn.int8 import Int8Linear
from foveate.nn.linear import Linear
from foveate.nn.norm import LayerNorm
from foveate.nn.normalizer import Softmax
from foveate.nn.position import Learned, NoPosition, Sinusoidal, SinusoidalHalves
from foveate.nn.score import ScaledDot
from foveate.nn.stem import TokenStem

ADDED = {NoPosition, Sinusoidal, SinusoidalHalves, Learned}  # positions that are vectors, added
KNOWN = {TransformerDecoder, SSRUDecoder}
PARTS = {"query", "key", "value", "output"}
LINEAR = {Linear, nn.Linear, Int8Linear}


class PackedDecoder:
    """The weights of a decoder, laid out for the kernels."""

    def __init__(self, kernels: ctypes.CDLL, decoder: TransformerDecoder) -> None:
        self.kernels, self.decoder, self.kept = kernels, decoder, list[Packed]()
        self.layers = [cast(DecoderLayer, layer) for layer in decoder.layers]
        self._layers = (Layer * len(self.layers))(*map(self._layer, self.layers))
        self.places: dict[int, Tensor] = {}

    def before(self, output: Packed) -> Decoder:
        """The decoder with a projection after it."""
        config, stem = self.decoder.config, cast(TokenStem, self.decoder.stem)
        return Decoder(
            len(self.layers),
            config.hidden_size,
            config.num_heads,
            config.ffn_size,
            config.norm_order == "post",
            stem.scale,
            at(stem.embedding.weight),
            self._layers,
            self._norm(self.decoder.embedding_norm),
            self._norm(self.decoder.norm),
            output,
        )

    def place(self, time: int) -> Float[Tensor, "D"]:
        """The vector that the position adds at a place."""
        if time not in self.places:
            nothing = torch.zeros(1, 1, self.decoder.config.hidden_size)
            place = self.decoder.position.embed(nothing, torch.tensor([time]))
            self.places[time] = place.flatten()
        return self.places[time]

    def _layer(self, layer: DecoderLayer) -> Layer:
        cross, feed, none = layer.cross_attention, layer.feed_forward, Packed()
        if isinstance(layer, SSRULayer):
            own = self._map(layer.unit.forget, layer.unit.value), none
        else:
            back = layer.self_attention
            own = self._map(back.query, back.key, back.value), self._map(back.output)
        return Layer(
            *own,
            none if cross is None else self._map(cross.query),
            none if cross is None else self._map(cross.output),
            self._map(feed.inner),
            self._map(feed.outer),
            (Norm * 3)(*(self._norm(block.norm) for block in layer.blocks)),
        )

    def _map(self, *parts: nn.Module) -> Packed:
        self.kept.append(_packed(self.kernels, *parts))
        return self.kept[-1]

    def _norm(self, norm: Any) -> Norm:
        if isinstance(norm, nn.Identity):
            return Norm()
        return Norm(at(norm.norm.weight), at(norm.norm.bias), norm.norm.eps)


class NativeReading:
    """What the hypotheses of some sources have read: the kernel's side of `DecoderSteps`."""

    def __init__(self, packed: PackedDecoder, output: Packed, memory: Memory) -> None:
        self.packed, self.output, self.native = packed, output, packed.before(output)
        cross = [layer.cross_attention for layer in packed.layers]
        self.keys = [a.key(memory.values).contiguous() for a in cross if a is not None]
        self.values = [a.value(memory.values).contiguous() for a in cross if a is not None]
        self.memory = _pointers(self.keys), _pointers(self.values)
        self.real = None if memory.keys is None else memory.keys.contiguous()
        rows, self.length = memory.values.shape[:2]
        self.sources = torch.arange(rows)  # (M,) the row of the memory that is each source's
        self.blocks: list[Tensor] = []  # of each step (rows then, L, 2, D)
        self.ancestors = torch.empty(rows, 0, dtype=torch.long)  # (N, t), or one behind

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each hypothesis."""
        kernels, native = self.packed.kernels, self.native
        rows, time = len(ids), len(self.blocks)
        self.blocks.append(torch.empty(rows, native.layers, 2, native.size))
        if self.ancestors.shape[1] < time:  # nothing was reordered
            self.reorder(torch.arange(rows))
        ids, ancestors = ids.contiguous(), self.ancestors
        logits = torch.empty(rows, self.output.rows)
        read = (
            rows // len(self.sources),
            self.length,
            time,
            at(ids),
            at(self.packed.place(time)),
            at(self.sources),
            *self.memory,
            at(self.real),
            _pointers(self.blocks),
            at(ancestors),
        )

        def some(first: int, count: int) -> None:
            reading = Reading(first, count, *read)
            room = torch.empty(kernels.room(address(native), count, self.length, time))
            kernels.step(address(native), address(reading), at(room), at(logits[first:]))

        shared(some, rows)
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        before = self.ancestors.index_select(0, rows)
        last = rows[:, None][:, : len(self.blocks) - before.shape[1]]  # where it stood just now
        self.ancestors = torch.cat((before, last), dim=1)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone; what is known of the others stays where it is."""
        self.sources = self.sources[sources]


def native_reading(model: Any, output: nn.Module, memory: Memory) -> NativeReading | None:
    """The kernel's side of a model's steps; None where there is no kernel, or not for such a model.

    ``output`` is its projection, or some rows of that. Nobody may look inside a native step: with
    taps and hooks it is the plain one.
    """
    decoder = model.decoder
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or model.training:
        return None
    if type(decoder) not in KNOWN or memory.values.device.type != "cpu":
        return None
    kernels = library()
    if kernels is None:
        return None
    parts = _inside(decoder)
    if any(map(_watched, [*parts, output])) or type(output) not in LINEAR:
        return None
    packed = _PACKED.of(
        decoder, parts, lambda: PackedDecoder(kernels, decoder) if _known(decoder) else None
    )
    if packed is None or not _plain_numbers(output):
        return None
    return NativeReading(
        packed, _OUTPUTS.of(output, [output], lambda: _packed(kernels, output)), memory
    )


_PACKED = Kept[PackedDecoder | None]()
_OUTPUTS = Kept[Packed]()


def _packed(kernels: ctypes.CDLL, *parts: nn.Module) -> Packed:
    """One map of the outputs of several."""
    weight, bias, scale = (_stacked(parts, name) for name in ("weight", "bias", "scale"))
    assert weight is not None
    if scale is None:
        return pack(weight, bias, kernels.panel())
    return pack_int8(weight, scale, bias, kernels.int8_panel())


def _inside(module: nn.Module) -> list[nn.Module]:
    """A module and all in it; ``modules()`` takes ten times as long, for every sentence."""
    found = [module]
    for each in found:
        found += [part for part in each._modules.values() if part is not None]
    return found


def _watched(module: nn.Module) -> bool:
    """Whether somebody looks at what a module does, or changes it."""
    tapped = getattr(module, "tap", None) is not None
    return tapped or bool(module._forward_hooks or module._forward_pre_hooks)


def _plain_numbers(module: nn.Module) -> bool:
    """Whether all that is learnt is in fp32 and in this machine's memory."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in module.parameters())


def _known(decoder: TransformerDecoder) -> bool:
    """Whether the kernel computes just what these modules do."""
    kinds = type(decoder.stem) is TokenStem and type(decoder.position) in ADDED
    norms = (decoder.embedding_norm, decoder.norm, *_norms(decoder))
    layers = (cast(DecoderLayer, layer) for layer in decoder.layers)
    return (
        kinds
        and decoder.config.norm_order in ("pre", "post")
        and all(type(norm) in (LayerNorm, nn.Identity) for norm in norms)
        and all(map(_plain_layer, layers))
        and decoder.config.hidden_size % 4 == 0
        and _plain_numbers(decoder)
    )


def _norms(decoder: TransformerDecoder) -> Iterator[Any]:
    return (block.norm for layer in decoder.layers for block in layer.blocks)  # type: ignore


def _plain_layer(layer: DecoderLayer) -> bool:
    own = None if isinstance(layer, SSRULayer) else layer.self_attention
    attentions = [a for a in (own, layer.cross_attention) if a is not None]
    feed = layer.feed_forward
    return type(feed) is ReLU and type(feed.inner) in LINEAR and all(map(_plain, attentions))


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


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """Where each of some tensors lies."""
    return (ctypes.c_void_p * len(tensors))(*map(at, tensors))
