"""What is minimised: cross-entropy of the next token under teacher forcing, smoothed."""

from __future__ import annotations

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.nn.cross_entropy import linear_cross_entropy
from foveate.tasks.base import Loss


class Objective(Configurable):
    """NLL = −Σ_t log p(y_t | y_<t), with the labels y_ls = (1 − α) y_hot + α/V (Szegedy, 2016)."""

    class Config(BaseConfig):
        """``label_smoothing`` is α."""

        label_smoothing: float = Field(0.1, ge=0, lt=1)

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(
        self,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        target: Int[Tensor, "N"],
    ) -> Loss:
        """The loss of N targets, the logits being W h."""
        total, nll = linear_cross_entropy(hidden, weight, target, self.config.label_smoothing)
        return Loss(total, len(target), {"nll": nll})
