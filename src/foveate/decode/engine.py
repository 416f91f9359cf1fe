"""Outputs, and the interface of everything that searches and scores with a trained model.

    engine.search(sources, SearchRequest(search)) -> Result, Result, …    batch by batch

`foveate.tasks.engine.TorchEngine` runs any model, `foveate.engine.packed.PackedEngine` those that
have a program in C. What an engine cannot do it says by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from foveate.errors import DIVERGED, ConfigError, NoOutputError, UserError, check_finite


@dataclass(frozen=True)
class Hypothesis:
    """An output: its ids without start and end, Σ log p including the end, and its score."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False if the maximum length cut it off


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


Ability = Literal[
    "banned phrases", "links", "positions", "prefixes", "required terms", "rules", "scores"
]
ALL: frozenset[Ability] = frozenset(Ability.__args__)  # type: ignore[attr-defined]
Ids = list[int]
Source = Any  # what an engine reads of an input: ids, or pixels
Module = Any  # a module of PyTorch, of whatever family a task builds
Term = Sequence[str]  # variants, any of which meets it
Picture = int | str | Path  # of the test data by its number, or a file
Example = Picture | None  # None: of the run's own data


class EngineError(UserError):
    """A request that an engine cannot answer."""


def check_lists(count: int, prefixes: Sequence[Ids], required: Sequence[Sequence[Term]]) -> None:
    """Raise ``ConfigError`` unless lists that are not empty have an entry for each source."""
    for name, values in (("prefixes", prefixes), ("lists of required terms", required)):
        if values and len(values) != count:
            raise ConfigError(f"{len(values)} {name} for {count} lines: give one for each line")


class SearchChoice(Protocol):
    """A search by its config: `foveate.decode.search.Search`, or one without PyTorch."""

    @property
    def config(self) -> Any: ...
    @property
    def width(self) -> int: ...


@dataclass(frozen=True)
class SearchRequest:
    """A search, with what applies to single sources, listed in their order.

    ``prefixes`` are the ids with which the outputs of each source begin, ``required`` the terms
    that they hold, none without lists; no output holds a ``banned`` phrase.
    ``batch_tokens`` bounds source tokens × hypotheses of a batch. Outputs end with the id ``end``,
    the task's own where it is None, and of each source at most ``num`` are given. The search raises
    `SearchStopped` once ``stop``, asked every few positions, is true.
    """

    search: SearchChoice
    prefixes: Sequence[Ids] = ()
    required: Sequence[Sequence[Term]] = ()
    banned: Sequence[str] = ()
    batch_tokens: int = 8192
    end: int | None = None
    num: int | None = None
    stop: Stop | None = None

    @property
    def needs(self) -> set[Ability]:
        """The abilities that an engine needs for it."""
        needed: dict[Ability, object] = {
            "prefixes": self.prefixes,
            "required terms": any(self.required),
            "banned phrases": self.banned,
            "rules": self.search.config.rules,
        }
        return {name for name, value in needed.items() if value}

    @property
    def shortens(self) -> bool:
        """True if a shortlist may be searched: nothing refers to tokens by their ids."""
        free = not (self.prefixes or self.required or self.banned)
        return self.search.config.shortlist and free


class Result(NamedTuple):
    """The outputs of sources that were decoded together, by their places among all sources."""

    places: Sequence[int]
    outputs: Outputs


class Room(NamedTuple):
    """The numbers of tokens that a model can read of a source, without its end, and write.

    A model without an encoder has one row of positions for both, of which a source takes half.
    """

    source: int = 2**24
    output: int = 2**24
    shared: bool = False

    @classmethod
    def of(cls, encoder: int, decoder: int, ends: int) -> Room:
        """The room of so many positions, 0 without such a part; ``ends`` a source has."""
        if encoder:
            return cls(max(1, encoder - ends), decoder)
        return cls(max(1, (decoder - 2) // 2), decoder, shared=True)

    def left(self, length: int) -> int:
        """Return how many tokens an output can have behind a source of some length."""
        return max(1, self.output - (length + 1 if self.shared else 0))


class Engine(ABC):
    """Computes outputs, scores and links of one trained model.

    ``can`` says what it is able to do, ``name`` how a user chooses it.
    """

    name: str
    can: frozenset[Ability] = frozenset()

    @property
    def model(self) -> Module:
        """The model as a module of PyTorch. Raises `EngineError` where there is none."""
        raise self.cannot("give a PyTorch module")

    @abstractmethod
    def search(self, sources: Sequence[Source], request: SearchRequest) -> Iterator[Result]:
        """The best outputs of each source, batch by batch; none for an empty source.

        Raises `EngineError` for a request that it cannot answer.
        """

    def outputs(self, sources: Sequence[Source], request: SearchRequest) -> Outputs:
        """The best outputs of each source, in the order of the sources."""
        outputs: Outputs = [[] for _ in sources]
        for result in self.search(sources, request):
            for place, hypotheses in zip(*result, strict=True):
                outputs[place] = hypotheses
        return outputs

    @property
    def room(self) -> Room:
        """The numbers of tokens that the model has positions for."""
        return Room()

    def positions(self, source: Source, request: SearchRequest) -> Generator[Any, None, Outputs]:
        """The search of one source, position by position; it returns its outputs."""
        raise self.cannot("show the positions of a search")

    def heard(
        self, source: Source, request: SearchRequest, listen: Callable[[Ids], None]
    ) -> Outputs:
        """Return the outputs of a source; ``listen`` gets the first one's ids at each position."""
        raise self.cannot("show an output as it is written")

    def score(self, pairs: Sequence[tuple[Source, Ids]]) -> list[list[float]]:
        """Log p of each token of each given target, its end included."""
        raise self.cannot("score given outputs")

    def check(self, request: SearchRequest) -> None:
        """Raise `EngineError` where it cannot answer a request."""
        if missing := sorted(request.needs - self.can):
            raise self.cannot(f"search with {' and '.join(missing)}")

    def cannot(self, what: str) -> EngineError:
        """The error that says what it cannot do."""
        return EngineError(f"the engine {self.name} cannot {what}; leave out --engine")
