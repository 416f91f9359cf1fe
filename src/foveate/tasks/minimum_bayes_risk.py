"""Minimum Bayes risk: not the most probable output, but the one most like all probable ones.

    ŷ = argmax_{y ∈ C} Σ_{y' ∈ C} w(y') u(y, y')

C are outputs that another search finds: draws from the model, where each weighs the same (Eikema &
Aziz, 2020), or an n-best list, where each weighs its probability (Kumar & Byrne, 2004). The
utility u compares texts, which is why this search stands here and not in `foveate.decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import pydantic

from foveate.decode.constrained import Constrained
from foveate.decode.sample import Sample
from foveate.decode.steps import Hypothesis, Search
from foveate.tasks.metrics import LOWER_IS_BETTER, METRICS, known_metrics


class MinimumBayesRisk(Search):
    """Outputs of another search, ordered by their expected utility, which is then their score."""

    class Config(Search.Config, kind="minimum_bayes_risk"):
        """``candidates`` finds C; its limits of length and rules are those said here.

        ``utility`` is a metric by name (sentence chrF unless told); one of errors is turned round.
        """

        candidates: Search.Config = Sample.Config(num_samples=32)
        utility: str = "chrf"

        @pydantic.field_validator("utility")
        @classmethod
        def _known(cls, name: str) -> str:
            return known_metrics((name,))[0]

        @pydantic.model_validator(mode="after")
        def _said_once(self) -> Self:
            plain = Search.Config()
            for name in Search.Config.model_fields:
                said = getattr(self.candidates, name)
                if said not in (getattr(plain, name), getattr(self, name)):
                    raise ValueError(f"say {name} of the search itself, not of its candidates")
            return self

        def giving(self, count: int) -> Search.Config:
            return self.like(self, candidates=self.candidates.giving(count))

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.candidates: Search = config.candidates.build()

    @property
    def width(self) -> int:
        return self.candidates.width

    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        candidates = self.candidates
        if self.listener is not None:
            candidates = candidates.watched(self.listener)
        return candidates.find(steps, limits, start, end, rows)

    def posterior(self, found: Sequence[Hypothesis]) -> list[float]:
        return self.candidates.posterior(found)

    def decide(self, found: list[Hypothesis], text: Callable[[list[int]], str]) -> list[Hypothesis]:
        """The distinct texts among the candidates, the one of least risk first."""
        first: dict[str, Hypothesis] = {}
        weight: dict[str, float] = {}
        for one, w in zip(found, self.posterior(found), strict=True):
            written = text(one.ids)
            first.setdefault(written, one)
            weight[written] = weight.get(written, 0.0) + w
        scored = [replace(one, score=self.expected(y, weight)) for y, one in first.items()]
        return sorted(scored, key=lambda one: -one.score)

    def expected(self, output: str, weight: dict[str, float]) -> float:
        """Σ_y' w(y') u(output, y') over texts and their weights."""
        return sum(w * self.utility(output, other) for other, w in weight.items())

    def utility(self, output: str, reference: str) -> float:
        """How good a text is when another is right: u, a figure of `foveate.tasks.metrics`."""
        name = self.config.utility
        figure, _ = METRICS[name]([output], [reference])
        return -figure if name in LOWER_IS_BETTER else figure
