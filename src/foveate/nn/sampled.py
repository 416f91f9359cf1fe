"""Hard attention: one key is drawn in place of a weighted mean of all (Xu et al., 2015)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.nn.choice import Choice, Chooser
from foveate.nn.normalizer import Normalizer


class Sampled(Normalizer, Chooser):
    """s ~ softmax(e): weight 1 for the key drawn, 0 for the rest; softmax where nobody listens.

    While it is trained (objective "reinforce") a query keeps the expectation with probability
    ``expected``, which lowers the variance and keeps training near to use (Xu et al., 2015).
    """

    class Config(Normalizer.Config, kind="sampled"):
        expected: float = Field(0.5, ge=0, lt=1)

    config: Config

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        weights = scores.softmax(dim=-1)
        if self.listener is None:
            return weights
        drawn = torch.multinomial(weights.detach().float().flatten(0, -2), 1).view(
            *weights.shape[:-1], 1
        )
        log_p = scores.float().log_softmax(dim=-1).gather(-1, drawn).squeeze(-1)  # (B, H, T)
        keeps = torch.rand(log_p.shape, device=log_p.device) < self.config.expected
        self.listener(Choice(log_p.masked_fill(keeps, 0.0).sum(dim=1)))  # of all heads: (B, T)
        hard = F.one_hot(drawn.squeeze(-1), weights.shape[-1]).to(weights.dtype)
        return torch.where(keeps[..., None], weights, hard)
