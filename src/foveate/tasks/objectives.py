"""Losses that are minimised: cross-entropy, and that of what a decoder predicts.

REINFORCE and penalties on attention are in `foveate.tasks.attention_losses`, objectives of numbers
in `foveate.tasks.forecasting`.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.models.encoder_decoder import Memory, TargetIds, Writer
from foveate.nn.linear import linear, single
from foveate.nn.loss import linear_cross_entropy
from foveate.tasks.base import AnyTask, DecoderBatch, Loss
from foveate.tasks.teacher_forcing import Always, Predictions, TeacherForcing, tokens_of


class Objective(FromConfig):
    """Computes a `Loss`, sums over targets. A new objective is one class, here or in your file."""

    class Config(BaseConfig, family="objective"):
        """``teacher_forcing`` is what a model that writes reads in training."""

        teacher_forcing: TeacherForcing.Config = Always.Config()
        """How often the model reads the truth instead of its own output."""

    config: Config
    numeric: ClassVar[bool] = False  # whether it compares numbers, not tokens
    step = 0  # of training

    def advance(self, step: int) -> None:
        """Set the number of the next training step, from 1, for what depends on it."""
        self.step = step

    @cached_property
    def teacher_forcing(self) -> TeacherForcing:
        """Mixes the truth with the model's own predictions."""
        return self.config.teacher_forcing.build()

    def read(self, own: Callable[[], Predictions], inputs: Tensor) -> Tensor:
        """Return what a model reads at this step: the true ``inputs`` (B, T, …), unless
        `foveate.tasks.teacher_forcing` mixes them with the model's ``own`` predictions.
        """
        if self.config.teacher_forcing.kind == Always.Config.kind:
            return inputs
        return self.teacher_forcing.read(own(), inputs, self.step)

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        """Return the loss of a training batch.

        `Trainer.backward` calls it through `Parallel.loss` (`foveate.train.fit` binds the task),
        and this calls the task, which makes the model's outputs and calls the objective with them.
        """
        return task.loss(model, batch, self)


class CrossEntropy(Objective):
    """L = −Σ_t Σ_v y_tv log p(v | y_<t), y = (1 − ε) one-hot + ε/V (Szegedy et al., 2016)."""

    class Config(Objective.Config, kind="cross_entropy"):
        """``label_smoothing`` is ε."""

        label_smoothing: float = Field(0.1, ge=0, lt=1)
        """Share of the probability that is spread evenly over all tokens."""

    config: Config

    @property
    def fused(self) -> bool:
        """True unless a class overrides `of_scores`: a kernel computes the loss in parts."""
        return type(self).of_scores is CrossEntropy.of_scores

    def of_scores(self, scores: Float[Tensor, "N V"], target: Int[Tensor, "N"]) -> Loss:
        """Return the loss of N targets, from their scores."""
        log_p = single(scores).log_softmax(dim=-1)
        nll = -log_p.gather(-1, target[:, None]).sum()
        epsilon = self.config.label_smoothing
        total = (1 - epsilon) * nll - epsilon * log_p.mean(dim=-1).sum() if epsilon else nll
        return Loss(total, len(target), {"nll": nll.detach()})

    def __call__(
        self,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        target: Int[Tensor, "N"],
        bias: Float[Tensor, "V"] | None = None,
    ) -> Loss:
        """Return the loss of N targets, the scores being W h + b: `of_scores`, by a kernel."""
        if bias is not None:  # W h + b = [W b] [h; 1]
            hidden = torch.cat((hidden, hidden.new_ones(len(hidden), 1)), dim=1)
            weight = torch.cat((weight, bias[:, None]), dim=1)
        if not self.fused:
            return self.of_scores(linear(hidden, weight), target)
        total, nll = linear_cross_entropy(hidden, weight, target, self.config.label_smoothing)
        return Loss(total, len(target), {"nll": nll})


def token_loss(model: Writer, batch: DecoderBatch, objective: CrossEntropy) -> Loss:
    """Return the loss of the positions that count, after what the objective lets the decoder read.

    It is the ``loss`` of the tasks whose models write text (`TextToText.loss`, `Language.loss`).
    """
    read = objective.read(partial(tokens_of, model, batch.memory, batch.prompt), batch.inputs)
    return loss_at(model, outputs_of(model, read, batch.memory), batch, objective)


def outputs_of(model: Writer, ids: TargetIds, memory: Memory | None) -> Float[Tensor, "B T D"]:
    """Return the vectors that the output layer turns into scores, or a model's own scores."""
    return model.decode(ids, memory) if model.scores_are_product else model.predict(ids, memory)


def loss_at(
    model: Writer, outputs: Float[Tensor, "B T D"], batch: DecoderBatch, objective: CrossEntropy
) -> Loss:
    """Return the loss of the positions that count, given the outputs of all."""
    outputs, target = outputs.flatten(0, 1), batch.targets.flatten()  # (B, T, D) -> (B·T, D)
    if batch.counted is not None:
        outputs, target = outputs[batch.counted], target[batch.counted]
    if not model.scores_are_product:
        return objective.of_scores(outputs, target)
    return objective(outputs, model.output.weight, target, model.output.bias)
