"""Feed-forward sub-layers: the same small network at every place."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.nn.dropout import Dropout


class FeedForward(Configurable, nn.Module):
    """W₂ f(W₁ x + b₁) + b₂ at every place."""

    class Config(BaseConfig, family="feed_forward"):
        """Which activation; dropout after it."""

        dropout: float = Field(0.0, ge=0, lt=1)

    def __init__(self, config: Config, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.config = config
        self.inner = nn.Linear(hidden_size, ffn_size)
        self.outer = nn.Linear(ffn_size, hidden_size)
        self.dropout = Dropout(config.dropout)

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        """The non-linearity f."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.outer(self.dropout(self.activate(self.inner(x))))


class ReLU(FeedForward):
    """max(0, x W₁ + b₁) W₂ + b₂ (Vaswani et al., 2017)."""

    class Config(FeedForward.Config, kind="relu"):
        pass

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.relu(x)


class GELU(FeedForward):
    """x Φ(x), Φ the normal distribution function (Hendrycks & Gimpel, 2016)."""

    class Config(FeedForward.Config, kind="gelu"):
        pass

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.gelu(x)


class SwiGLU(FeedForward):
    """W₂ (silu(W₁ x + b₁) ⊙ (V x + c)) + b₂ (Shazeer, 2020)."""

    class Config(FeedForward.Config, kind="swiglu"):
        pass

    def __init__(self, config: Config, hidden_size: int, ffn_size: int) -> None:
        super().__init__(config, hidden_size, ffn_size)
        self.gate = nn.Linear(hidden_size, ffn_size)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.outer(self.dropout(F.silu(self.inner(x)) * self.gate(x)))
