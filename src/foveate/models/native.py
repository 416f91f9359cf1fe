"""Transformer encoders and decoder steps computed by the C kernels of `foveate.native`.

Each function gives None where the kernels do not compute exactly what the modules do: the modules
(`foveate.models.transformer`) then compute. Modules with taps or hooks are never replaced.
"""

from __future__ import annotations

import ctypes
from typing import TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foveate.models.encoder_decoder import DecoderSteps, Encoder, EncoderDecoder, Memory, rows_of
from foveate.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    ResidualBlock,
    SSRUDecoder,
    SSRULayer,
    TransformerDecoder,
    TransformerEncoder,
)
from foveate.native.kernels import WeightCache, address, library, pointer, run_rows
from foveate.native.layers import (
    DecoderStruct,
    LayerStruct,
    NormStruct,
    PackedLinear,
    StackStruct,
    StepStruct,
    linear_map,
    pack,
    pack_int8,
)
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.embedding import TokenStem
from foveate.nn.feed_forward import ReLU
from foveate.nn.linear import Int8Linear, LayerNorm, Linear
from foveate.nn.positions import Learned, NoPosition, Sinusoidal, SinusoidalHalves
from foveate.nn.scores import ScaledDot, Softmax

ADDED = {NoPosition, Sinusoidal, SinusoidalHalves, Learned}  # positions added to the embeddings
PROJECTIONS = {"query", "key", "value", "output"}
LINEAR = {Linear, nn.Linear, Int8Linear}
DECODERS = {TransformerDecoder, SSRUDecoder}
LONGEST = 64  # tokens of a source; for longer ones PyTorch's attention is faster

Layers = TransformerEncoder | TransformerDecoder
AnyLinear = nn.Linear | Int8Linear


class PackedStack:
    """The weights of the layers of an encoder or decoder in the memory layout of the kernels."""

    def __init__(self, kernels: ctypes.CDLL, stack: Layers) -> None:
        self.kernels, self.linears = kernels, list[PackedLinear]()  # alive as long as the stack
        config = stack.config
        layers = [self._layer(cast("EncoderLayer | DecoderLayer", each)) for each in stack.layers]
        self.native = StackStruct(
            len(layers),
            config.hidden_size,
            config.num_heads,
            config.ffn_size,
            config.norm_order == "post",
            (LayerStruct * len(layers))(*layers),
            norm_struct(stack.norm),
        )

    def _layer(self, layer: EncoderLayer | DecoderLayer) -> LayerStruct:
        none, cross = PackedLinear(), _cross_attention(layer)
        if isinstance(layer, SSRULayer):
            own = self.pack(layer.unit.forget, layer.unit.value), none
        else:
            attention = layer.self_attention
            projections = attention.query, attention.key, attention.value
            own = self.pack(*projections), self.pack(attention.output)
        return LayerStruct(
            *own,
            none if cross is None else self.pack(cross.query),
            none if cross is None else self.pack(cross.output),
            self.pack(layer.feed_forward.inner),
            self.pack(layer.feed_forward.outer),
            (NormStruct * 3)(*map(norm_struct, _norms(layer))),
        )

    def pack(self, *parts: nn.Module) -> PackedLinear:
        """One linear map whose outputs are those of several, one after the other."""
        self.linears.append(packed(self.kernels, *cast(tuple[AnyLinear, ...], parts)))
        return self.linears[-1]


class PackedDecoder(PackedStack):
    """The weights of a decoder, with the keys and values of all cross-attentions as one map."""

    def __init__(self, kernels: ctypes.CDLL, decoder: TransformerDecoder) -> None:
        super().__init__(kernels, decoder)
        self.stem, self.first_norm = cast(TokenStem, decoder.stem), decoder.embedding_norm
        self.position, self._encodings = decoder.position, torch.empty(0, 0)
        layers = cast(list[DecoderLayer], list(decoder.layers))
        attentions = [cast(BaseAttention, layer.cross_attention) for layer in layers]
        self.memory = self.pack(*(part for each in attentions for part in (each.key, each.value)))

    def with_output(self, output: PackedLinear) -> DecoderStruct:
        """The decoder followed by a projection to the vocabulary."""
        table, first_norm = pointer(self.stem.embedding.weight), norm_struct(self.first_norm)
        return DecoderStruct(self.native, self.stem.scale, table, first_norm, output)

    def encodings(self, count: int) -> Float[Tensor, "T D"]:
        """The vectors added at the first positions, at least ``count`` of them."""
        if len(self._encodings) < count:
            zeros = torch.zeros(1, count, self.native.size)
            self._encodings = self.position.embed(zeros, torch.arange(count))[0].contiguous()
        return self._encodings


Packed = TypeVar("Packed", bound=PackedStack)
_STACKS = WeightCache[PackedStack | None]()
_OUTPUTS = WeightCache[PackedLinear]()


def packed_stack(stack: Layers, kind: type[Packed]) -> Packed | None:
    """The packed weights of an encoder or decoder, made again when its weights change.

    None in training, under autocast or gradients, without kernels, with taps or hooks, and for
    layers of which a part has no kernel.
    """
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or stack.training:
        return None
    kernels, parts = library(), descendants(stack)
    if kernels is None or any(map(observed, parts)):
        return None
    made = _STACKS.get(stack, parts, lambda: kind(kernels, stack) if supported(stack) else None)
    return cast("Packed | None", made)


def observed(module: nn.Module) -> bool:
    """Whether a tap or a hook reads what a module computes, or changes it."""
    tapped = isinstance(module, BaseAttention) and module.observed
    return tapped or bool(module._forward_hooks or module._forward_pre_hooks)


def descendants(module: nn.Module) -> list[nn.Module]:
    """A module and all modules in it; ten times as fast as ``modules()``."""
    modules = [module]
    for each in modules:
        modules += [part for part in each._modules.values() if part is not None]
    return modules


def supported(stack: Layers) -> bool:
    """Whether the kernels compute exactly what these layers do."""
    layers = cast("list[EncoderLayer | DecoderLayer]", list(stack.layers))
    norms = [stack.norm, *(norm for layer in layers for norm in _norms(layer))]
    return (
        type(stack.position) in ADDED
        and stack.config.norm_order in ("pre", "post")
        and all(type(norm) in (LayerNorm, nn.Identity) for norm in norms)
        and all(type(layer) is stack.layer and _supported_layer(layer) for layer in layers)
        and stack.config.hidden_size % 4 == 0
        and single_precision(stack)
    )


def single_precision(module: nn.Module) -> bool:
    """Whether all parameters are fp32 in main memory."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in module.parameters())


def _supported_layer(layer: EncoderLayer | DecoderLayer) -> bool:
    attentions = [_cross_attention(layer)]
    if not isinstance(layer, SSRULayer):
        attentions.append(layer.self_attention)
    feed_forward = layer.feed_forward
    return (
        type(feed_forward) is ReLU
        and type(feed_forward.inner) in LINEAR
        and all(each is None or _supported_attention(each) for each in attentions)
    )


def _supported_attention(attention: BaseAttention) -> bool:
    """Softmax over scaled dot products of projected heads, none of them shared."""
    return (
        type(attention) is Attention
        and type(attention.score) is ScaledDot
        and type(attention.normalizer) is Softmax
        and set(attention.config.project) == PROJECTIONS
        and attention.key_heads == attention.num_heads
        and attention.config.head_size is attention.config.value_size is None
        and type(attention.query) in LINEAR
    )


def _cross_attention(layer: EncoderLayer | DecoderLayer) -> BaseAttention | None:
    return layer.cross_attention if isinstance(layer, DecoderLayer) else None


def _norms(layer: EncoderLayer | DecoderLayer) -> list[nn.Module]:
    return [cast(ResidualBlock, block).norm for block in layer.blocks]


def norm_struct(norm: nn.Module) -> NormStruct:
    """A layer norm for the kernels; an empty one for the identity."""
    if not isinstance(norm, LayerNorm):
        return NormStruct()
    return NormStruct(pointer(norm.norm.weight), pointer(norm.norm.bias), norm.norm.eps)


def packed(kernels: ctypes.CDLL, *parts: AnyLinear) -> PackedLinear:
    """One linear map of the outputs of several; a missing bias is zeros beside another's."""
    weight, bias = torch.cat([part.weight for part in parts]), None
    if any(part.bias is not None for part in parts):
        each = (torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in parts)
        bias = torch.cat(list(each))
    scales = [part.scale for part in parts if isinstance(part, Int8Linear)]
    if scales:
        return pack_int8(weight, torch.cat(scales), bias, kernels.int8_panel())
    return pack(weight, bias, kernels.panel())


def source_offsets(
    keys: Bool[Tensor, "B S"] | None, rows: int, length: int
) -> tuple[Int[Tensor, "B+1"], Int[Tensor, "P"] | None]:
    """Where each source begins among all real positions (P), and which these are; None for all."""
    if keys is None:
        return torch.arange(0, rows * length + 1, length), None
    starts = torch.zeros(rows + 1, dtype=torch.long)
    torch.cumsum(keys.sum(dim=1), dim=0, out=starts[1:])
    return starts, keys.flatten().nonzero().flatten()


def native_memory(
    encoder: Encoder, ids: Int[Tensor, "B S"], keys: Bool[Tensor, "B S"] | None
) -> Memory | None:
    """The memory of a Transformer encoder, all layers in one native call.

    Only real positions are computed, those of one source after those of another; values at padding
    are zeros.
    """
    if type(encoder) is not TransformerEncoder or type(encoder.stem) is not TokenStem:
        return None
    stack = packed_stack(encoder, PackedStack) if ids.shape[1] <= LONGEST else None
    if stack is None:
        return None
    x = encoder.embed(ids)
    batch, longest = ids.shape
    starts, real = source_offsets(keys, batch, longest)
    flat = x.flatten(0, 1)
    rows = flat if real is None else flat.index_select(0, real)
    kernels, native = stack.kernels, stack.native

    def encode(first: int, count: int) -> None:
        scratch = torch.empty(kernels.encode_room(address(native), longest))
        offsets, places = pointer(starts[first:]), pointer(rows)
        kernels.encode(address(native), count, offsets, longest, places, pointer(scratch))

    run_rows(encode, batch, cost=longest)
    values = rows if real is None else torch.zeros_like(flat).index_copy_(0, real, rows)
    return Memory(values.view(x.shape), keys)


class NativeSteps:
    """The steps of `DecoderSteps` for a Transformer decoder, each in one native call.

    Reordering hypotheses copies no keys or values: these stay where they were written, and each
    hypothesis records in which row of each earlier step its ancestor was.
    """

    enters = True
    device = torch.device("cpu")

    def __init__(
        self,
        decoder: PackedDecoder,
        output: PackedLinear,
        memory: Memory,
        tokens: Int[Tensor, "W"] | None = None,
        never: tuple[int, ...] = (),
    ) -> None:
        self.decoder, self.output, self.tokens, self.never = decoder, output, tokens, list(never)
        self.native = decoder.with_output(output)
        rows, self.longest = memory.values.shape[:2]
        self.starts, real = source_offsets(memory.keys, rows, self.longest)
        values = memory.values.flatten(0, 1)
        values = values if real is None else values[real]
        self.memory = linear_map(decoder.memory, values.contiguous())  # keys, values (P, L, 2, D)
        self.sources = torch.arange(rows)  # (M,) the sources being decoded
        self.first_steps = torch.zeros(rows, dtype=torch.long)  # (M,) the step each began at
        self.blocks: list[Tensor] = []  # keys and values of each step (rows then, L, 2, D)
        self.ancestors = torch.empty(rows, 0, dtype=torch.long)  # (N, t) up to the last reordering

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more token of each hypothesis."""
        if self.tokens is not None:
            ids = self.tokens[ids]
        kernels, native = self.decoder.kernels, self.native
        rows, time = len(ids), len(self.blocks)
        self.blocks.append(torch.empty(rows, native.stack.layers, 2, native.stack.size))
        ids, encodings = ids.contiguous(), self.decoder.encodings(time + 1)
        logits = torch.empty(rows, self.output.rows)
        fields = (
            rows // len(self.sources),
            self.longest,
            time,
            pointer(ids),
            pointer(encodings),
            pointer(self.sources),
            pointer(self.first_steps),
            pointer(self.starts),
            pointer(self.memory),
            (ctypes.c_void_p * len(self.blocks))(*map(pointer, self.blocks)),
            self.ancestors.shape[1],
            pointer(self.ancestors),
        )

        def decode(first: int, count: int) -> None:
            step, size = StepStruct(first, count, *fields), (count, self.longest, time)
            scratch = torch.empty(kernels.room(address(native), *size))
            target = pointer(logits[first:])
            kernels.step(address(native), address(step), pointer(scratch), target)

        run_rows(decode, rows)
        if self.never:
            logits[:, self.never] = -torch.inf
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i continues hypothesis ``rows[i]``."""
        earlier = self.ancestors.index_select(0, rows)
        since = rows[:, None].expand(-1, len(self.blocks) - earlier.shape[1])
        self.ancestors = torch.cat((earlier, since), dim=1)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only; steps before the first of them are dropped."""
        self.sources, self.first_steps = self.sources[sources], self.first_steps[sources]
        done = int(self.first_steps.min()) if len(self.first_steps) else len(self.blocks)
        if done:
            self.blocks, self.first_steps = self.blocks[done:], self.first_steps - done
            self.ancestors = self.ancestors[:, done:].contiguous()

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Begin to decode these sources too, with one hypothesis each, after the others' rows."""
        none = torch.zeros(len(sources), self.ancestors.shape[1], dtype=torch.long)
        self.ancestors = torch.cat((self.ancestors, none))
        self.sources = torch.cat((self.sources, sources))
        now = torch.full_like(sources, len(self.blocks))
        self.first_steps = torch.cat((self.first_steps, now))


def native_steps(
    model: EncoderDecoder,
    memory: Memory,
    tokens: Int[Tensor, "W"] | None = None,
    never: tuple[int, ...] = (),
) -> NativeSteps | None:
    """Steps by the kernels, as `DecoderSteps`; None where they do not compute what it does."""
    decoder, output = model.decoder, model.output
    if not isinstance(decoder, TransformerDecoder) or type(decoder) not in DECODERS:
        return None
    first_norm = type(decoder.embedding_norm)
    if type(decoder.stem) is not TokenStem or first_norm not in (LayerNorm, nn.Identity):
        return None
    if any(_cross_attention(cast(DecoderLayer, layer)) is None for layer in decoder.layers):
        return None
    output = output if tokens is None else cast(nn.Linear, rows_of(output, tokens))
    if observed(output) or type(output) not in LINEAR or not single_precision(output):
        return None
    stack = packed_stack(decoder, PackedDecoder)
    if stack is None:
        return None
    projection = _OUTPUTS.get(output, [output], lambda: packed(stack.kernels, output))
    return NativeSteps(stack, projection, memory, tokens, never)


def decoder_steps(
    model: EncoderDecoder,
    memory: Memory,
    tokens: Int[Tensor, "W"] | None = None,
    never: tuple[int, ...] = (),
) -> DecoderSteps | NativeSteps:
    """The steps by the kernels where these can compute them, else by PyTorch (`DecoderSteps`)."""
    native = native_steps(model, memory, tokens, never)
    return DecoderSteps(model, memory, tokens, never) if native is None else native
