"""Normalizers besides the softmax: one weight of 1, sparse weights, and a choice by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.linear import single
from foveate.nn.scores import Normalizer


class Hardmax(Normalizer, kind="hardmax"):
    """1 at the highest score, the first among equals, and 0 elsewhere.

    Its gradient is that of softmax(e), since its own is 0 (straight-through estimator;
    Bengio et al., 2013).
    """

    equation = "α_i = [i = argmax_j e_j]"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        soft = scores.softmax(dim=-1)
        hard = torch.zeros_like(soft).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1)
        return hard + (soft - soft.detach())


class Sparsemax(Normalizer, kind="sparsemax"):
    """[e − τ]₊ with τ such that the weights sum to 1: the point of the simplex nearest to e
    (Martins & Astudillo, 2016).
    """

    equation = "α_i = [e_i − τ]₊, τ such that Σ_i α_i = 1"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores)
        ordered, rank = _ordered(z)
        sums = ordered.cumsum(dim=-1)
        support = (1 + rank * ordered > sums).sum(dim=-1, keepdim=True)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        weights = (z - threshold).clamp(min=0)
        slope = (weights > 0).to(weights.dtype)
        return _with_slope(scores, weights, slope)


class Entmax15(Normalizer, kind="entmax15"):
    """[e/2 − τ]₊² with τ such that the weights sum to 1: half-way from softmax to sparsemax
    (Peters, Niculae & Martins, 2019; their exact algorithm by sorting).
    """

    equation = "α_i = [e_i / 2 − τ]₊², τ such that Σ_i α_i = 1"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores) / 2
        ordered, rank = _ordered(z)
        mean = ordered.cumsum(dim=-1) / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()  # Σ (z − mean)²
        thresholds = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        support = (thresholds <= ordered).sum(dim=-1, keepdim=True)
        root = (z - thresholds.gather(-1, support - 1)).clamp(min=0)
        return _with_slope(scores, root.square(), root)


def _with_slope(scores: Tensor, weights: Tensor, slope: Tensor) -> Tensor:
    """Return the weights p, computed without a graph, with the Jacobian of the entmax family:
    ∂p/∂e = diag(s) − s sᵀ / Σs, where s is p^(2 − α) (Peters, Niculae & Martins, 2019).

    It is that of a term which is 0, as it is linear in e minus itself.
    """
    zeros = single((scores - scores.detach()).masked_fill(scores.isneginf(), 0))
    shares = zeros / slope.sum(dim=-1, keepdim=True) * slope
    return weights + zeros * slope - slope * shares.sum(dim=-1, keepdim=True)


def _below_top(scores: Tensor) -> Tensor:
    """Return scores minus the highest, without a graph, at least −4, which keeps sums finite.

    The weight of a score 1 below the highest is 0 in sparsemax, of one 2 below in entmax-1.5.
    """
    scores = single(scores.detach())
    return (scores - scores.amax(dim=-1, keepdim=True)).clamp(min=-4)


def _ordered(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores from high to low, and 1, 2, … S."""
    ordered = z.sort(dim=-1, descending=True).values
    return ordered, torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)


@dataclass(frozen=True)
class HardChoice:
    """A sampled choice for each row, for REINFORCE.

    ``log_probability`` is log p of the choice under the policy, (B,), or (B, T) if T steps are
    sampled at once. ``baseline`` (B,) is the reward that the model predicted; None without one.
    """

    log_probability: Tensor
    baseline: Tensor | None = None


class Chooser:
    """A module with a stochastic choice: a key of hard attention, the position of a glimpse.

    Without a ``listener`` it computes the expectation, so that validation and use are
    deterministic. With one (`choices`) it samples, and calls the listener with each choice.
    """

    listener: Callable[[HardChoice], None] | None = None


@contextmanager
def choices(model: nn.Module) -> Iterator[list[HardChoice]]:
    """Let every `Chooser` of a model sample, and collect the choices in order.

    with choices(model) as sampled:
        scores = model(pixels)
    sampled[0].log_probability
    """
    sampled: list[HardChoice] = []
    choosers = [module for module in model.modules() if isinstance(module, Chooser)]
    before = [chooser.listener for chooser in choosers]
    for chooser in choosers:
        chooser.listener = sampled.append
    try:
        yield sampled
    finally:
        for chooser, listener in zip(choosers, before, strict=True):
            chooser.listener = listener


class Sampled(Normalizer, Chooser):
    """Hard attention: s ~ softmax(e) has weight 1 and the rest 0; softmax without a listener.

    In training (objective "reinforce") a query keeps the expectation with probability
    ``expected``, which lowers the variance (Xu et al., 2015).
    """

    class Config(Normalizer.Config, kind="sampled"):
        expected: float = Field(0.5, ge=0, lt=1)
        """probability that training uses the expectation."""

    config: Config
    equation = "α_i = exp(e_i) / Σ_j exp(e_j)"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        weights = scores.softmax(dim=-1)
        if self.listener is None:
            return weights
        drawn = torch.multinomial(weights.detach().float().flatten(0, -2), 1).view(
            *weights.shape[:-1], 1
        )
        log_p = scores.float().log_softmax(dim=-1).gather(-1, drawn).squeeze(-1)  # (B, H, T)
        keeps = torch.rand(log_p.shape, device=log_p.device) < self.config.expected
        self.listener(HardChoice(log_p.masked_fill(keeps, 0.0).sum(dim=1)))  # all heads: (B, T)
        hard = F.one_hot(drawn.squeeze(-1), weights.shape[-1]).to(weights.dtype)
        return torch.where(keeps[..., None], weights, hard)
