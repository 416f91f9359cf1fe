"""5. Sparsemax.

Softmax never gives a key the weight 0. The point of the simplex nearest to the scores does:

    α_i = max(e_i − τ, 0),  τ = (Σ_{j ≤ k} e_(j) − 1) / k        (Martins & Astudillo, 2016, alg. 1)

where e_(1) ≥ e_(2) ≥ … are the sorted scores, and k is the largest rank for which 1 + k e_(k) >
Σ_{j ≤ k} e_(j). Keys with the score −∞ come last and get 0.

Fill the gap, then run `foveate check docs/exercises/05_sparsemax.py`.
"""

import torch

from foveate.nn.scores import Normalizer


class MySparsemax(Normalizer):
    reimplements = "sparsemax"

    class Config(Normalizer.Config, kind="my_sparsemax"):
        pass

    def forward(self, scores):
        # scores (B, H, T, S) -> weights (B, H, T, S)
        scores = (scores - scores.amax(dim=-1, keepdim=True)).clamp(min=-4)  # sums stay finite
        ordered = scores.sort(dim=-1, descending=True).values
        rank = torch.arange(1, scores.shape[-1] + 1)
        raise NotImplementedError
