"""Normalisation of hidden vectors."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable


class Norm(Configurable, nn.Module):
    """Brings each hidden vector (…, D) to a common scale."""

    class Config(BaseConfig, family="norm"):
        """Which norm, and its ε."""

        eps: float = 1e-5

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        raise NotImplementedError


class LayerNorm(Norm):
    """γ (x − mean x) / √(var x + ε) + β (Ba et al., 2016)."""

    class Config(Norm.Config, kind="layer_norm"):
        pass

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.norm(x)


class RMSNorm(Norm):
    """γ x / √(mean x² + ε) (Zhang & Sennrich, 2019)."""

    class Config(Norm.Config, kind="rms_norm"):
        pass

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.RMSNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.norm(x)
