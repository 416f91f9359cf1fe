"""What every statistical aligner does: expectation–maximisation over a corpus of pairs of words.

    p(f, a | e) = Π_j p(a_j | …) · t(f_j | e_{a_j}),   a_j = 0 for NULL (Brown et al., 1993)

A kind says only where target word j comes from, p(a_j | …). Does not live here: the kinds (`ibm`,
`hmm`), joining both directions (`symmetrize`), attention (`attention`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from foveate.align.bitext import Floats, Group, Lexicon, Numbers, Pair
from foveate.align.extract import Links
from foveate.config import BaseConfig, Configurable

Lengths = tuple[int, int]  # S source words, T target words


class Aligner(Configurable):
    """Learns which words translate which, and links the words of pairs."""

    class Config(BaseConfig, family="aligner"):
        """``lowercase``: words are compared without their case."""

        lowercase: bool = True

    config: Config

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def train(self, pairs: Sequence[Pair]) -> list[float]:
        """Learn from pairs of lists of words; log p(f | e) before each iteration, which rises.

        Raises ``ValueError`` where no pair has words on both sides.
        """

    @abstractmethod
    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        """The links of each pair, trained on or not; none where a side is empty."""

    def ready(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The words as they are compared."""
        if not self.config.lowercase:
            return list(pairs)
        return [([w.lower() for w in s], [w.lower() for w in t]) for s, t in pairs]


@dataclass(frozen=True)
class Expectation:
    """What the E step finds for a group of B pairs of equal lengths.

    ``posterior`` (B, T, S + 1) is p(a_j = i | f, e), ``log_likelihood`` Σ log p(f | e), ``moves``
    the sums from which the kind re-estimates p(a_j | …).
    """

    posterior: Floats
    log_likelihood: float
    moves: Floats


class WordAligner(Aligner):
    """An aligner that gives each target word one source word or NULL, trained by EM."""

    class Config(Aligner.Config):
        """``concentration`` is α of the Dirichlet prior of t; 0 is maximum likelihood.

        ``cognates`` is added to α for words that begin alike (Al-Onaizan et al., 1999).
        """

        iterations: int = Field(5, ge=0)
        concentration: float = Field(0.0, ge=0)
        cognates: float = Field(0.0, ge=0)

    config: Config
    first: WordAligner | None = None  # the simpler model whose t this one starts from

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        corpus = Training(self.ready(pairs))
        return corpus.fit(self)

    def start(self, corpus: Training) -> None:
        """Take the corpus' words, and t from the simpler model if there is one."""
        if self.first is not None:
            corpus.fit(self.first)
        self.numbers, self.lexicon = corpus.numbers, corpus.lexicon

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        found: list[Links] = [set() for _ in pairs]
        for group in self.numbers.groups(self.ready(pairs)):
            for index, row in zip(group.pairs, self.best(self.emissions(group)), strict=True):
                found[index] = {(int(i) - 1, j) for j, i in enumerate(row) if i}
        return found

    def posterior(self, group: Group) -> Floats:
        """p(a_j = i | f, e) for a group: (B, T, S + 1)."""
        return self.expect(self.emissions(group)).posterior

    def emissions(self, group: Group) -> Floats:
        """t(f_j | e_i): (B, T, S + 1)."""
        found: Floats = self.lexicon.probability[self.lexicon.places(group)]
        return found

    @abstractmethod
    def expect(self, emissions: Floats) -> Expectation:
        """The E step for B pairs of equal lengths, from t(f_j | e_i) (B, T, S + 1)."""

    @abstractmethod
    def learn(self, moves: Mapping[Lengths, Floats]) -> None:
        """The M step of p(a_j | …), from the ``moves`` of every group by its lengths."""

    @abstractmethod
    def best(self, emissions: Floats) -> Any:
        """The best alignment a (B, T), 0 for NULL."""


class Training:
    """A corpus being trained on: its groups, and where their words stand in the lexicon."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.numbers = Numbers(pairs)
        self.groups = self.numbers.groups(pairs)
        if not self.groups:
            raise ValueError("no pair has words on both sides: there is nothing to align")
        self.lexicon, self.flat = Lexicon.of(self.groups, self.numbers.width)
        self.alike = self.lexicon.alike(self.numbers)
        shapes = [(len(g.pairs), g.shape[0], g.shape[1] + 1) for g in self.groups]
        parts = np.split(self.flat, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        self.places = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def fit(self, model: WordAligner) -> list[float]:
        """EM: the log-likelihood before each iteration."""
        model.start(self)
        return [self.step(model) for _ in range(model.config.iterations)]

    def step(self, model: WordAligner) -> float:
        """One iteration of EM; gives log p(f | e) under the parameters before it."""
        found = self.expect(model)
        self.learn(model, found, [e.posterior for e in found])
        return sum(e.log_likelihood for e in found)

    def expect(self, model: WordAligner) -> list[Expectation]:
        """The E step of every group."""
        return [model.expect(self.lexicon.probability[places]) for places in self.places]

    def learn(
        self, model: WordAligner, found: Sequence[Expectation], posteriors: Sequence[Floats]
    ) -> None:
        """The M step, c(f, e) being the sums of ``posteriors``."""
        counts = np.bincount(
            self.flat,
            np.concatenate([posterior.ravel() for posterior in posteriors]),
            minlength=len(self.lexicon.keys),
        ).astype(np.float64, copy=False)
        extra = model.config.cognates * self.alike if model.config.cognates else None
        self.lexicon.learn(counts, model.config.concentration, extra)
        model.learn({lengths(e.posterior): e.moves for e in found})


def lengths(posterior: Floats) -> Lengths:
    """S and T of arrays (B, T, S + 1)."""
    return posterior.shape[2] - 1, posterior.shape[1]
