"""REINFORCE: the gradient of an expected reward through choices that have no gradient themselves.

∇ E[R] ≈ Σ_t (R_t − b_t) ∇ log π(choice_t)      (Williams, 1992)

Lives here: the objective, and adding to a loss what choices cost. The choices come from
`foveate.nn.choice`, the reward from the task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.nn.choice import Choice
from foveate.tasks.base import Loss
from foveate.tasks.objective import CrossEntropy, Objective


class Reinforce(CrossEntropy):
    """Cross-entropy for what is computed, REINFORCE for what is drawn, squares for the baseline:
    NLL − λ Σ_t (R_t − b_t) log π_t + Σ_t (R_t − b_t)² (Mnih et al., 2014; Xu et al., 2015).
    """

    class Config(CrossEntropy.Config, kind="reinforce"):
        """``weight`` is λ."""

        label_smoothing: float = Field(0.0, ge=0, lt=1)
        weight: float = Field(1.0, gt=0)

    config: Config


def add_choices(
    loss: Loss,
    made: Sequence[Choice],
    reward: Float[Tensor, "B"] | Float[Tensor, "T B"],
    objective: Objective,
) -> Loss:
    """The loss with what T choices cost; ``reward`` R of each row, or of each choice of each row.

    Raises ``ValueError`` where a model chooses and the objective would not train it to.
    """
    if not made:
        return loss
    if not isinstance(objective, Reinforce):
        raise ValueError(
            "the model draws where to look, and cross-entropy alone cannot train that: "
            'write [objective] kind = "reinforce"'
        )
    log_p = torch.stack([choice.log_probability.float() for choice in made])  # (T, B)
    reward = reward.detach().float().expand_as(log_p)
    advantage = reward
    total = loss.total
    if made[0].baseline is not None:
        expected = torch.stack([_baseline(choice) for choice in made])
        advantage = reward - expected.detach()
        total = total + (reward - expected).square().mean(dim=0).sum()
    drawn = objective.config.weight * (advantage * log_p).sum()
    logged = loss.logged | {"reward": reward.mean(dim=0).sum()}
    return Loss(total - drawn, loss.count, logged)


def _baseline(choice: Choice) -> Tensor:
    assert choice.baseline is not None
    return choice.baseline.float()
