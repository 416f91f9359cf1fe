"""The quality of an output, predicted from its log-probability with held-out sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from foveate.config import Config

KNOTS = 20  # most knots at which the prediction is stored


class Calibration(Config):
    """The chrF of a sentence predicted from the mean log p of a token of its translation.

        m = log p(y | x) / (|y| + 1),   ĉ = f(m),   f = argmin Σ_i (c_i − f(m_i))²  non-decreasing

    over held-out sentences with translations of chrF c_i: isotonic regression (Barlow et al., 1972;
    for probabilities Zadrozny and Elkan, 2002) of the means of equal shares. Between the means f
    is linear, beyond them constant.
    """

    log_probability: tuple[float, ...] = Field(min_length=1)
    """Mean log p of a token at the knots, increasing."""
    chrf: tuple[float, ...] = Field(min_length=1)
    """The prediction at each knot."""
    sentences: int = Field(ge=1)
    """How many it was fitted to."""

    @classmethod
    def fit(cls, log_p: Sequence[float], chrf: Sequence[float]) -> Calibration:
        """Fit the calibration to mean log p (N,) and chrF (N,) of held-out sentences."""
        order = np.argsort(log_p, kind="stable")
        shares = np.array_split(order, min(KNOTS, len(order)))
        x, y = np.array(log_p, dtype=float), np.array(chrf, dtype=float)
        at = [float(x[share].mean()) for share in shares]
        blocks: list[tuple[float, int, int]] = []  # mean, sentences, shares
        for share in shares:  # pool adjacent violators
            block = float(y[share].mean()), len(share), 1
            while blocks and blocks[-1][0] > block[0]:
                mean, count, width = blocks.pop()
                total = mean * count + block[0] * block[1]
                block = total / (count + block[1]), count + block[1], width + block[2]
            blocks.append(block)
        means = [mean for mean, _, width in blocks for _ in range(width)]
        return cls(log_probability=tuple(at), chrf=tuple(means), sentences=len(order))

    def estimate(self, log_probability: float, tokens: int) -> float:
        """Predict the chrF from the log p of an output with this many tokens, its end included."""
        return float(np.interp(log_probability / max(1, tokens), self.log_probability, self.chrf))
