"""Parts that choose by chance, and who listens to them: the door of REINFORCE.

A part that chooses (a place of a glimpse, one key of an attention) takes the expectation of its
policy as long as nobody listens; within `choices` it draws, and tells what it drew. So validation
and use are deterministic without a switch. Does not live here: what a choice is rewarded with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Choice:
    """What was drawn for each row: its ``log_probability`` under the policy, (B,), or (B, T) where
    T steps were drawn at once.

    ``baseline`` (B,) is the reward that the model itself expected, None where it expects nothing.
    """

    log_probability: Tensor
    baseline: Tensor | None = None


class Chooser:
    """What modules that choose derive from; ``listener`` is told each choice."""

    listener: Callable[[Choice], None] | None = None


@contextmanager
def choices(model: nn.Module) -> Iterator[list[Choice]]:
    """Let every part of a model draw, and collect what was drawn, in order.

    with choices(model) as made:
        scores = model(pixels)
    made[0].log_probability
    """
    made: list[Choice] = []
    choosers = [module for module in model.modules() if isinstance(module, Chooser)]
    before = [chooser.listener for chooser in choosers]
    for chooser in choosers:
        chooser.listener = made.append
    try:
        yield made
    finally:
        for chooser, listener in zip(choosers, before, strict=True):
            chooser.listener = listener
