"""8. The causal mask.

A decoder writes from left to right, so the query at t may attend to keys at s ≤ t only. In
training it reads the whole output at once; a mask keeps the future out:

    e_ts = qᵀk / √K where s ≤ t,  −∞ elsewhere        (Vaswani et al., 2017, §3.2.3)

exp(−∞) = 0 makes the weights of the future exactly 0. Padding is masked below already.

Fill the gap; the answer is `foveate check docs/exercises/08_causal_mask.py`.
"""

import torch

from foveate.nn.attention import Attention
from foveate.nn.context import indices


class MyCausal(Attention):
    reimplements = "full"

    class Config(Attention.Config, kind="my_causal"):
        pass

    def _weights(self, queries, keys, context, key_at):
        scores = self.score(queries, keys)  # (B, H, T, S)
        t = indices(context.query_at, None)[:, None]  # (T, 1) positions of the queries
        s = indices(key_at, None)[None, :]  # (1, S) positions of the keys
        visible = ...  # (T, S), true where the query at t may attend to the key at s
        visible = visible if context.mask.causal else s >= 0  # a memory is seen by all
        if context.mask.keys is not None:
            visible = visible & context.mask.keys[:, None, None, :]
        return self.normalizer(scores.masked_fill(~visible, -torch.inf)).masked_fill(~visible, 0)
