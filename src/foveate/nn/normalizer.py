"""Normalisers: scores over keys become weights that sum to 1. A new one is one class here."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.nn.single import single


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


class Hardmax(Normalizer):
    """1 at the highest score, 0 elsewhere; of equals the first.

    The equation has no gradient, so that of softmax(e) is passed on instead (straight-through;
    Bengio et al., 2013).
    """

    class Config(Normalizer.Config, kind="hardmax"):
        pass

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        soft = scores.softmax(dim=-1)
        hard = torch.zeros_like(soft).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1)
        return hard + (soft - soft.detach())


class Sparsemax(Normalizer):
    """[e − τ]₊ with τ such that the weights sum to 1: the point of the simplex that is nearest to
    the scores (Martins & Astudillo, 2016).
    """

    class Config(Normalizer.Config, kind="sparsemax"):
        pass

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores)
        ordered, rank = _ordered(z)
        sums = ordered.cumsum(dim=-1)
        support = (1 + rank * ordered > sums).sum(dim=-1, keepdim=True)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        weights = (z - threshold).clamp(min=0)
        slope = (weights > 0).to(weights.dtype)
        return _Given.apply(scores, weights, slope)  # type: ignore[no-untyped-call]


class Entmax15(Normalizer):
    """[e/2 − τ]₊² with τ such that the weights sum to 1: half-way from softmax to sparsemax
    (Peters, Niculae & Martins, 2019; their exact algorithm by sorting).
    """

    class Config(Normalizer.Config, kind="entmax15"):
        pass

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores) / 2
        ordered, rank = _ordered(z)
        mean = ordered.cumsum(dim=-1) / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()  # Σ (z − mean)²
        thresholds = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        support = (thresholds <= ordered).sum(dim=-1, keepdim=True)
        root = (z - thresholds.gather(-1, support - 1)).clamp(min=0)
        return _Given.apply(scores, root.square(), root)  # type: ignore[no-untyped-call]


class _Given(torch.autograd.Function):
    """Weights p that were found without a graph, with the Jacobian of the entmax family:
    ∂p/∂e = diag(s) − s sᵀ / Σs, where s is p^(2 − α) (Peters, Niculae & Martins, 2019).
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.dtype = scores.dtype
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        change = grads[0] * slope
        change = change - slope * change.sum(dim=-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return change.to(ctx.dtype), None, None


def _below_top(scores: Tensor) -> Tensor:
    """Scores counted from the highest, without a graph; those that can get no weight are cut.

    Sparsemax gives nothing to a score 1 below the highest, entmax-1.5 to one 2 below it: −∞ may
    stand as −4, which keeps sums finite.
    """
    scores = single(scores.detach())
    return (scores - scores.amax(dim=-1, keepdim=True)).clamp(min=-4)


def _ordered(z: Tensor) -> tuple[Tensor, Tensor]:
    """The scores from high to low, and 1, 2, … S."""
    ordered = z.sort(dim=-1, descending=True).values
    return ordered, torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
