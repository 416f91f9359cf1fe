"""Learning rates over time: pure functions of the step, which is counted from 1.

Lives here: the schedules of the papers, as kinds. Does not live here: what applies the rate
(`foveate.train.trainer`); a schedule has no state, so that resuming needs the step alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from pydantic import Field

from foveate.config import BaseConfig
from foveate.config import ConfigError, Configurable


class Schedule(Configurable, ABC):
    """The learning rate at each step; ``peak`` is the optimiser's ``lr``.

    ``max_steps`` is the length of training where it is known, for schedules that end.
    """

    class Config(BaseConfig, family="schedule"):
        """How the rate rises and falls."""

    def __init__(self, config: Config, peak: float, max_steps: int | None = None) -> None:
        self.config, self.peak, self.max_steps = config, peak, max_steps

    @abstractmethod
    def rate(self, step: int) -> float:
        """The learning rate of step 1, 2, …"""


class Constant(Schedule):
    """rate = peak · min(1, step / warmup)."""

    class Config(Schedule.Config, kind="constant"):
        warmup_steps: int = Field(default=0, ge=0)

    config: Config

    def rate(self, step: int) -> float:
        return self.peak * _rise(step, self.config.warmup_steps)


class Noam(Schedule):
    """rate = factor · d^−0.5 · min(step^−0.5, step · warmup^−1.5) (Vaswani et al., 2017).

    It is highest at ``warmup_steps``, at factor / √(d · warmup); the optimiser's ``lr`` is not
    used.
    """

    class Config(Schedule.Config, kind="noam"):
        hidden_size: int = Field(gt=0)
        warmup_steps: int = Field(default=4000, gt=0)
        factor: float = Field(default=1.0, gt=0)

    config: Config

    def rate(self, step: int) -> float:
        c = self.config
        return float(c.factor * c.hidden_size**-0.5 * min(step**-0.5, step * c.warmup_steps**-1.5))


class InverseSqrt(Schedule):
    """rate = peak · min(step / warmup, √(warmup / step)): linear up, then as 1/√step."""

    class Config(Schedule.Config, kind="inverse_sqrt"):
        warmup_steps: int = Field(default=4000, gt=0)

    config: Config

    def rate(self, step: int) -> float:
        warmup = self.config.warmup_steps
        return self.peak * min(step / warmup, math.sqrt(warmup / step))


class _Ending(Schedule):
    """A rise to the peak, then a fall from 1 to ``final_ratio`` of it at ``total_steps``."""

    class Config(Schedule.Config):
        warmup_steps: int = Field(default=0, ge=0)
        total_steps: int | None = Field(default=None, gt=0)
        final_ratio: float = Field(default=0.0, ge=0, le=1)

    config: Config

    def __init__(self, config: Config, peak: float, max_steps: int | None = None) -> None:
        super().__init__(config, peak, max_steps)
        total = config.total_steps or max_steps
        if total is None:
            raise ConfigError(
                f"{config.kind} has to know where training ends: set train.max_steps, "
                "or total_steps here",
                ("train", "schedule", "total_steps"),
            )
        if total <= config.warmup_steps:
            raise ConfigError(
                f"warmup_steps = {config.warmup_steps} leaves nothing of {total} steps",
                ("train", "schedule", "warmup_steps"),
            )
        self.total = total

    def rate(self, step: int) -> float:
        c = self.config
        if step < c.warmup_steps:
            return self.peak * _rise(step, c.warmup_steps)
        done = min(1.0, (step - c.warmup_steps) / (self.total - c.warmup_steps))
        return self.peak * (c.final_ratio + (1 - c.final_ratio) * self.fall(done))

    @abstractmethod
    def fall(self, done: float) -> float:
        """From 1 at ``done = 0`` to 0 at ``done = 1``."""


class Cosine(_Ending):
    """rate = peak · (r + (1 − r)(1 + cos πx) / 2), x = (step − warmup) / (total − warmup).

    Below ``warmup_steps`` it rises in a line; r is ``final_ratio`` (Loshchilov & Hutter, 2017).
    """

    class Config(_Ending.Config, kind="cosine"):
        pass

    def fall(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


class Linear(_Ending):
    """rate = peak · (r + (1 − r)(1 − x)), x = (step − warmup) / (total − warmup)."""

    class Config(_Ending.Config, kind="linear"):
        pass

    def fall(self, done: float) -> float:
        return 1 - done


class WarmupStableDecay(_Ending):
    """rate = peak · (r + (1 − r) min(1, (1 − x) / d)): up, level, and down in the last part.

    x = (step − warmup) / (total − warmup); d is ``decay_share`` (Hu, 2024; Hägele, 2024: 0.2).
    """

    class Config(_Ending.Config, kind="warmup_stable_decay"):
        decay_share: float = Field(default=0.2, gt=0, le=1)

    config: Config

    def fall(self, done: float) -> float:
        return min(1.0, (1 - done) / self.config.decay_share)


def _rise(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0
