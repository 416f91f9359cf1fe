"""What a decoder reads while it is trained: the true target, or in part what it would say itself.

Lives here: the choice of the ids read, for any model with an encoder and a decoder. Does not live
here: the loss, whose targets are the true ones in any case (`foveate.tasks.objective`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.models.encoder import Memory
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.state import State

Ids = Int[Tensor, "B T"]


class TeacherForcing(Configurable, ABC):
    """Chooses what is read, (B, T), where ``gold`` (B, T) is the target behind its start."""

    class Config(BaseConfig, family="teacher_forcing"):
        """Which choice."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def read(self, model: EncoderDecoder, gold: Ids, memory: Memory, step: int) -> Ids:
        """The ids read at a step of training, counted from 1."""


class Always(TeacherForcing):
    """The true target at every place (Williams & Zipser, 1989)."""

    class Config(TeacherForcing.Config, kind="always"):
        """Nothing to choose."""

    def read(self, model: EncoderDecoder, gold: Ids, memory: Memory, step: int) -> Ids:
        return gold


class Own(TeacherForcing):
    """The model's own greedy output at every place but the first: what it meets when it is used."""

    class Config(TeacherForcing.Config, kind="own"):
        """Nothing to choose."""

    def read(self, model: EncoderDecoder, gold: Ids, memory: Memory, step: int) -> Ids:
        keep = torch.zeros_like(gold, dtype=torch.bool)
        return step_by_step(model, gold, memory, keep, "greedy")


Choose = Literal["greedy", "sample"]


# ------------------------------------------------------------------------------ schedules


class SamplingSchedule(Configurable, ABC):
    """ε(i), the probability that the true token is read at step i."""

    class Config(BaseConfig, family="sampling_schedule"):
        """How ε falls."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def epsilon(self, step: int) -> float:
        """ε in [0, 1]."""


class LinearDecay(SamplingSchedule):
    """ε(i) = max(ε_min, k − c i)."""

    class Config(SamplingSchedule.Config, kind="linear"):
        """``start`` is k, ``slope`` c a step, ``floor`` ε_min."""

        start: float = Field(1.0, ge=0, le=1)
        slope: float = Field(1e-4, ge=0)
        floor: float = Field(0.5, ge=0, le=1)

    config: Config

    def epsilon(self, step: int) -> float:
        return max(self.config.floor, self.config.start - self.config.slope * step)


class ExponentialDecay(SamplingSchedule):
    """ε(i) = kⁱ, k < 1."""

    class Config(SamplingSchedule.Config, kind="exponential"):
        """``base`` is k."""

        base: float = Field(0.9999, gt=0, lt=1)

    config: Config

    def epsilon(self, step: int) -> float:
        return float(self.config.base**step)


class InverseSigmoidDecay(SamplingSchedule):
    """ε(i) = k / (k + exp(i / k)), k ≥ 1."""

    class Config(SamplingSchedule.Config, kind="inverse_sigmoid"):
        """``rate`` is k: ε is 1/2 at step k log k."""

        rate: float = Field(1000.0, ge=1)

    config: Config

    def epsilon(self, step: int) -> float:
        k = self.config.rate
        return k / (k + math.exp(min(step / k, 700.0)))


class Scheduled(TeacherForcing):
    """Scheduled sampling: each token read is the true one with probability ε(i) (Bengio, 2015).

    A recurrent decoder goes step by step and reads its own last token elsewhere. A decoder that
    reads all places at once says what it would predict from the true target, and that is mixed
    with the target for a second pass (Mihaylova & Martins, 2019). Choices carry no gradient.
    """

    class Config(TeacherForcing.Config, kind="scheduled"):
        """``choose`` the most probable token, or draw one from the model's distribution."""

        schedule: SamplingSchedule.Config = InverseSigmoidDecay.Config()
        choose: Choose = "greedy"

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.schedule: SamplingSchedule = config.schedule.build()

    def read(self, model: EncoderDecoder, gold: Ids, memory: Memory, step: int) -> Ids:
        epsilon = self.schedule.epsilon(step)
        if epsilon >= 1:  # no draws: the dropout masks that follow are those of teacher forcing
            return gold
        keep = torch.rand(gold.shape, device=gold.device) < epsilon
        way = second_pass if model.decoder.parallel else step_by_step
        return way(model, gold, memory, keep, self.config.choose)


# ------------------------------------------------------------------------------ two ways to mix


@torch.no_grad()
def step_by_step(
    model: EncoderDecoder, gold: Ids, memory: Memory, keep: Bool[Tensor, "B T"], choose: Choose
) -> Ids:
    """The true token where ``keep`` is true, else what the model says after what it has read."""
    state, read = State(), [gold[:, 0]]
    for t in range(1, gold.shape[1]):
        hidden = model.decode(read[-1][:, None], memory, state)
        own = _choose(model.logits(hidden[:, 0]), choose)
        read.append(torch.where(keep[:, t], gold[:, t], own))
    return torch.stack(read, dim=1)


@torch.no_grad()
def second_pass(
    model: EncoderDecoder, gold: Ids, memory: Memory, keep: Bool[Tensor, "B T"], choose: Choose
) -> Ids:
    """The true token where ``keep`` is true, else what the model says after the true ones."""
    own = _choose(model.logits(model.decode(gold[:, :-1], memory)), choose)
    return torch.cat((gold[:, :1], torch.where(keep[:, 1:], gold[:, 1:], own)), dim=1)


def _choose(logits: Float[Tensor, "*B V"], choose: Choose) -> Int[Tensor, "*B"]:
    if choose == "greedy":
        return logits.argmax(dim=-1)
    odds = logits.float().softmax(dim=-1)
    return torch.multinomial(odds.flatten(0, -2), 1).view(odds.shape[:-1])
