"""Sampling: y_t ~ p(y | y_<t, x), after filters; the same seed draws the same texts.

Every output has random numbers of its own, a function of (seed, number of its source, step, which
of the source's outputs it is): what stands beside it in a batch does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.filters import Filter, MinP, RepetitionPenalty, Temperature, TopK, TopP
from foveate.decode.single import Draw, SingleSearch
from foveate.decode.steps import Hypothesis, Search


class Sample(SingleSearch):
    """Draws each token from what the filters leave of the model's distribution.

    y = min {v : Σ_{w ≤ v} p(w) > u},  u uniform in [0, 1)
    """

    class Config(Search.Config, kind="sample"):
        """``top_k``, ``top_p``, ``min_p``: what is cut off; absent, nothing is.

        ``num_samples`` outputs of each source are drawn, the most probable first among them.
        """

        temperature: float = Field(1.0, gt=0)
        top_k: int | None = Field(None, gt=0)
        top_p: float | None = Field(None, gt=0, le=1)
        min_p: float | None = Field(None, ge=0, le=1)
        repetition_penalty: float = Field(1.0, gt=0)
        seed: int = Field(0, ge=0)
        num_samples: int = Field(1, ge=1)

        def giving(self, count: int) -> Sample.Config:
            return self.like(self, num_samples=max(count, self.num_samples))

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.filters = chain(config)

    @property
    def width(self) -> int:
        return self.config.num_samples

    def posterior(self, found: Sequence[Hypothesis]) -> list[float]:
        """1 / N for each of N draws: an output counts as often as it was drawn."""
        return [1 / len(found) for _ in found]

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
