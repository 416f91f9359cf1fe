"""Rules about what an output may hold, for every search: a token that is forbidden has p = 0.

Lives here: the rules. Does not live here: what keeps them (`foveate.decode.constrained`), the
searches, which know of none of it, and the limits of length, which are theirs
(`foveate.decode.steps.Search`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable

Forbidden = tuple[Int[Tensor, "F"], Int[Tensor, "F"]]


class Forbids(Protocol):
    """Whatever says which tokens may not come next."""

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        """Rows of what is written, the start left out, and a token that may not follow in each."""


class Rule(Configurable, ABC):
    """Says which tokens may not come next."""

    class Config(BaseConfig, family="rule"):
        """Which rule."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        """Rows of what is written, the start left out, and a token that may not follow in each."""


class NoRepeat(Rule):
    """No n tokens in a row stand twice in an output (Paulus et al., 2018)."""

    class Config(Rule.Config, kind="no_repeat"):
        """``size`` is n."""

        size: int = Field(3, ge=1)

    config: Config

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        n, length = self.config.size, written.shape[1]
        if length < n:
            return written[:, 0:0].flatten(), written[:, 0:0].flatten()
        grams = written.unfold(1, n, 1)  # (N, t − n + 1, n)
        last = written[:, length - n + 1 :]  # (N, n − 1), what the next token would end
        again = (grams[..., :-1] == last[:, None]).all(dim=-1)
        row, place = again.nonzero(as_tuple=True)
        return row, grams[row, place, -1]


class MinLength(Rule):
    """An output has at least so many tokens, its end left out."""

    class Config(Rule.Config, kind="min_length"):
        """``length`` in tokens."""

        length: int = Field(1, ge=1)

    config: Config

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        rows = torch.arange(len(written), device=written.device)
        rows = rows[: len(rows) if written.shape[1] < self.config.length else 0]
        return rows, torch.full_like(rows, end)
