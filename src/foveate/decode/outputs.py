"""The outputs of searches, whatever computes them; nothing in this module needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foveate.errors import DIVERGED, NoOutputError, UserError, check_finite


@dataclass(frozen=True)
class Hypothesis:
    """An output: its ids without start and end, Σ log p including the end, and its score."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False if the maximum length cut it off

    @classmethod
    def alone(cls, ids: list[int], log_probability: float, end: int) -> Hypothesis:
        """Return an output without competitors, of score log p; ``ids`` include the end."""
        ended = ids[-1] == end
        return cls(ids[:-1] if ended else ids, log_probability, log_probability, ended)


Outputs = list[list[Hypothesis]]  # hypotheses of each source, best first
Stop = Callable[[], bool]  # returns True once the outputs are not needed any more


class SearchStopped(UserError):
    """A search that was stopped between two positions at its caller's request."""


def check_stop(stop: Stop | None) -> None:
    """Raise `SearchStopped` if the caller of a search no longer wants its outputs."""
    if stop is not None and stop():
        raise SearchStopped("the search was stopped: its outputs are no longer wanted")


def best(outputs: Sequence[Hypothesis]) -> Hypothesis:
    """Return the first output; the empty one, with p = 1, for a source without any text."""
    return outputs[0] if outputs else Hypothesis([], 0.0, 0.0)


def check_outputs(outputs: Sequence[Sequence[Hypothesis]], rows: Sequence[int]) -> None:
    """Raise `NoOutputError` for a source without an output, or with a score that is not finite.

    ``rows`` number the sources from 0. An empty output counts; its score is that of the end.
    """
    for row, hypotheses in zip(rows, outputs, strict=True):
        if not hypotheses:
            raise NoOutputError(f"source {row + 1} has no output: {DIVERGED}")
        check_finite([h.score for h in hypotheses], f"source {row + 1} has no output")
