"""Sampling: temperature, top-k, top-p, min-p."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.search import Draw, Search, SingleSearch

Scores = Float[Tensor, "N V"]
BITS = 2**64 - 1


def mixed_bits(x: int) -> int:
    """Return splitmix64 of a number of 64 bits (Steele et al., 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & BITS
    return x ^ x >> 31


def uniform(*counters: int) -> float:
    """Return a number in [0, 1) that depends only on these numbers; same as ``engine/search.h``."""
    bits = 0
    for counter in counters:
        bits = mixed_bits((bits + counter) & BITS)
    return (bits >> 11) * 2.0**-53


def penalize_repetition(scores: Scores, written: Int[Tensor, "N t"], penalty: float) -> Scores:
    """Divide positive scores of tokens written before by r, and multiply negative ones by r.

    The prompt does not count as written (Keskar et al., 2019).
    """
    old = scores.gather(1, written)
    return scores.scatter(1, written, torch.where(old > 0, old / penalty, old * penalty))


def top_k(scores: Scores, k: int) -> Scores:
    """Keep the k most probable tokens, and those tied with the last (Fan et al., 2018)."""
    least = scores.topk(min(k, scores.shape[1]), dim=1).values[:, -1:]
    return scores.masked_fill(scores < least, -torch.inf)


def top_p(scores: Scores, p: float) -> Scores:
    """Keep the fewest tokens whose probabilities sum to p, the most probable first.

    This is nucleus sampling (Holtzman et al., 2020). There is always at least one.
    """
    ordered, indices = scores.sort(dim=1, descending=True, stable=True)
    odds = ordered.double().softmax(dim=1)
    cut = odds.cumsum(dim=1) - odds >= p  # mass of the more probable ones
    cut[:, 0] = False
    return scores.masked_fill(torch.empty_like(cut).scatter_(1, indices, cut), -torch.inf)


def min_p(scores: Scores, p: float) -> Scores:
    """Keep tokens at least p times as probable as the most probable one (Nguyen et al., 2024)."""
    if p == 0:
        return scores
    least = scores.amax(dim=1, keepdim=True) + math.log(p)
    return scores.masked_fill(scores < least, -torch.inf)


class Sample(SingleSearch):
    """Draws each token from the model's distribution after filters.

        y = min {v : Σ_{w ≤ v} p(w) > u},  u uniform in [0, 1)

    u is a function of the seed, the number of the source, the position and that of the output, so
    that outputs depend on neither the batch nor the engine.
    """

    class Config(Search.Config, kind="sample"):
        """Outputs are returned with the most probable first."""

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
        num_samples: int = Field(1, ge=1, le=10_000)  # outputs that are drawn for each source

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.width = self.groups = config.num_samples

    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        scores = self.filtered(logits.float(), written)
        below = scores.double().softmax(dim=1).cumsum(dim=1)  # (N, V) mass up to each token
        seed, position = self.config.seed, written.shape[1]
        drawn = below.new_tensor([uniform(seed, row, position, which) for row, which in draws])
        drawn = drawn[:, None] * below[:, -1:]
        return torch.searchsorted(below, drawn, right=True).squeeze(1).clamp(max=below.shape[1] - 1)

    def filtered(self, scores: Scores, written: Int[Tensor, "N t"]) -> Scores:
        """Return the logits after all filters; ``written`` (N, t) are the tokens so far."""
        config = self.config
        if config.repetition_penalty != 1:
            scores = penalize_repetition(scores, written, config.repetition_penalty)
        if config.temperature != 1:
            scores = scores / config.temperature
        if config.top_k is not None:
            scores = top_k(scores, config.top_k)
        if config.top_p is not None:
            scores = top_p(scores, config.top_p)
        if config.min_p is not None:
            scores = min_p(scores, config.min_p)
        return scores
