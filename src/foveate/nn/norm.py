"""Normalization layers: LayerNorm, RMSNorm, and the normalization of windows of a series."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable


class Norm(Configurable, nn.Module):
    """Brings each hidden vector (…, D) to a common scale."""

    class Config(BaseConfig, family="norm"):
        """Which norm, and its ε."""

        eps: float = 1e-5  # added to the variance

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


# ------------------------------------------------------------------------------------- window norm
# Normalising each window by its own look-back, undone on the forecast.
#
# What a model reads is then alike whether the series stands high or low. Does not live here: the
# scaling of a whole series by its training rows (`foveate.data.series`).

Statistics = tuple[Tensor, Tensor]  # shift and scale, (B, 1, C) each


class WindowNorm(Configurable, nn.Module):
    """z = (x − shift) / scale, both taken from the look-back of the window; y = scale z + shift."""

    class Config(BaseConfig, family="window_norm"):
        """Which shift and scale."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        """Shift and scale of each window and channel."""
        raise NotImplementedError

    def enter(self, values: Float[Tensor, "B T C"], of: Statistics) -> Float[Tensor, "B T C"]:
        """What the model reads."""
        shift, scale = of
        return (values - shift) / scale

    def leave(self, values: Float[Tensor, "B T C Q"], of: Statistics) -> Float[Tensor, "B T C Q"]:
        """What the model says, on the scale of its input."""
        shift, scale = of
        return values * scale[..., None] + shift[..., None]


class NoWindowNorm(WindowNorm):
    """Windows as they are."""

    class Config(WindowNorm.Config, kind="none"):
        pass

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return torch.zeros_like(last), torch.ones_like(last)


class LastValue(WindowNorm):
    """Minus the last value (NLinear: Zeng et al., 2023)."""

    class Config(WindowNorm.Config, kind="last_value"):
        pass

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return last, torch.ones_like(last)


class Instance(WindowNorm):
    """Mean 0 and variance 1 (RevIN: Kim et al., 2022, without its learnt affine map)."""

    class Config(WindowNorm.Config, kind="instance"):
        eps: float = 1e-5  # added to the variance

    config: Config

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        variance = values.var(dim=1, keepdim=True, correction=0)
        return values.mean(dim=1, keepdim=True), (variance + self.config.eps).sqrt()
