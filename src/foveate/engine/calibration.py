"""The quality of an output, predicted from what its translation shows, with held-out sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field

from foveate.config import Config

KNOTS = 20  # most knots at which the prediction is stored
COVERAGE = 0.8  # of the intervals
Z = 1.2816  # the quantile (1 + COVERAGE) / 2 of the normal distribution
RIDGE = 1.0  # λ
Signals = tuple[float, ...]


class Estimate(NamedTuple):
    """A predicted chrF, the ends of its interval, and the mean error ρ of such predictions."""

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


class Calibration(Config):
    """The chrF of a sentence predicted from three signals x of its translation, with an interval.

        x = (log p(y | x) / (|y| + 1),  ln (|y| + 1) / (|x| + 1),  tokens of the source per word)
        w = argmin Σ_i (c_i − c̄ − w·(x_i − x̄))² + λ Σ_k (w_k σ_k)²,        s = w·x
        ĉ = f(s),   f = argmin Σ_i (c_i − f(s_i))²  non-decreasing
        q = the ⌈0.8 (n + 1)⌉-th smallest of |c_j − ĉ_j| / ρ(s_j),         ĉ ± q ρ(s)

    over held-out sentences with translations of chrF c: w, f and ρ, the mean of |c_i − ĉ_i| near s,
    are fitted to one half i, and the n sentences j of the other half give q. w is ridge regression
    (Hoerl and Kennard, 1970); f is isotonic regression (Barlow et al., 1972; for probabilities
    Zadrozny and Elkan, 2002) of the means of equal shares, linear between them and constant beyond;
    the interval is split conformal (Lei et al., 2018, sections 2.2 and 5.2): it covers 80 % of
    sentences that are like the held-out ones, whatever the distribution.
    """

    weights: tuple[float, ...] = (1.0,)
    """w; files of earlier versions use the log-probability alone."""
    log_probability: tuple[float, ...] = Field(min_length=1)
    """s at the knots, increasing: in earlier files the mean log p of a token."""
    chrf: tuple[float, ...] = Field(min_length=1)
    """The prediction at each knot."""
    deviation: tuple[float, ...] = ()
    """ρ at each knot; earlier files have none, and no intervals."""
    quantile: float = Field(0.0, ge=0)
    """q."""
    sentences: int = Field(ge=1)
    """How many it was fitted to."""
    digest: str = ""
    """The sha256 of the weights of the model."""

    @pydantic.model_validator(mode="after")
    def _has_a_value_at_each_knot(self) -> Self:
        lengths = {len(self.log_probability), len(self.chrf), len(self.deviation or self.chrf)}
        if len(lengths) > 1:
            raise ValueError("log_probability, chrf and deviation need as many numbers each")
        return self

    @classmethod
    def fit(cls, signals: Sequence[Signals], chrf: Sequence[float], digest: str = "") -> Self:
        """Fit the calibration to the signals (N, 3) and chrF (N,) of held-out sentences."""
        x, c = np.array(signals, dtype=float), np.array(chrf, dtype=float)
        order = np.random.default_rng(0).permutation(len(c))
        fitted, rest = order[: (len(c) + 1) // 2], order[(len(c) + 1) // 2 :]
        weights = ridge(x[fitted], c[fitted])
        knots, values, deviation = isotonic(x[fitted] @ weights, c[fitted])
        s = x[rest] @ weights
        misses = np.abs(c[rest] - np.interp(s, knots, values)) / np.interp(s, knots, deviation)
        rank = min(len(rest), math.ceil(COVERAGE * (len(rest) + 1)))
        return cls(
            weights=tuple(weights.tolist()),
            log_probability=tuple(knots.tolist()),
            chrf=tuple(values.tolist()),
            deviation=tuple(deviation.tolist()),
            quantile=float(np.sort(misses)[rank - 1]),
            sentences=len(c),
            digest=digest,
        )

    def estimate(self, signals: Signals) -> Estimate:
        """Predict the chrF of an output, with the interval of single sentences."""
        s = sum(w * x for w, x in zip(self.weights, signals, strict=False))
        chrf = float(np.interp(s, self.log_probability, self.chrf))
        rho = float(np.interp(s, self.log_probability, self.deviation or [0.0] * len(self.chrf)))
        wide = self.quantile * rho
        return Estimate(chrf, max(0.0, chrf - wide), min(100.0, chrf + wide), rho)


def ridge(x: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights (K,) of signals x (N, K) that predict c (N,): ridge regression."""
    spread = np.maximum(x.std(axis=0), 1e-6)
    z = (x - x.mean(axis=0)) / spread
    weights = np.linalg.solve(z.T @ z + RIDGE * np.eye(x.shape[1]), z.T @ (c - c.mean()))
    return np.asarray(weights / spread)


def isotonic(
    s: NDArray[np.float64], c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return knots, the non-decreasing values there, and the mean of |c − value| at each (≥ 1)."""
    shares = np.array_split(np.argsort(s, kind="stable"), min(KNOTS, 1 + len(s) // 10))
    blocks: list[tuple[float, int, int]] = []  # mean, sentences, shares
    for share in shares:  # pool adjacent violators
        block = float(c[share].mean()), len(share), 1
        while blocks and blocks[-1][0] > block[0]:
            mean, count, width = blocks.pop()
            total = mean * count + block[0] * block[1]
            block = total / (count + block[1]), count + block[1], width + block[2]
        blocks.append(block)
    knots = np.array([s[share].mean() for share in shares])
    values = np.array([mean for mean, _, width in blocks for _ in range(width)])
    misses = np.abs(c - np.interp(s, knots, values))
    return knots, values, np.array([max(1.0, misses[share].mean()) for share in shares])
