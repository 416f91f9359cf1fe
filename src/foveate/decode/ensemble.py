"""Several models that decode together: the mean of what they say of the next token.

    p(v | y_<t, x) = 1/M Σ_m p_m(v | y_<t, x)
    log p = log Σ_m exp(log p_m) − log M             so that nothing underflows

The members read the same tokens. Lives here: the equation, for steps and for whole sequences. Does
not live here: which models go together (`foveate.tasks.ensemble`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.steps import Steps, device_of


def log_mean_p(logits: Sequence[Float[Tensor, "*B V"]]) -> Float[Tensor, "*B V"]:
    """Log of the mean of softmax(logits) over the members (Sutskever et al., 2014, decode so)."""
    log_p = torch.stack([one.float().log_softmax(dim=-1) for one in logits])
    return log_p.logsumexp(dim=0) - math.log(len(logits))


class EnsembleSteps:
    """Steps of several models over the same sources, hypothesis by hypothesis."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members, self.device = list(members), device_of(members[0])

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Log of the members' mean p of each next token."""
        return log_mean_p([member.step(ids) for member in self.members])

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``, in every member."""
        for member in self.members:
            member.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        for member in self.members:
            member.select(sources)
