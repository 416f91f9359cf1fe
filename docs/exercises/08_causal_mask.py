"""8. The causal mask.

A decoder writes from left to right, so the query at t may only attend to keys at s ≤ t. In
training it reads the whole output at once; a mask hides the future:

    e_ts = qᵀk / √K if s ≤ t,  −∞ otherwise        (Vaswani et al., 2017, §3.2.3)

Since exp(−∞) = 0, future weights are exactly 0. The code below already masks padding.

Fill the gap, then run `foveate check docs/exercises/08_causal_mask.py`.
"""

import torch

from foveate.nn.attention import Attention
from foveate.nn.context import indices


class MyCausal(Attention):
    reimplements = "full"

    class Config(Attention.Config, kind="my_causal"):
        pass

    def _weights(self, queries, keys, context):
        scores = self.score(queries, keys)  # (B, H, T, S)
        t = indices(context.query_at, None)[:, None]  # (T, 1) positions of the queries
        s = indices(context.key_at, None)[None, :]  # (1, S) positions of the keys
        visible = ...  # (T, S), true if the query at t may attend to the key at s
        visible = visible if context.mask.causal else s >= 0  # every query sees all of a memory
        if context.mask.key_mask is not None:
            visible = visible & context.mask.key_mask[:, None, None, :]
        return self.normalizer(scores.masked_fill(~visible, -torch.inf)).masked_fill(~visible, 0)
