"""What is trained, and with what: the two bundles that the trainer is given.

Lives here: their fields. Does not live here: who makes them (`foveate.training`,
`foveate.train.fit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foveate.tasks.base import Task
from foveate.train.continuing import Change
from foveate.train.feed import Plan, PlanFactory
from foveate.train.health import Health
from foveate.train.journal import Journal
from foveate.train.moving_mean import MovingMean
from foveate.train.precision import Precision
from foveate.train.progress import Display
from foveate.train.schedule import Schedule
from foveate.train.signals import Interrupt

if TYPE_CHECKING:
    from foveate.train.parallel import Parallel


@dataclass(frozen=True)
class Job:
    """What is trained: a task with its data, a model, what is minimised, how outputs are found.

    ``toml`` is the resolved config, kept in each checkpoint; ``plan`` makes the plan of batches
    from lengths, ``batch_tokens`` and the seed. ``changes`` are those of the config since
    the run was last trained.
    """

    task: Task[Any]
    model: nn.Module
    objective: Any
    search: Any
    seed: int
    toml: str
    plan: PlanFactory
    changes: tuple[Change, ...] = ()


@dataclass
class Tools:
    """What the trainer works with, made by `foveate.train.fit`."""

    parallel: Parallel
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: Precision
    plan: Plan
    journal: Journal
    display: Display
    interrupt: Interrupt
    mean: MovingMean | None = None
    health: Health | None = None
