"""Scores and logits that stay within a cap, by a tanh (Gemma 2)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.scores import Key, Query, Score, Scores


class SoftCapped(Score):
    """c tanh(qᵀk / (c √K)): close to qᵀk / √K where that is small, never beyond ±c (Gemma Team,
    2024: Gemma 2).
    """

    class Config(Score.Config, kind="soft_capped"):
        cap: float = Field(50.0, gt=0)  # c, which no score exceeds

    config: Config

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.divisor = config.cap * math.sqrt(head_size)
        self.equation = f"e_i = {config.cap:.6g} tanh(q · k_i / ({config.cap:.6g} √K))"

    def forward(self, query: Query, key: Key) -> Scores:
        return self.config.cap * torch.tanh((query / self.divisor) @ key.mT)


class CappedLinear(nn.Linear):
    """c tanh(y / c), y = W x + b: logits that never exceed ±c (Gemma 2)."""

    def __init__(self, size: int, output_size: int, bias: bool, cap: float) -> None:
        super().__init__(size, output_size, bias)
        self.cap = cap

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.cap * torch.tanh(super().forward(x) / self.cap)
