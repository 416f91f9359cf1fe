"""IBM Models 1 and 2, and Model 2 with a diagonal of one parameter: p(a_j | …) knows no history.

p(a_j = i | f, e) = q(i | j, S, T) t(f_j | e_i) / Σ_i' q(i' | j, S, T) t(f_j | e_i')
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from foveate.align.aligner import Expectation, Lengths, WordAligner
from foveate.align.bitext import Floats


class Independent(WordAligner):
    """Each target word chooses its source word by itself, with q(i | j, S, T)."""

    class Config(WordAligner.Config):
        """What the kinds share."""

    config: Config

    @abstractmethod
    def prior(self, lengths: Lengths) -> Floats:
        """q(i | j, S, T): (T, S + 1), NULL first; rows sum to 1."""

    def expect(self, emissions: Floats) -> Expectation:
        steps, width = emissions.shape[1:]
        joint = emissions * self.prior((width - 1, steps))
        total = joint.sum(axis=2, keepdims=True)
        joint /= total
        return Expectation(joint, float(np.log(total).sum()), joint.sum(axis=0))

    def best(self, emissions: Floats) -> Any:
        return self.expect(emissions).posterior.argmax(axis=2)


class Model1(Independent):
    """IBM Model 1: every source word and NULL equally, q = 1 / (S + 1) (Brown et al., 1993)."""

    class Config(Independent.Config, kind="ibm1"):
        """Nothing more to choose."""

    config: Config

    def prior(self, lengths: Lengths) -> Floats:
        source, target = lengths
        return np.full((target, source + 1), 1 / (source + 1))

    def learn(self, moves: Mapping[Lengths, Floats]) -> None:
        """Nothing: q is fixed."""


class Model2(Independent):
    """IBM Model 2: q(i | j, S, T) is a table for each pair of lengths (Brown et al., 1993)."""

    class Config(Independent.Config, kind="ibm2"):
        """``smoothing`` counts of each row are spread evenly (a Dirichlet prior); 0 is the paper.

        Without it a pair of lengths that training shows once learns its own alignment by heart.
        """

        model1_iterations: int = Field(5, ge=0)
        smoothing: float = Field(0.0, ge=0)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.first = model1(config, config.model1_iterations)
        self.table: dict[Lengths, Floats] = {}

    def prior(self, lengths: Lengths) -> Floats:
        known = self.table.get(lengths)
        source, target = lengths
        return np.full((target, source + 1), 1 / (source + 1)) if known is None else known

    def learn(self, moves: Mapping[Lengths, Floats]) -> None:
        for lengths, counts in moves.items():
            smoothed = counts + self.config.smoothing / counts.shape[1]
            self.table[lengths] = smoothed / smoothed.sum(axis=1, keepdims=True)


class Diagonal(Independent):
    """Model 2 with one parameter: q ∝ exp(−λ |i/S − j/T|), NULL p₀ (Dyer et al., 2013)."""

    class Config(Independent.Config, kind="diagonal"):
        """``null_probability`` is p₀; λ starts at ``tension`` and is learned."""

        concentration: float = Field(0.01, ge=0)
        model1_iterations: int = Field(2, ge=0)
        null_probability: float = Field(0.08, gt=0, lt=1)
        tension: float = Field(4.0, gt=0)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.first = model1(config, config.model1_iterations)
        self.tension = config.tension

    def prior(self, lengths: Lengths) -> Floats:
        null = self.config.null_probability
        words = (1 - null) * _diagonal(_distance(lengths), self.tension)
        return np.pad(words, ((0, 0), (1, 0)), constant_values=null)

    def learn(self, moves: Mapping[Lengths, Floats]) -> None:
        """λ at which the mean distance expected is the one found, by Newton's method.

        Σ c_ji log q_ji is concave in λ, with slope Σ_j n_j E_q|i/S − j/T| − Σ c_ji |i/S − j/T|.
        """
        for _ in range(8):
            slope = curve = 0.0
            for lengths, counts in moves.items():
                distance, words = _distance(lengths), counts[:, 1:]
                q, mass = _diagonal(distance, self.tension), words.sum(axis=1)
                mean = (q * distance).sum(axis=1)
                slope += float(mass @ mean - (words * distance).sum())
                curve += float(mass @ ((q * distance**2).sum(axis=1) - mean**2))
            step = slope / max(curve, 1e-12)
            self.tension = float(np.clip(self.tension + np.clip(step, -2, 2), 0.1, 40))


def _distance(lengths: Lengths) -> Floats:
    """|i/S − j/T| with words at the middle of their share: (T, S)."""
    source, target = ((np.arange(n) + 0.5) / n for n in lengths)
    distance: Floats = np.abs(source[None] - target[:, None])
    return distance


def _diagonal(distance: Floats, tension: float) -> Floats:
    odds = np.exp(-tension * distance)
    q: Floats = odds / odds.sum(axis=1, keepdims=True)
    return q


def model1(config: WordAligner.Config, iterations: int) -> Model1:
    """Model 1 with what a later model shares with it."""
    shared = {name: getattr(config, name) for name in ("lowercase", "concentration", "cognates")}
    return Model1(Model1.Config(iterations=iterations, **shared))
