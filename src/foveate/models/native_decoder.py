"""A Transformer decoder's steps in one native call each, where the kernels know all its parts.

The equations are those of `foveate.models.transformer`, which is the twin that everyone else gets;
``tests/laws`` hold both to the same numbers. Nothing is copied when beams are reordered: keys and
values stay where they were written, and each hypothesis knows in which rows its ancestors stood.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.models.encoder import Memory
from foveate.models.native_layers import (
    LINEAR,
    PackedStack,
    native_norm,
    packed,
    packed_stack,
    plain_numbers,
    starts_of,
    watched,
)
from foveate.models.ssru import SSRUDecoder
from foveate.models.transformer import TransformerDecoder
from foveate.native.kept import Kept
from foveate.native.kernels import address, at
from foveate.native.linear import Packed, mapped
from foveate.native.shares import shared
from foveate.native.step import Decoder, Reading
from foveate.nn.norm import LayerNorm
from foveate.nn.stem import TokenStem

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
