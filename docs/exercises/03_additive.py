"""3. The additive score.

The first attention for translation is a small network with one hidden layer and one output:

    e(q, k) = vᵀ tanh(q + k)        (Bahdanau, Cho & Bengio, 2015, §3.1)

where q = W s and k = U h are already projected. To pair each query with each key, add (B, H, T, 1,
K) and (B, H, 1, S, K); the sums are (B, H, T, S, K). `self.weight` holds v for each head.

Fill the gap, then run `foveate check docs/exercises/03_additive.py`.
"""

import torch
from torch import nn

from foveate.nn.scores import Score


class MyAdditive(Score):
    reimplements = "additive"

    class Config(Score.Config, kind="my_additive"):
        pass

    def __init__(self, config, num_heads, head_size):
        super().__init__(config, num_heads, head_size)
        self.weight = nn.Parameter(torch.rand(num_heads, head_size) - 0.5)

    def forward(self, query, key):
        # query (B, H, T, K), key (B, H, S, K) -> scores (B, H, T, S)
        v = self.weight[:, None, :, None]  # (H, 1, K, 1)
        raise NotImplementedError
