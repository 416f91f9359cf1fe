"""2. The scaled dot product.

The sum of K products of independent numbers with variance 1 has variance K. Scores that large make
the softmax almost a hard choice, with a gradient of almost 0. Dividing by the standard deviation
helps:

    e(q, k) = qᵀk / √K        (Vaswani et al., 2017, §3.2.1)

Fill the gap, then run `foveate check docs/exercises/02_scaled_dot.py`.
"""

from foveate.nn.scores import Score


class MyScaledDot(Score):
    reimplements = "scaled_dot"

    class Config(Score.Config, kind="my_scaled_dot"):
        pass

    def forward(self, query, key):
        # query (B, H, T, K), key (B, H, S, K) -> scores (B, H, T, S)
        raise NotImplementedError
