"""Rules about what an output may hold, for every search: a token that is forbidden has p = 0.

Lives here: the rules and the steps that keep them. Does not live here: the searches, which know of
none of it, and the limits of length, which are theirs (`foveate.decode.steps.Search`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable

if TYPE_CHECKING:
    from foveate.decode.steps import Steps


class Rule(Configurable, ABC):
    """Says of every token whether it may come next."""

    class Config(BaseConfig, family="rule"):
        """Which rule."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def forbidden(
        self, written: Int[Tensor, "N t"], vocab_size: int, end: int
    ) -> Bool[Tensor, "N V"]:
        """True at tokens that may not follow what is written, the start left out."""


class NoRepeat(Rule):
    """No n tokens in a row stand twice in an output (Paulus et al., 2018)."""

    class Config(Rule.Config, kind="no_repeat"):
        """``size`` is n."""

        size: int = Field(3, ge=1)

    config: Config

    def forbidden(
        self, written: Int[Tensor, "N t"], vocab_size: int, end: int
    ) -> Bool[Tensor, "N V"]:
        n, (rows, length) = self.config.size, written.shape
        found = torch.zeros(rows, vocab_size, dtype=torch.bool, device=written.device)
        if length < n:
            return found
        grams = written.unfold(1, n, 1)  # (N, t − n + 1, n)
        last = written[:, length - n + 1 :]  # (N, n − 1), what the next token would end
        again = (grams[..., :-1] == last[:, None]).all(dim=-1)
        row, place = again.nonzero(as_tuple=True)
        found[row, grams[row, place, -1]] = True
        return found


class MinLength(Rule):
    """An output has at least so many tokens, its end left out."""

    class Config(Rule.Config, kind="min_length"):
        """``length`` in tokens."""

        length: int = Field(1, ge=1)

    config: Config

    def forbidden(
        self, written: Int[Tensor, "N t"], vocab_size: int, end: int
    ) -> Bool[Tensor, "N V"]:
        found = torch.zeros(len(written), vocab_size, dtype=torch.bool, device=written.device)
        found[:, end] = written.shape[1] < self.config.length
        return found


class Ruled:
    """Steps that keep rules: log p = log softmax over the tokens that are allowed.

    Where nothing is allowed the output ends.
    """

    def __init__(self, steps: Steps, rules: Sequence[Rule], end: int) -> None:
        self.steps, self.rules, self.end = steps, rules, end
        self.device = getattr(steps, "device", torch.device("cpu"))
        self.written: Tensor | None = None  # (N, 1 + t), the start first

    def step(self, ids: Tensor) -> Tensor:
        """Logits of the next token, −∞ at those forbidden."""
        before = [] if self.written is None else [self.written]
        self.written = torch.cat((*before, ids[:, None]), dim=1)
        logits = self.steps.step(ids)
        for rule in self.rules:
            wrong = rule.forbidden(self.written[:, 1:], logits.shape[1], self.end)
            logits = logits.masked_fill(wrong, -torch.inf)
        stuck = logits.isneginf().all(dim=1)
        logits[stuck, self.end] = 0.0
        return logits

    def reorder(self, rows: Tensor) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.steps.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)

    def select(self, sources: Tensor) -> None:
        """Go on with these sources alone."""
        self.steps.select(sources)


def ruled(steps: Steps, rules: Sequence[Rule.Config], end: int) -> Steps:
    """The steps with the rules kept; the same steps where there is no rule."""
    return Ruled(steps, [rule.build() for rule in rules], end) if rules else steps
