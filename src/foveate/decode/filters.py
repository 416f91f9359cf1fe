"""What is done to a distribution before a token is drawn from it: a chain of small steps.

Each maps scores (N, V) to scores, −∞ where a token may not be drawn; rows do not see each other.
Temperature comes before the cuts, as in `transformers` and vLLM, so that they cut what is drawn
from. A new filter is a class here and a field of `foveate.decode.sample.Sample.Config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

Scores = Float[Tensor, "N V"]


class Filter(Protocol):
    """One step of the chain; ``written`` (N, t) is what each text has got so far."""

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
