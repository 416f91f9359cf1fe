"""1. The dot product.

How well does a key match a query? The simplest answer is their dot product,

    e(q, k) = qᵀk = Σ_i q_i k_i,

which is large if both point in the same direction (Luong, Pham & Manning, 2015, §3.1). All pairs
together are one matrix product: row t holds the scores of query t, column s those of key s.

Fill the gap, then run `foveate check docs/exercises/01_dot.py`.
"""

from foveate.nn.scores import Score


class MyDot(Score):
    reimplements = "dot"

    class Config(Score.Config, kind="my_dot"):
        pass

    def forward(self, query, key):
        # query (B, H, T, K), key (B, H, S, K) -> scores (B, H, T, S)
        raise NotImplementedError
