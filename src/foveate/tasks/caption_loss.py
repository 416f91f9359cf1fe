"""What captioning adds to cross-entropy: looking everywhere once, and drawing where to look.

doubly stochastic:  λ Σ_i (1 − Σ_t α_ti)²                          (Xu et al., 2015, eq. 14)
hard attention:     −Σ_t A_t log p(s_t)
                    A_t = Σ_{u ≥ t} [log p(y_u | drawn) − log p(y_u | expected)]

The baseline of hard attention is what the same words get when nothing is drawn; Xu et al. take a
moving average of rewards, which would be state outside of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foveate.nn.attention import Attention, Tap
from foveate.nn.choice import Choice
from foveate.tasks.base import Loss


@contextmanager
def watched(model: nn.Module, block: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the weights of attentions whose names end in ``block``, with their graph.

    `foveate.look.capture` is for looking and keeps no graph; this is for losses. A tap that was
    there goes on being called.
    """
    seen: dict[str, list[Tensor]] = {}

    def tap(name: str, before: Tap | None) -> Tap:
        def see(weights: Tensor) -> Tensor | None:
            replaced = None if before is None else before(weights)
            seen.setdefault(name, []).append(weights if replaced is None else replaced)
            return replaced

        return see

    parts = {
        name: cast(Attention, module)
        for name, module in model.named_modules()
        if name.endswith(block) and hasattr(module, "tap")
    }
    taps = {name: attention.tap for name, attention in parts.items()}
    for name, attention in parts.items():
        attention.tap = tap(name, taps[name])
    try:
        yield seen
    finally:
        for name, attention in parts.items():
            attention.tap = taps[name]


def doubly_stochastic(
    seen: dict[str, list[Tensor]], real: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Σ over pictures and places i of (1 − Σ_t α_ti)², the mean of heads and layers.

    ``seen`` holds weights (B, H, T, S) in pieces along T; ``real`` is false at padding.
    """
    parts = []
    for pieces in seen.values():
        weights = torch.cat(pieces, dim=2).float()
        looks = (weights * real[:, None, :, None]).sum(dim=2)  # (B, H, S)
        parts.append((1 - looks).square().sum(dim=2).mean(dim=1).sum())
    return torch.stack(parts).mean()


def steps_drawn(made: Sequence[Choice], steps: int) -> list[Choice]:
    """One choice for each of T steps, of all layers together.

    A recurrent decoder draws (B, 1) T times, a Transformer (B, T) in each of its layers.
    """
    drawn = torch.cat([choice.log_probability for choice in made], dim=1)
    each = drawn.unflatten(1, (-1, steps)).sum(dim=1)  # (B, L·T) -> (B, T)
    return [Choice(log_p) for log_p in each.unbind(dim=1)]


def advantage(
    drawn: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], real: Bool[Tensor, "B T"]
) -> Float[Tensor, "T B"]:
    """A_t: how much better the words from t on were for what was drawn."""
    gain = (drawn - expected) * real
    return gain.flip(1).cumsum(dim=1).flip(1).T


def add_regulariser(loss: Loss, cost: Tensor, weight: float) -> Loss:
    """The loss with λ times a cost, which is logged by itself."""
    return Loss(loss.total + weight * cost, loss.count, loss.logged | {"places": cost.detach()})
