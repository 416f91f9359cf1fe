"""Sampling: temperature, top-k, top-p, min-p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.search import Draw, Hypothesis, Search, SingleSearch

Scores = Float[Tensor, "N V"]


class Filter(Protocol):
    """One step of the chain; ``written`` (N, t) are the tokens of each output so far."""

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores: ...


@dataclass(frozen=True)
class RepetitionPenalty:
    """Scores of tokens written before are divided by r if positive, multiplied if negative
    (Keskar et al., 2019). The prompt does not count as written.
    """

    penalty: float

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        old = scores.gather(1, written)
        new = torch.where(old > 0, old / self.penalty, old * self.penalty)
        return scores.scatter(1, written, new)


@dataclass(frozen=True)
class Temperature:
    """z / τ: below 1 the distribution is sharper, above it flatter."""

    temperature: float

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        return scores / self.temperature


@dataclass(frozen=True)
class TopK:
    """The k most probable tokens, and those as probable as the last of them (Fan et al., 2018)."""

    k: int

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        least = scores.topk(min(self.k, scores.shape[1]), dim=1).values[:, -1:]
        return scores.masked_fill(scores < least, -torch.inf)


@dataclass(frozen=True)
class TopP:
    """The fewest tokens whose probabilities sum to p, the most probable first
    (nucleus sampling; Holtzman et al., 2020). One is always left.
    """

    p: float

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        odds = ordered.softmax(dim=1)
        before = odds.cumsum(dim=1) - odds  # the mass of the more probable ones
        cut = before >= self.p
        cut[:, 0] = False
        return scores.masked_fill(torch.empty_like(cut).scatter_(1, order, cut), -torch.inf)


@dataclass(frozen=True)
class MinP:
    """Tokens at least p times as probable as the most probable one (Nguyen et al., 2024)."""

    p: float

    def __call__(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        odds = scores.softmax(dim=1)
        return scores.masked_fill(odds < self.p * odds.amax(dim=1, keepdim=True), -torch.inf)


class Sample(SingleSearch):
    """Draws each token from the model's distribution after filters.

        y = min {v : Σ_{w ≤ v} p(w) > u},  u uniform in [0, 1)

    u is a function of the seed, the number of the source, the step and the number of the output, so
    that outputs do not depend on the batch.
    """

    class Config(Search.Config, kind="sample"):
        """``top_k``, ``top_p`` and ``min_p`` filter tokens where they are set.

        ``num_samples`` outputs of each source are drawn, and given with the most probable first.
        """

        temperature: float = Field(1.0, gt=0)
        """Divides the logits; below 1 the likely tokens become likelier."""
        top_k: int | None = Field(None, gt=0)  # choose among the k likeliest tokens
        top_p: float | None = Field(None, gt=0, le=1)
        """Choose among the likeliest tokens that together have this probability."""
        min_p: float | None = Field(None, ge=0, le=1)
        """Leave out tokens below this share of the likeliest one's probability."""
        repetition_penalty: float = Field(1.0, gt=0)
        """Divides the scores of tokens that occurred already; 1: none."""
        seed: int = Field(0, ge=0)  # of the random numbers
        num_samples: int = Field(1, ge=1)  # outputs that are drawn for each source

        def giving(self, count: int) -> Sample.Config:
            return self if count <= self.num_samples else self.like(self, num_samples=count)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.filters = chain(config)

    @property
    def width(self) -> int:
        return self.config.num_samples

    def posterior(self, hypotheses: Sequence[Hypothesis]) -> list[float]:
        """1 / N for each of N draws: an output counts as often as it was drawn."""
        return [1 / len(hypotheses) for _ in hypotheses]

    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        scores = logits.float()
        for step in self.filters:
            scores = step(scores, written)
        below = scores.double().softmax(dim=1).cumsum(dim=1)  # (N, V) mass up to each token
        drawn = torch.tensor([self._uniform(draw, written.shape[1]) for draw in draws])
        drawn = drawn.to(below)[:, None] * below[:, -1:]
        return torch.searchsorted(below, drawn, right=True).squeeze(1).clamp(max=below.shape[1] - 1)

    def _uniform(self, draw: Draw, step: int) -> float:
        row, which = draw
        return float(np.random.default_rng((self.config.seed, row, step, which)).random())


def chain(config: Sample.Config) -> list[Filter]:
    """The filters of a config, in the order in which they are applied."""
    chosen: list[Filter] = []
    if config.repetition_penalty != 1:
        chosen.append(RepetitionPenalty(config.repetition_penalty))
    if config.temperature != 1:
        chosen.append(Temperature(config.temperature))
    chosen += [TopK(config.top_k)] if config.top_k is not None else []
    chosen += [TopP(config.top_p)] if config.top_p is not None else []
    chosen += [MinP(config.min_p)] if config.min_p is not None else []
    return chosen
