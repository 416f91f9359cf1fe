"""Inputs of a model that writes, in training: the truth, its own output, or scheduled sampling."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, FromConfig
from foveate.errors import UserError
from foveate.models.encoder_decoder import Memory, Writer
from foveate.nn.context import DecoderState

Choose = Literal["greedy", "sample"]
Keep = Bool[Tensor, "B T"]  # where the truth is read


@dataclass(frozen=True)
class Predictions:
    """A model's predictions of what follows: tokens (B, T), or rows of a series (B, T, C).

    ``next`` reads further positions (B, k, …) behind those that it has read and gives what follows
    the last, (B, …). ``each`` reads (B, T, …) at once and gives what follows every position; None
    where a model reads position by position. The first ``prompt`` positions, of all or of each row
    (B, 1), are not predicted.
    """

    next: Callable[[Tensor, Choose], Tensor]
    each: Callable[[Tensor, Choose], Tensor] | None = None
    prompt: int | Int[Tensor, "B 1"] = 1

    def fixed(self, inputs: Tensor) -> Bool[Tensor, "B T"]:
        """True at the positions of the prompt."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        return (positions < self.prompt).expand(inputs.shape[:2])


class TeacherForcing(FromConfig, ABC):
    """Chooses what is read where ``inputs`` (B, T, …) are the true ones.

    One choice for all that write: decoders of tokens, and forecasters that read their own rows. The
    targets of the loss stay the true ones. What is read is data: the gradient flows through what
    the model makes of it, never into the outputs that it repeats (as in Bengio et al., 2015).
    """

    class Config(BaseConfig, family="teacher_forcing"):
        """The kind of choice."""

    @abstractmethod
    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        """Return what is read, shaped as ``inputs``, at a step of training, counted from 1."""


class Always(TeacherForcing, kind="always"):
    """The true target at every position (Williams & Zipser, 1989)."""

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        return inputs


class OwnOutput(TeacherForcing, kind="own"):
    """The model's own greedy output at every position after the prompt: what it meets in use."""

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        return autoregressive(own, inputs, own.fixed(inputs), "greedy")


class SamplingSchedule(FromConfig, ABC):
    """ε(i), the probability that the true token is read at step i."""

    class Config(BaseConfig, family="sampling_schedule"):
        """The schedule of ε."""

    @abstractmethod
    def epsilon(self, step: int) -> float:
        """ε in [0, 1]."""


class LinearDecay(SamplingSchedule):
    """ε(i) = max(ε_min, k − c i)."""

    class Config(SamplingSchedule.Config, kind="linear"):
        """``start`` is k, ``slope`` c a step, ``floor`` ε_min."""

        start: float = Field(1.0, ge=0, le=1)  # probability of the reference at the first step
        slope: float = Field(1e-4, ge=0)  # by which it falls each step
        floor: float = Field(0.5, ge=0, le=1)  # below which it does not fall

    config: Config

    def epsilon(self, step: int) -> float:
        return max(self.config.floor, self.config.start - self.config.slope * step)


class InverseSigmoidDecay(SamplingSchedule):
    """ε(i) = k / (k + exp(i / k)), k ≥ 1."""

    class Config(SamplingSchedule.Config, kind="inverse_sigmoid"):
        """``rate`` is k: ε is 1/2 at step k log k."""

        rate: float = Field(1000.0, ge=1)  # k in k / (k + exp(t / k)); a larger one decays later

    config: Config

    def epsilon(self, step: int) -> float:
        k = self.config.rate
        return k / (k + math.exp(min(step / k, 700.0)))


class Scheduled(TeacherForcing):
    """Scheduled sampling: each position read is the true one with probability ε(i) (Bengio, 2015).

    A recurrent model reads its own last output elsewhere. A decoder that reads all positions at
    once predicts from the true target, and that is mixed with the target for a second pass
    (Mihaylova & Martins, 2019). Choices carry no gradient.
    """

    class Config(TeacherForcing.Config, kind="scheduled"):
        """``choose`` the most probable token, or draw one from the model's distribution."""

        schedule: SamplingSchedule.Config = InverseSigmoidDecay.Config()
        """How the probability of the reference falls."""
        choose: Choose = "greedy"  # whether the model's own token is its likeliest, or drawn

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.schedule: SamplingSchedule = config.schedule.build()

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        epsilon = self.schedule.epsilon(step)
        if epsilon >= 1:  # no draws: the dropout masks that follow are those of teacher forcing
            return inputs
        keep = torch.rand(inputs.shape[:2], device=inputs.device) < epsilon
        mix = autoregressive if own.each is None else second_pass
        return mix(own, inputs, keep | own.fixed(inputs), self.config.choose)


@torch.no_grad()
def autoregressive(own: Predictions, inputs: Tensor, keep: Keep, choose: Choose) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after what it has read."""
    prompt = int(torch.as_tensor(own.prompt).min())
    read = [inputs[:, :prompt]]
    for t in range(prompt, inputs.shape[1]):
        read.append(_where(keep[:, t], inputs[:, t], own.next(read[-1], choose))[:, None])
    return torch.cat(read, dim=1)


@torch.no_grad()
def second_pass(own: Predictions, inputs: Tensor, keep: Keep, choose: Choose) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after the true positions before.

    Raises `UserError` for a model that reads step by step.
    """
    if own.each is None:
        raise UserError("a model that reads step by step has no second pass")
    predicted = own.each(inputs[:, :-1], choose)
    return torch.cat((inputs[:, :1], _where(keep[:, 1:], inputs[:, 1:], predicted)), dim=1)


def _where(keep: Bool[Tensor, "*B"], inputs: Tensor, predicted: Tensor) -> Tensor:
    """One choice for all channels of a row."""
    return torch.where(keep.view(*keep.shape, *[1] * (inputs.ndim - keep.ndim)), inputs, predicted)


def tokens_of(
    model: Writer, memory: Memory | None = None, prompt: int | Int[Tensor, "B 1"] = 1
) -> Predictions:
    """Return the predictions of a model that writes tokens, from the beginning of its text."""
    state = DecoderState()

    def following(ids: Tensor, choose: Choose) -> Tensor:
        return _choose(model.predict(ids, memory, state)[:, -1], choose)

    def everywhere(ids: Tensor, choose: Choose) -> Tensor:
        return _choose(model.predict(ids, memory), choose)

    return Predictions(following, everywhere if model.decoder.parallel else None, prompt)


def _choose(logits: Float[Tensor, "*B V"], choose: Choose) -> Int[Tensor, "*B"]:
    if choose == "greedy":
        return logits.argmax(dim=-1)
    odds = logits.float().softmax(dim=-1)
    return torch.multinomial(odds.flatten(0, -2), 1).view(odds.shape[:-1])
