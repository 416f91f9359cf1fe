"""Losses of attention: REINFORCE for choices that are drawn, and penalties on the weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.attention import BaseAttention, Tap
from foveate.nn.normalizers import HardChoice
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy, Objective

# REINFORCE: the gradient of an expected reward through choices that have no gradient themselves.
#
# ∇ E[R] ≈ Σ_t (R_t − b_t) ∇ log π(choice_t)      (Williams, 1992)


class Reinforce(CrossEntropy):
    """Cross-entropy for what is computed, REINFORCE for what is drawn, squares for the baseline:
    NLL − λ Σ_t (R_t − b_t) log π_t + Σ_t (R_t − b_t)² (Mnih et al., 2014; Xu et al., 2015).
    """

    class Config(CrossEntropy.Config, kind="reinforce"):
        """``weight`` is λ."""

        label_smoothing: float = Field(0.0, ge=0, lt=1)
        """Share of the probability that is spread evenly over all answers."""
        weight: float = Field(1.0, gt=0)  # of the policy gradient in the loss

    config: Config


def add_choices(
    loss: Loss,
    made: Sequence[HardChoice],
    reward: Float[Tensor, "B"] | Float[Tensor, "T B"],
    objective: Objective,
) -> Loss:
    """The loss with what T choices cost; ``reward`` R of each row, or of each choice of each row.

    Raises `UserError` where a model chooses and the objective would not train it to.
    """
    if not made:
        return loss
    if not isinstance(objective, Reinforce):
        raise UserError(
            "the model draws where to look, and cross-entropy alone cannot train that: "
            'write [objective] kind = "reinforce"'
        )
    log_p = torch.stack([choice.log_probability.float() for choice in made])  # (T, B)
    reward = reward.detach().float().expand_as(log_p)
    advantage = reward
    total = loss.total
    baselines = [choice.baseline.float() for choice in made if choice.baseline is not None]
    if baselines:
        expected = torch.stack(baselines)
        advantage = reward - expected.detach()
        total = total + (reward - expected).square().mean(dim=0).sum()
    drawn = objective.config.weight * (advantage * log_p).sum()
    return Loss(total - drawn, loss.count, loss.logged | {"reward": reward.mean(dim=0).sum()})


# What captioning adds to cross-entropy: looking everywhere once, and drawing where to look.
#
# doubly stochastic:  λ Σ_i (1 − Σ_t α_ti)²                          (Xu et al., 2015, eq. 14)
# hard attention:     −Σ_t A_t log p(s_t)
#                     A_t = Σ_{u ≥ t} [log p(y_u | drawn) − log p(y_u | expected)]
#
# The baseline of hard attention is what the same words get when nothing is drawn; Xu et al. take a
# moving average of rewards, which would be state outside of the model.


def attentions(model: nn.Module, block: str) -> list[BaseAttention]:
    """The attentions of a model whose names end in ``block``, in the order of their layers."""
    return [
        module
        for name, module in model.named_modules()
        if isinstance(module, BaseAttention) and name.endswith(block)
    ]


@contextmanager
def watched(layers: Sequence[BaseAttention]) -> Iterator[list[list[Tensor]]]:
    """Collect the weights (B, H, T, S) that each attention forms, call by call, with their graph.

    `foveate.look.records` is for looking and keeps no graph; this is for losses. A tap that was
    there goes on being called.
    """
    weights: list[list[Tensor]] = [[] for _ in layers]
    taps = [layer.tap for layer in layers]

    def watching(before: Tap | None, calls: list[Tensor]) -> Tap:
        def tap(formed: Tensor) -> Tensor | None:
            replaced = None if before is None else before(formed)
            calls.append(formed if replaced is None else replaced)
            return replaced

        return tap

    for layer, before, calls in zip(layers, taps, weights, strict=True):
        layer.tap = watching(before, calls)
    try:
        yield weights
    finally:
        for layer, before in zip(layers, taps, strict=True):
            layer.tap = before


def doubly_stochastic(
    layers: Sequence[list[Tensor]], target_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Σ over pictures and positions i of (1 − Σ_t α_ti)², the mean of heads and layers.

    ``layers`` hold weights (B, H, T, S) in pieces along T; ``target_mask`` is false at padding.
    """
    parts = []
    for pieces in layers:
        weights = torch.cat(pieces, dim=2).float()
        looks = (weights * target_mask[:, None, :, None]).sum(dim=2)  # (B, H, S)
        parts.append((1 - looks).square().sum(dim=2).mean(dim=1).sum())
    return torch.stack(parts).mean()


def drawn_by_position(made: Sequence[HardChoice], length: int) -> list[HardChoice]:
    """One choice for each of T positions, of all layers together.

    A recurrent decoder draws (B, 1) T times, a Transformer (B, T) in each of its layers.
    """
    drawn = torch.cat([choice.log_probability for choice in made], dim=1)
    each = drawn.unflatten(1, (-1, length)).sum(dim=1)  # (B, L·T) -> (B, T)
    return [HardChoice(log_p) for log_p in each.unbind(dim=1)]


def advantage(
    drawn: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], target_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "T B"]:
    """A_t: how much better the words from t on were for what was drawn."""
    return ((drawn - expected) * target_mask).flip(1).cumsum(dim=1).flip(1).T
