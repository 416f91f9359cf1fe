"""The state of a run besides its weights: small, plain, and written into each checkpoint.

Lives here: its fields. Does not live here: what changes them (`foveate.train.trainer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

from torch import Tensor

from foveate.tasks.base import Loss


@dataclass(frozen=True)
class Best:
    """The best value so far of the figure that decides, and the step that had it."""

    figure: str
    value: float
    step: int


@dataclass
class State:
    """All that a run needs to go on, besides the weights and the optimiser's tensors."""

    seed: int
    plan: str  # fingerprint of the order of the data
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # what "auto" became at the start
    accumulate: int = 0  # what the config said of it when the next was set; 0 is: not yet
    batches: int = 1  # of a step, on all ranks together
    step: int = 0
    epoch: int = 0  # place in the data: epoch, and batch within it
    position: int = 0
    targets: int = 0  # real target tokens seen
    seconds: float = 0.0  # wall clock of all sessions
    validated: int = 0  # step of the last validation
    stale: int = 0  # validations since the best one
    best: Best | None = None
    figures: dict[str, float] = field(default_factory=dict)  # of the last validation
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of the log

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """The state that `dataclasses.asdict` had made a record of."""
        best = record.pop("best")
        return cls(**record, best=None if best is None else Best(**best))


def sums_of(losses: list[Loss]) -> dict[str, float]:
    """What the losses of several batches sum to, by name."""
    sums: dict[str, float] = {}
    for loss in losses:
        parts: dict[str, Tensor | int] = {"loss": loss.total, "count": loss.count}
        for name, value in (parts | loss.logged).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums
