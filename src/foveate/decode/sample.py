"""Sampling: y_t ~ p(y | y_<t, x), after filters; the same seed draws the same texts.

Every source has random numbers of its own, a function of (seed, its number, step): what stands
beside it in a batch does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.filters import Filter, MinP, RepetitionPenalty, Temperature, TopK, TopP
from foveate.decode.single import SingleSearch
from foveate.decode.steps import Search


class Sample(SingleSearch):
    """Draws each token from what the filters leave of the model's distribution.

    y = min {v : Σ_{w ≤ v} p(w) > u},  u uniform in [0, 1)
    """

    class Config(Search.Config, kind="sample"):
        """``top_k``, ``top_p``, ``min_p``: what is cut off; absent, nothing is."""

        temperature: float = Field(1.0, gt=0)
        top_k: int | None = Field(None, gt=0)
        top_p: float | None = Field(None, gt=0, le=1)
        min_p: float | None = Field(None, ge=0, le=1)
        repetition_penalty: float = Field(1.0, gt=0)
        seed: int = Field(0, ge=0)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.filters = chain(config)

    def choose(
        self, logits: Float[Tensor, "M V"], written: Int[Tensor, "M t"], rows: Sequence[int]
    ) -> Int[Tensor, "M"]:
        scores = logits.float()
        for step in self.filters:
            scores = step(scores, written)
        below = scores.double().softmax(dim=1).cumsum(dim=1)  # (M, V) mass up to each token
        drawn = torch.tensor([self._uniform(row, written.shape[1]) for row in rows])
        drawn = drawn.to(below)[:, None] * below[:, -1:]
        return torch.searchsorted(below, drawn, right=True).squeeze(1).clamp(max=below.shape[1] - 1)

    def _uniform(self, row: int, step: int) -> float:
        return float(np.random.default_rng((self.config.seed, row, step)).random())


def chain(config: Sample.Config) -> list[Filter]:
    """The filters of a config, in the order in which they work."""
    chosen: list[Filter] = []
    if config.repetition_penalty != 1:
        chosen.append(RepetitionPenalty(config.repetition_penalty))
    if config.temperature != 1:
        chosen.append(Temperature(config.temperature))
    chosen += [TopK(config.top_k)] if config.top_k is not None else []
    chosen += [TopP(config.top_p)] if config.top_p is not None else []
    chosen += [MinP(config.min_p)] if config.min_p is not None else []
    return chosen
