"""What a config says about training: ``[train]`` of the TOML file.

Lives here: the fields and their checks. Does not live here: optimisers and schedules, whose
fields stand beside them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from foveate.config import Config, ConfigError
from foveate.train.moving_mean import MovingMean
from foveate.train.optim import AdamWConfig, OptimizerConfig
from foveate.train.precision import Name
from foveate.train.schedule import InverseSqrt, Schedule


class SaveConfig(Config):
    """When checkpoints are written, how many of the last are kept, and which figure is the best.

    The checkpoint with the best ``best`` on the validation data is kept besides.
    """

    every: int | None = Field(default=1000, gt=0)  # steps
    every_minutes: float | None = Field(default=None, gt=0)
    keep: int = Field(default=3, gt=0)
    best: str = "loss"


class ValidationConfig(Config):
    """When the model is measured, how many samples it shows, and when to give up.

    ``patience`` is the number of validations in a row without a new best that end training.
    """

    every: int | None = Field(default=1000, gt=0)  # steps
    samples: int = Field(default=3, ge=0)
    patience: int | None = Field(default=None, gt=0)


class TrainConfig(Config):
    """How a model is trained. Training ends at the first of the limits that are set.

    ``batch_tokens`` is the size of a batch on each device, padding included; ``accumulate``
    batches of each device make one step. ``max_minutes`` is wall clock, earlier sessions of the run
    included. ``average`` is the number of last checkpoints whose mean is tried at the end; ``ema``
    keeps a moving mean of the weights, which is what is validated, saved and used.
    ``health_every`` logs the gradient norm and the size of the update of each module.

    With ``recompute`` layers keep their inputs alone for the backward pass and compute the rest
    again: less memory for more work. With ``compile`` the layers of a Transformer are compiled for
    the GPU that they are on.

    ``parallel`` is how several devices work together where ``torchrun`` starts as many ranks: each
    holds the whole model ("ddp") or a part of it ("fsdp"); "auto" is the first where it fits. A
    step then takes ``accumulate`` × ranks batches, and a run keeps that number on however many
    ranks it goes on. A rank that takes ``hang_minutes`` over one step is reported and ended.
    """

    batch_tokens: int = Field(default=4096, gt=0)
    max_steps: int | None = Field(default=None, gt=0)
    max_epochs: int | None = Field(default=None, gt=0)
    max_minutes: float | None = Field(default=None, gt=0)
    optimizer: OptimizerConfig = AdamWConfig()
    schedule: Schedule.Config = InverseSqrt.Config()
    clip_norm: float | None = Field(default=1.0, gt=0)
    accumulate: int = Field(default=1, gt=0)
    recompute: bool = False
    compile: bool = False
    save: SaveConfig = SaveConfig()
    validation: ValidationConfig = ValidationConfig()
    precision: Name = "auto"
    log_every: int = Field(default=50, gt=0)  # steps
    health_every: int | None = Field(default=None, gt=0)  # steps
    tensorboard: bool = False
    threads: int | None = Field(default=None, gt=0)
    average: int | None = Field(default=None, gt=1)
    ema: MovingMean.Config | None = None
    parallel: Literal["auto", "none", "ddp", "fsdp"] = "auto"
    hang_minutes: float = Field(default=10.0, gt=0)

    def check(self) -> None:
        """Raise `ConfigError` where nothing ends the training, or its schedule does not fit it."""
        limits = (self.max_steps, self.max_epochs, self.max_minutes)
        patience = self.validation.patience if self.validation.every else None
        if all(limit is None for limit in (*limits, patience)):
            raise ConfigError(
                "nothing would end it: set max_steps, max_epochs, max_minutes or "
                "validation.patience",
                ("train", "max_steps"),
            )
        self.schedule.build(self.optimizer.lr, self.max_steps)
