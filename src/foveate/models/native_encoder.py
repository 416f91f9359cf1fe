"""A Transformer encoder's layers in one native call, where the kernels know all their parts.

The equations are those of `foveate.models.transformer`, which is the twin that everyone else gets.
Real places alone are computed, those of one source after those of another; padding is zeros.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from foveate.models.encoder import Encoder, Memory
from foveate.models.native_layers import packed_stack, starts_of
from foveate.models.transformer import TransformerEncoder
from foveate.native.kernels import address, at
from foveate.native.shares import shared
from foveate.nn.stem import TokenStem

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
