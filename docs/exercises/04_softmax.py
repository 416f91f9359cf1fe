"""4. Softmax, computed stably.

Scores become weights that are positive and sum to 1 over the keys:

    α_i = exp(e_i) / Σ_j exp(e_j)        (Bridle, 1990)

exp(89) overflows float32. Subtracting the same number from all scores does not change the weights,
so subtract the maximum of the row: then no exponent is above 0. Do not call softmax. A
masked key has the score −∞ and the weight 0.

Fill the gap, then run `foveate check docs/exercises/04_softmax.py`.
"""

from foveate.nn.scores import Normalizer


class MySoftmax(Normalizer):
    reimplements = "softmax"

    class Config(Normalizer.Config, kind="my_softmax"):
        pass

    def forward(self, scores):
        # scores (B, H, T, S) -> weights (B, H, T, S)
        raise NotImplementedError
