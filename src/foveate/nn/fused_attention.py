"""softmax(c q kᵀ + bias + mask) v by a fused kernel, which never forms the weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from foveate.native.layers import Attend, attends
from foveate.nn.attention_context import AttentionContext, repeat
from foveate.nn.masks import Positions

SHORT = 128 * 128  # query × key positions; above it PyTorch's fused attention is faster on CPUs


def fused_attention(
    queries: Float[Tensor, "M H N K"],
    keys: Float[Tensor, "M H S K"],
    values: Float[Tensor, "M H S V"],
    context: AttentionContext,
    key_at: Positions,
    scale: float,
    dropout: float | None,
) -> Float[Tensor, "M H N V"] | None:
    """The mixture; None where forming the weights is faster, or a query may attend to no key.

    ``scale`` is c; ``dropout`` is None outside of training. Long sequences, and all on other
    devices than CPUs, take PyTorch's fused kernel. Short ones in training on a CPU take the native
    kernel, whose sums have another order: outside of training a tap must not change a bit of the
    output.
    """
    mask, query_at, device = context.mask, context.query_at, queries.device
    steps, rows = len(query_at), queries.shape[2]
    long = device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT)
    trains = dropout == 0 and steps == rows > 1 and attends(queries, keys, values)
    if not long and not trains:
        return None
    bias = context.bias(key_at, device)
    if (bias is not None and not long) or mask.blind(query_at, key_at) is not None:
        return None
    if not long:
        hidden = mask.additive(query_at, key_at, torch.float32, device)
        return Attend.apply(queries, keys, values, hidden, scale)  # type: ignore[no-untyped-call]
    causal = bias is None and steps == rows and mask.is_causal_only(query_at, key_at)
    added = None if causal else mask.dense(query_at, key_at, device)
    if bias is not None:
        hidden = mask.additive(query_at, key_at, queries.dtype, device)
        bias = bias.to(queries.dtype)
        added = bias[None] if hidden is None else bias + hidden
    return F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=None if added is None else repeat(added, steps, rows),
        dropout_p=dropout or 0.0,
        is_causal=causal,
        scale=scale,
    )
