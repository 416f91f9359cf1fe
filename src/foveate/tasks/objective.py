"""What is minimised. A new objective is one class here, or in a file of its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.nn.cross_entropy import linear_cross_entropy
from foveate.tasks.base import Loss
from foveate.tasks.teacher_forcing import Always, TeacherForcing


class Objective(Configurable):
    """Turns what a model gives and what was wanted into a `Loss`: sums over targets."""

    class Config(BaseConfig, family="objective"):
        """Which objective."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.step = 0

    def advance(self, step: int) -> None:
        """Say which step of training comes next, from 1, for what changes in its course."""
        self.step = step


class CrossEntropy(Objective):
    """NLL = −Σ_t log p(y_t | y_<t), with the labels y_ls = (1 − α) y_hot + α/V (Szegedy, 2016)."""

    class Config(Objective.Config, kind="cross_entropy"):
        """``label_smoothing`` is α; ``teacher_forcing`` says what a decoder reads meanwhile."""

        label_smoothing: float = Field(0.1, ge=0, lt=1)
        teacher_forcing: TeacherForcing.Config = Always.Config()

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.teacher_forcing: TeacherForcing = config.teacher_forcing.build()

    def __call__(
        self,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        target: Int[Tensor, "N"],
        bias: Float[Tensor, "V"] | None = None,
    ) -> Loss:
        """The loss of N targets, the logits being W h + b."""
        if bias is not None:  # W h + b = [W b] [h; 1]
            hidden = torch.cat((hidden, hidden.new_ones(len(hidden), 1)), dim=1)
            weight = torch.cat((weight, bias[:, None]), dim=1)
        total, nll = linear_cross_entropy(hidden, weight, target, self.config.label_smoothing)
        return Loss(total, len(target), {"nll": nll})
