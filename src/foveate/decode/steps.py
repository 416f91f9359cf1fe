"""What a search asks of a model, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.decode.rules import Rule, ruled


class Steps(Protocol):
    """A batch of sources being decoded: N hypotheses at a time, rows grouped by source."""

    def step(self, ids: Tensor) -> Tensor:
        """Logits (N, V) of the next token, after reading one more id (N,) of each hypothesis."""

    def reorder(self, rows: Tensor) -> None:
        """Hypothesis i goes on from what hypothesis ``rows[i]`` has read."""

    def select(self, sources: Tensor) -> None:
        """Go on with these sources alone; their hypotheses have been reordered already."""


@dataclass(frozen=True)
class Hypothesis:
    """An output: its ids without start and end, Σ log p (the end included), and its score."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False where the maximum length cut it off


class Search(Configurable):
    """How an output is chosen among all outputs."""

    class Config(BaseConfig, family="search"):
        """Length limits: at most ``max_ratio`` · source length + ``max_extra`` tokens.

        ``rules`` forbid tokens, such as those that would repeat what is there.
        """

        max_ratio: float = Field(2.0, ge=0)
        max_extra: int = Field(20, ge=1)
        rules: tuple[Rule.Config, ...] = ()

    def __init__(self, config: Config) -> None:
        self.config = config

    def limits(self, lengths: Sequence[int]) -> list[int]:
        """The longest output allowed for each source: by its own length, not by the batch's."""
        return [int(self.config.max_ratio * n) + self.config.max_extra for n in lengths]

    def __call__(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first; ``start`` and ``end`` are ids.

        ``rows`` number the sources for searches that draw (0, 1, … if None): a source's numbers
        then do not depend on the batch that it stands in.
        """
        return self.find(ruled(steps, self.config.rules, end), lengths, start, end, rows)

    def find(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The same, of steps that keep the rules already: what a kind of search says."""
        raise NotImplementedError


def device_of(steps: Steps) -> torch.device:
    """Where the steps compute; the processor if they do not say."""
    device: torch.device = getattr(steps, "device", torch.device("cpu"))
    return device
