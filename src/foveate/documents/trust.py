"""The quality of a translation without a reference, predicted with held-out sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from foveate.config import Config
from foveate.data.words import split_words
from foveate.engine.answers import TextAnswer, Translator

COVERAGE = 0.8  # of the intervals
Z = 1.2816  # the quantile (1 + COVERAGE) / 2 of the normal distribution
RIDGE = 1.0  # λ
Signals = tuple[float, ...]
Line = tuple[float, ...]  # w and, last, b of w·x + b
Matrix = NDArray[np.float64]


def signals(model: Translator, answers: Sequence[TextAnswer]) -> list[Signals]:
    """Return the signals from which `Trust` predicts quality; () for answers without outputs."""
    counts = model.token_counts([answer.read or answer.source for answer in answers])
    result: list[Signals] = [()] * len(answers)
    for n, (answer, count) in enumerate(zip(answers, counts, strict=True)):
        if answer.outputs:
            best, words = answer.outputs[0], max(1, len(split_words(answer.source)))
            read, written = count + 1, len(best.ids) + 1
            mean = math.exp(best.log_probability / written)
            result[n] = mean, math.log(written / read), read / words
    return result


class Estimate(NamedTuple):
    """A predicted chrF, the ends of its interval, and ρ, its expected error."""

    chrf: float
    low: float
    high: float
    deviation: float


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Predict the mean chrF of several outputs, such as those of a chapter.

        ĉ = (1/n) Σ ĉ_i,   ĉ ± z √(Σ σ_i²) / n,   σ_i = ρ_i √(π/2),   z = 1.28

    as if the errors of sentences were normal and independent, with mean 0: the error of the fit
    itself is left out. On text of another kind than the held-out sentences all estimates are off in
    one direction.
    """
    n, rho = len(estimates), math.hypot(*(own.deviation for own in estimates))
    mean, wide = sum(own.chrf for own in estimates) / n, Z * math.sqrt(math.pi / 2) * rho / n
    return Estimate(mean, max(0.0, mean - wide), min(100.0, mean + wide), wide)


class Trust(Config):
    """The chrF of a sentence predicted from three signals x of its translation, with an interval.

        x = (p(y | x)^(1 / (|y| + 1)),  ln (|y| + 1) / (|x| + 1),  tokens of the source per word)
        ĉ(x) = w·x + b                 from the chrF c_i of held-out sentences
        ρ(x) = max(1, v·x + d)         from the errors |c_i − ĉ(x_i)|
        q = the ⌈0.8 (n + 1)⌉-th smallest of |c_j − ĉ(x_j)| / ρ(x_j),        ĉ(x) ± q ρ(x)

    Both lines are ridge regressions (Hoerl and Kennard, 1970) on one half of the sentences, i; the
    n sentences of the other half, j, give q. The interval is split conformal (Lei et al., 2018,
    sections 2.2 and 5.2): it covers 80 % of sentences that are like the held-out ones, whatever
    their distribution.
    """

    quality: Line
    """w and b."""
    error: Line
    """v and d."""
    quantile: float
    """q."""
    sentences: int
    """How many it was fitted to."""
    weights: str
    """The sha256 of the weights of the model."""

    @classmethod
    def fit(cls, signals: Sequence[Signals], chrf: Sequence[float], weights: str = "") -> Self:
        """Fit the prediction to the signals (N, 3) and chrF (N,) of held-out sentences."""
        x, c = np.array(signals, dtype=float), np.array(chrf, dtype=float)
        order = np.random.default_rng(0).permutation(len(c))
        i, j = order[: (len(c) + 1) // 2], order[(len(c) + 1) // 2 :]
        quality = ridge(x[i], c[i])
        error = ridge(x[i], np.abs(c[i] - _values(quality, x[i])))
        trust = cls(quality=quality, error=error, quantile=0, sentences=len(c), weights=weights)
        ratios = np.abs(c[j] - _values(quality, x[j])) / np.maximum(1, _values(error, x[j]))
        rank = min(len(j), math.ceil(COVERAGE * (len(j) + 1)))
        return trust.model_copy(update={"quantile": float(np.sort(ratios)[rank - 1])})

    def estimate(self, signals: Signals) -> Estimate:
        """Predict the chrF of an output, with the interval of single sentences."""
        x = np.array([signals])
        chrf = float(np.clip(_values(self.quality, x)[0], 0, 100))
        rho = max(1.0, float(_values(self.error, x)[0]))
        wide = self.quantile * rho
        return Estimate(chrf, max(0.0, chrf - wide), min(100.0, chrf + wide), rho)


def ridge(x: Matrix, c: NDArray[np.float64]) -> Line:
    """Return the line that predicts c (N,) from signals x (N, K), each as wide as the others:

    w, b = argmin Σ_i (c_i − b − w·x_i)² + λ Σ_k (w_k σ_k)²
    """
    mean, spread = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    z = (x - mean) / spread
    w = np.linalg.solve(z.T @ z + RIDGE * np.eye(x.shape[1]), z.T @ (c - c.mean())) / spread
    return (*w.tolist(), float(c.mean() - w @ mean))


def _values(line: Line, x: Matrix) -> NDArray[np.float64]:
    *weights, constant = line
    return np.asarray(x @ np.array(weights) + constant)
