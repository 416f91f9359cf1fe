"""Forced decoding: the log-probability of an output that is given."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def token_log_probabilities(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Log p(y_t | y_<t, x) of each given token."""
    picked = logits.gather(-1, target[..., None]).squeeze(-1)
    return picked.float() - logits.float().logsumexp(dim=-1)
