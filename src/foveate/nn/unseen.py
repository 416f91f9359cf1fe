"""Attention whose weights nobody looks at: roads that never hand them out, for softmax(c qᵀk).

Long sequences, and all on other devices than CPUs, take PyTorch's fused kernel; short ones on a CPU
the native one. Both give what the equation in `foveate.nn.attention` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.native.attend import Attend, attends
from foveate.nn.fold import repeat
from foveate.nn.mask import Mask, Places

SHORT = 128 * 128  # query × key places; past it SDPA is the faster road on CPUs, measured


@dataclass(frozen=True)
class Unseen:
    """softmax(c q kᵀ + bias + mask) v: what beside queries, keys and values is in it.

    ``dropout`` is that of the weights, now. In ``training`` short ones may take the native kernel,
    whose sums have another order; else nothing may change by looking, not even a bit.
    """

    mask: Mask
    query_at: range
    key_at: Places
    bias: Callable[[], Tensor | None]  # (H, N, S), formed where a road wants it
    scale: float
    dropout: float
    training: bool

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor | None:
        """The mixture (M, H, N, V); None where the equation itself is the road to take."""
        steps, rows = len(self.query_at), queries.shape[2]
        if queries.device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT):
            road = self._fused
        elif (
            self.training
            and self.dropout == 0
            and steps == rows > 1
            and attends(queries, keys, values)
            and self.bias() is None
        ):
            road = self._native
        else:
            return None
        if self.mask.blind(self.query_at, self.key_at) is not None:
            return None  # a query that sees nothing gets zeros, which neither kernel gives
        return road(queries, keys, values)

    def _native(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        hidden = self.mask.additive(self.query_at, self.key_at, torch.float32, queries.device)
        mixed: Tensor = Attend.apply(queries, keys, values, hidden, self.scale)  # type: ignore[no-untyped-call]
        return mixed

    def _fused(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        device, kind, bias = queries.device, queries.dtype, self.bias()
        causal = bias is None and self.mask.triangle(self.query_at, self.key_at)
        causal = causal and len(self.query_at) == queries.shape[2]
        seen = None if causal else self.mask.dense(self.query_at, self.key_at, device)
        if bias is not None:
            bias = bias.to(kind)
            hidden = self.mask.additive(self.query_at, self.key_at, kind, device)
            seen = bias[None] if hidden is None else bias + hidden
        return F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=repeat(seen, len(self.query_at), queries.shape[2]),
            dropout_p=self.dropout,
            is_causal=causal,
            scale=self.scale,
        )
