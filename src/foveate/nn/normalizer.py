"""Normalisers: scores over keys become weights that sum to 1. A new one is one class here."""

from __future__ import annotations

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable


class Normalizer(Configurable, nn.Module):
    """Scores (…, S), −∞ where masked, to weights (…, S) that sum to 1 and are 0 where masked."""

    class Config(BaseConfig, family="normalizer"):
        """Which normaliser, and what it needs."""

    fusable = False  # whether scaled_dot_product_attention computes the same

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        raise NotImplementedError


class Softmax(Normalizer):
    """exp(e_i / τ) / Σ_j exp(e_j / τ), τ the temperature."""

    class Config(Normalizer.Config, kind="softmax"):
        temperature: float = Field(1.0, gt=0)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.fusable = config.temperature == 1.0

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        if self.config.temperature != 1.0:
            scores = scores / self.config.temperature
        return scores.softmax(dim=-1)
