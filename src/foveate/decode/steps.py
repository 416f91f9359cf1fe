"""What a search asks of a model, and what it gives back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.decode.constrained import Constrained
from foveate.decode.phrases import Demand, Ledger
from foveate.decode.rules import Forbids, Rule
from foveate.decode.watch import Listener
from foveate.tree import merge


class Steps(Protocol):
    """A batch of sources being decoded: N hypotheses at a time, rows grouped by source."""

    def step(self, ids: Tensor) -> Tensor:
        """Logits (N, V) of the next token, after reading one more id (N,) of each hypothesis.

        They are the caller's, who may write into them.
        """

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

    @classmethod
    def alone(cls, ids: list[int], log_probability: float, end: int) -> Hypothesis:
        """An output that competes with no other, by all its ids: its score is log p."""
        ended = ids[-1] == end
        return cls(ids[:-1] if ended else ids, log_probability, log_probability, ended)


class Search(Configurable):
    """How an output is chosen among all outputs."""

    class Config(BaseConfig, family="search"):
        """Length limits: at most ``max_ratio`` · source length + ``max_extra`` tokens.

        ``rules`` forbid tokens, such as those that would repeat what is there. With ``shortlist``
        only tokens that a source makes likely are searched, where the run has a list of them and no
        beginning is given; scores are then those of p over these.
        """

        max_ratio: float = Field(2.0, ge=0)
        max_extra: int = Field(20, ge=1)
        rules: tuple[Rule.Config, ...] = ()
        shortlist: bool = False

        @classmethod
        def like(cls, other: Search.Config, **changes: Any) -> Self:
            """A config of this kind, with another's values where both have a field, and changes."""
            shared = {k: v for k, v in other.tree().items() if k in cls.model_fields}
            return cls.parse(merge(shared, changes), ("decode",))

        def giving(self, count: int) -> Search.Config:
            """The same kind of search, made wide enough for so many outputs of each source.

            A kind that has only one output to give says which other kind gives more.
            """
            return self

    def __init__(self, config: Config) -> None:
        self.config = config
        self.prefixes: Sequence[Sequence[int]] = ()
        self.bans: Sequence[Forbids] = ()
        self.demands: Sequence[Demand] = ()
        self.listener: Listener | None = None

    @property
    def width(self) -> int:
        """How many hypotheses of a source are followed side by side."""
        return 1

    def after(self, prefixes: Sequence[Sequence[int]]) -> Self:
        """The same search for outputs that begin so: source number i with the ids of prefix i.

        Scores stay log p of the whole output, its beginning included.
        """
        begun = copy.copy(self)
        begun.prefixes = prefixes
        return begun

    def forbidding(self, bans: Sequence[Forbids]) -> Self:
        """The same search for outputs that keep these beside the rules of its config."""
        kept = copy.copy(self)
        kept.bans = [*self.bans, *bans]
        return kept

    def watched(self, listener: Listener) -> Self:
        """The same search, of which each step is told to a listener; what it finds is the same.

        A listener that raises stops the search.
        """
        told = copy.copy(self)
        told.listener = listener
        return told

    def shortens(self) -> bool:
        """Whether ids of a small vocabulary may stand for all: nobody names or watches tokens."""
        named = self.prefixes or self.bans or self.demands
        return self.config.shortlist and not named and self.listener is None

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

        ``rows`` number the sources (0, 1, … if None), for searches that draw and for beginnings
        that are given (`after`): neither then depends on the batch that a source stands in.
        Whatever its limit, an output has room for ``max_extra`` tokens after a given beginning.
        """
        numbers = list(range(len(lengths)) if rows is None else rows)
        prefixes = [self.prefixes[n] for n in numbers] if self.prefixes else []
        limits = self.limits(lengths)
        if prefixes:
            least = [len(prefix) + self.config.max_extra for prefix in prefixes]
            limits = [max(both) for both in zip(limits, least, strict=True)]
        rules = [*(rule.build() for rule in self.config.rules), *self.bans]
        demands = [self.demands[n] for n in numbers] if self.demands else []
        ledger = Ledger(demands) if any(demand.phrases for demand in demands) else None
        kept = Constrained(steps, rules, prefixes, end, ledger)
        return self.find(kept, limits, start, end, numbers)

    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """The same with all constraints in the steps: what a kind of search says.

        ``limits`` are the most tokens that an output of each source may have, its end included.
        """
        raise NotImplementedError

    def posterior(self, found: Sequence[Hypothesis]) -> list[float]:
        """What the outputs of one source say of p(y | x): a weight for each, 1 in sum.

        w_i = p(y_i | x) / Σ_j p(y_j | x)              (Kumar & Byrne, 2004: of an n-best list)
        """
        log_p = torch.tensor([h.log_probability for h in found], dtype=torch.float64)
        weights: list[float] = log_p.softmax(dim=0).tolist()
        return weights

    def decide(self, found: list[Hypothesis], text: Callable[[list[int]], str]) -> list[Hypothesis]:
        """The outputs of one source as they are to be answered, best first, once ``text`` can read
        them; whoever knows text calls it. Most searches have decided already.
        """
        return found


def device_of(steps: Steps | Constrained) -> torch.device:
    """Where the steps compute; the processor if they do not say."""
    device: torch.device = getattr(steps, "device", torch.device("cpu"))
    return device
