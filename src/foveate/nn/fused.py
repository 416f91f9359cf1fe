"""Attention by kernels that never form the weights, and when one of them is used."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from foveate.native.layers import Attend, attends
from foveate.nn.context import AttentionContext
from foveate.nn.linear import Dropout

SHORT = 128 * 128  # query × key positions; above this, PyTorch's fused attention is faster on CPUs
# PyTorch's fused kernels except cuDNN's, which plans anew for each length: some 100 ms.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(
    queries: Float[Tensor, "M H N K"],
    keys: Float[Tensor, "M H S K"],
    values: Float[Tensor, "M H S V"],
    context: AttentionContext,
    scale: float | None,
    dropout: Dropout,
) -> Float[Tensor, "M H N V"] | None:
    """Return softmax(c q kᵀ + bias + mask) v by a kernel that never forms the weights.

    Returns None if ``scale`` c is None, if forming the weights is faster, or if a query may attend
    to no key. Long sequences, and all on devices other than CPUs, take PyTorch's fused kernel.
    Short ones in training on a CPU take the native kernel, whose sums have another order: outside
    of training a tap must not change a bit of the output.
    """
    mask, at, device = context.mask, (context.query_at, context.key_at), queries.device
    rows = queries.shape[2]
    long = device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT)
    trains = dropout.training and dropout.p == 0 and context.hypotheses == 1 and rows > 1
    if scale is None or not (long or (trains and attends(queries, keys, values))):
        return None
    bias = context.bias(device)
    if (bias is not None and not long) or mask.blind(*at, device) is not None:
        return None
    dtype = queries.dtype if long else torch.float32
    causal = long and bias is None and mask.is_causal_only(*at)
    added = None if causal else mask.additive(*at, dtype, device)
    if bias is not None:
        added = bias.to(dtype)[None] if added is None else bias.to(dtype) + added
    if not long:
        return Attend.apply(queries, keys, values, added, scale)  # type: ignore[no-untyped-call]
    with sdpa_kernel(KERNELS):
        return F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=added,
            dropout_p=dropout.p if dropout.training else 0.0,
            is_causal=causal,
            scale=scale,
        )
