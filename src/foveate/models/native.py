"""Transformer decoders and encoders run by the C kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foveate.models.base import Encoder, Memory
from foveate.models.transformer import SSRUDecoder, TransformerDecoder, TransformerEncoder
from foveate.native.kernels import Kept, address, at, library, shared
from foveate.native.layers import (
    Decoder,
    Layer,
    Norm,
    Packed,
    Reading,
    Stack,
    mapped,
    pack,
    pack_int8,
)
from foveate.nn.attention import Attention
from foveate.nn.embedding import TokenStem
from foveate.nn.feed_forward import ReLU
from foveate.nn.linear import Int8Linear, LayerNorm, Linear
from foveate.nn.positions import Learned, NoPosition, Sinusoidal, SinusoidalHalves
from foveate.nn.scores import ScaledDot, Softmax

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


# ---------------------------------------------------------------------------------- native encoder
# A Transformer encoder's layers in one native call, where the kernels know all their parts.
#
# The equations are those of `foveate.models.transformer`, which is the twin that everyone else
# gets.
# Real places alone are computed, those of one source after those of another; padding is zeros.

LONGEST = 64  # places of a source; of more PyTorch's attention is the quicker one


def native_memory(
    encoder: Encoder, ids: Int[Tensor, "B S"], keys: Bool[Tensor, "B S"] | None
) -> Memory | None:
    """What an encoder leaves for a search; None where PyTorch has to say."""
    if type(encoder) is not TransformerEncoder or type(encoder.stem) is not TokenStem:
        return None
    stack = packed_stack(encoder) if ids.shape[1] <= LONGEST else None
    if stack is None:
        return None
    x = encoder.embed(ids)
    starts, real = starts_of(keys, ids.shape)
    flat = x.flatten(0, 1)
    rows = flat if real is None else flat.index_select(0, real)
    kernels, native, longest = stack.kernels, stack.native, x.shape[1]

    def some(first: int, count: int) -> None:
        room = torch.empty(kernels.encode_room(address(native), longest))
        kernels.encode(address(native), count, at(starts[first:]), longest, at(rows), at(room))

    shared(some, len(x), each=longest)
    values = rows if real is None else torch.zeros_like(flat).index_copy_(0, real, rows)
    return Memory(values.view(x.shape), keys)


# ---------------------------------------------------------------------------------- native decoder
# A Transformer decoder's steps in one native call each, where the kernels know all its parts.
#
# The equations are those of `foveate.models.transformer`, which is the twin that everyone else
# gets;
# ``tests/laws`` hold both to the same numbers. Nothing is copied when beams are reordered: keys
# and
# values stay where they were written, and each hypothesis knows in which rows its ancestors stood.

KNOWN = {TransformerDecoder, SSRUDecoder}


class PackedDecoder(PackedStack):
    """The weights of a decoder, laid out for the kernels."""

    def __init__(self, kernels: ctypes.CDLL, decoder: TransformerDecoder) -> None:
        super().__init__(kernels, decoder)
        self.stem, self.first = cast(TokenStem, decoder.stem), decoder.embedding_norm
        self.position, self._places = decoder.position, torch.empty(0, 0)
        cross = [cast(Any, layer).cross_attention for layer in decoder.layers]
        both = [part for attention in cross for part in (attention.key, attention.value)]
        self.memory = self.map(*both)  # keys and values of all layers

    def before(self, output: Packed) -> Decoder:
        """The decoder with a projection after it."""
        table = at(self.stem.embedding.weight)
        return Decoder(self.native, self.stem.scale, table, native_norm(self.first), output)

    def places(self, count: int) -> Float[Tensor, "T D"]:
        """The vectors that the position adds at the first places, at least so many."""
        found = self._places
        if len(found) < count:
            nothing = torch.zeros(1, count, self.native.size)
            found = self.position.embed(nothing, torch.arange(count))[0].contiguous()
            self._places = found
        return found


class NativeReading:
    """What the hypotheses of some sources have read: the kernel's side of `DecoderSteps`."""

    def __init__(self, packed: PackedDecoder, output: Packed, memory: Memory) -> None:
        self.packed, self.output, self.native = packed, output, packed.before(output)
        rows, self.longest = memory.values.shape[:2]
        self.starts, real = starts_of(memory.keys, (rows, self.longest))
        values = memory.values.reshape(-1, memory.values.shape[2])
        values = values if real is None else values[real]
        self.memory = mapped(packed.memory, values.contiguous())  # keys and values, (P, L, 2, D)
        self.sources = torch.arange(rows)  # (M,) which of those in the memory
        self.begun = torch.zeros(rows, dtype=torch.long)  # (M,) the block of each one's first step
        self.blocks: list[Tensor] = []  # of each step (rows then, L, 2, D)
        self.ancestors = torch.empty(rows, 0, dtype=torch.long)  # (N, t) up to the last reordering

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each hypothesis."""
        kernels, native = self.packed.kernels, self.native
        rows, time = len(ids), len(self.blocks)
        self.blocks.append(torch.empty(rows, native.stack.layers, 2, native.stack.size))
        ids, ancestors, places = ids.contiguous(), self.ancestors, self.packed.places(time + 1)
        logits = torch.empty(rows, self.output.rows)
        read = (
            rows // len(self.sources),
            self.longest,
            time,
            at(ids),
            at(places),
            at(self.sources),
            at(self.begun),
            at(self.starts),
            at(self.memory),
            _pointers(self.blocks),
            ancestors.shape[1],
            at(ancestors),
        )

        def some(first: int, count: int) -> None:
            reading = Reading(first, count, *read)
            room = torch.empty(kernels.room(address(native), count, self.longest, time))
            kernels.step(address(native), address(reading), at(room), at(logits[first:]))

        shared(some, rows)
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        before = self.ancestors.index_select(0, rows)
        since = rows[:, None].expand(-1, len(self.blocks) - before.shape[1])  # it stood there still
        self.ancestors = torch.cat((before, since), dim=1)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone; what is known of the others stays where it is, until
        nobody left had begun then.
        """
        self.sources, self.begun = self.sources[sources], self.begun[sources]
        gone = int(self.begun.min()) if len(self.begun) else len(self.blocks)
        if gone:
            self.blocks, self.begun = self.blocks[gone:], self.begun - gone
            self.ancestors = self.ancestors[:, gone:].contiguous()

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Begin with these sources too, a hypothesis each; its ancestors so far are nobody."""
        nobody = torch.zeros(len(sources), self.ancestors.shape[1], dtype=torch.long)
        self.ancestors = torch.cat((self.ancestors, nobody))
        self.sources = torch.cat((self.sources, sources))
        self.begun = torch.cat((self.begun, torch.full_like(sources, len(self.blocks))))


def native_reading(model: Any, output: nn.Module, memory: Memory) -> NativeReading | None:
    """The kernel's side of a model's steps; None where there is no kernel, or not for such a model.

    ``output`` is its projection, or some rows of that.
    """
    decoder = model.decoder
    if type(decoder) not in KNOWN or not _reads_words(decoder):
        return None
    if watched(output) or type(output) not in LINEAR or not plain_numbers(output):
        return None
    stack = packed_stack(decoder, PackedDecoder)
    if stack is None:
        return None
    made = _OUTPUTS.of(output, [output], lambda: packed(stack.kernels, output))
    return NativeReading(cast(PackedDecoder, stack), made, memory)


_OUTPUTS = Kept[Packed]()


def _reads_words(decoder: TransformerDecoder) -> bool:
    """Whether the kernel knows what stands below the layers, and there is a memory to look at."""
    first = type(decoder.embedding_norm)
    crossed = all(cast(Any, layer).cross_attention is not None for layer in decoder.layers)
    return type(decoder.stem) is TokenStem and first in (LayerNorm, nn.Identity) and crossed


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """Where each of some tensors lies."""
    return (ctypes.c_void_p * len(tensors))(*map(at, tensors))
