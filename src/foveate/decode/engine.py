"""Outputs, and the interface of everything that searches and scores with a trained model.

    engine.search(sources, SearchRequest(search)) -> Result, Result, …    batch by batch

`foveate.tasks.engine.TorchEngine` runs any model, `foveate.engine.packed.PackedEngine` those that
have a program in C. What an engine cannot do it says by name. Both take from here what they share:
the search that answers a request (`chosen`, `widened`, `continuing`), as the tree of its config
since the classes of searches need PyTorch; and which tokens keep an output valid UTF-8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.config import Tree, unknown
from foveate.data.tokenizer import SILENT, Tokenizer
from foveate.errors import DIVERGED, ConfigError, NoOutputError, UserError


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
        raise SearchStopped("the search was stopped: its outputs were cancelled")


def best(outputs: Sequence[Hypothesis]) -> Hypothesis:
    """Return the first output; the empty one, with p = 1, for a source without any text."""
    return outputs[0] if outputs else Hypothesis([], 0.0, 0.0)


def check_finite(values: object, what: str) -> None:
    """Raise `NoOutputError`, beginning with ``what``, unless all numbers are finite."""
    if not np.isfinite(np.asarray(values)).all():
        raise NoOutputError(f"{what}: {DIVERGED}")


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


COMMON = ("max_ratio", "max_extra", "rules", "shortlist", "whole_characters")  # in all searches
DRAWN = (  # fields of sampling
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "num_samples",
)  # fmt: skip
PENALTY = 0.6  # of a beam that replaces another search
Ending = Literal["count", "bound", "shrink"]  # when a beam ends (`foveate.decode.beam.Beam.Config`)
STOPS: tuple[Ending, ...] = get_args(Ending)
OFFSET = 5.0  # added to lengths before the penalty (Wu et al., 2016)


def chosen(own: Tree, beam_size: int | None, length_penalty: float | None) -> Tree:
    """Return ``own`` as a beam of this size and penalty; ``own`` itself if both are None.

    A beam of one without a penalty becomes greedy search, which has less to sort. Raises
    ``ConfigError`` for a length penalty of a search that is not a beam.
    """
    choices: Tree = {"beam_size": beam_size, "length_penalty": length_penalty}
    choices = {name: value for name, value in choices.items() if value is not None}
    if not choices:
        return own
    if beam_size is not None and beam_size < 1:
        raise ConfigError(f"beam_size = {beam_size}: expected at least 1")
    if beam_size is None and "beam_size" not in own:
        raise ConfigError(f"the search {own['kind']} has no length_penalty; give a beam_size too")
    if beam_size == 1 and length_penalty is None and own["kind"] in ("beam", "greedy"):
        return _common(own, "greedy")
    return (own if "beam_size" in own else _common(own, "beam")) | choices


def widened(own: Tree, count: int) -> Tree:
    """Return the same search, wide enough for ``count`` outputs of each source.

    Greedy search, which has one output, becomes a beam. Raises ``ConfigError`` for less than one.
    """
    if count < 1:
        raise ConfigError(f"{count} outputs per line were requested: expected at least 1")
    if "candidates" in own:
        return own | {"candidates": widened(own["candidates"], count)}
    if own["kind"] == "greedy" and count > 1:
        return _common(own, "beam") | {"beam_size": count}
    for size in ("beam_size", "num_samples"):
        if count > own.get(size, count):
            return own | {size: count + -count % own.get("groups", 1)}
    return own


def continuing(
    own: Tree, max_length: int, beam_size: int | None, choices: Mapping[str, object]
) -> Tree:
    """Return the search for continuations of a text: sampling, or a beam if one is requested.

    ``choices`` are fields of sampling. Raises ``ConfigError`` for an unknown field, and for any
    field beside a beam.
    """
    if wrong := sorted(choices.keys() - set(DRAWN)):
        raise ConfigError(unknown("key", wrong[0], DRAWN), ("decode",))
    if choices and beam_size is not None:
        raise ConfigError(f"{next(iter(choices))} is an option of sampling: leave out beam_size")
    limits: Tree = {"max_ratio": 0.0, "max_extra": max_length}
    if beam_size is not None:
        return _common(own, "beam") | {"beam_size": beam_size, "length_penalty": 0.0} | limits
    return (own if own["kind"] == "sample" else _common(own, "sample")) | dict(choices) | limits


def _common(own: Tree, kind: str) -> Tree:
    """Return a search of another kind with the fields that all kinds have."""
    penalty = {"length_penalty": PENALTY} if kind == "beam" else {}
    return {"kind": kind} | penalty | {name: own[name] for name in COMMON if name in own}


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


WHOLE, REJECTED, STATES = 0, 8, 8  # of the automaton of UTF-8
PADDING = 256  # follows the bytes of a token and changes no state


def automaton() -> NDArray[np.int8]:
    """Return δ (states + 1, bytes + 1) of UTF-8: 0 between characters, 8 rejected.

    States 1, 2 and 3 wait for as many continuation bytes; 4 to 7 follow E0, ED, F0 and F4, whose
    next byte is restricted.
    """
    delta = np.full((STATES + 1, PADDING + 1), REJECTED, dtype=np.int8)
    delta[:, PADDING] = range(STATES + 1)
    for first, last, state in (
        (0x00, 0x7F, 0), (0xC2, 0xDF, 1), (0xE0, 0xE0, 4), (0xE1, 0xEC, 2), (0xED, 0xED, 5),
        (0xEE, 0xEF, 2), (0xF0, 0xF0, 6), (0xF1, 0xF3, 3), (0xF4, 0xF4, 7),
    ):  # fmt: skip
        delta[WHOLE, first : last + 1] = state
    for state, first, last, after in (
        (1, 0x80, 0xBF, 0), (2, 0x80, 0xBF, 1), (3, 0x80, 0xBF, 2), (4, 0xA0, 0xBF, 1),
        (5, 0x80, 0x9F, 1), (6, 0x90, 0xBF, 2), (7, 0x80, 0x8F, 2),
    ):  # fmt: skip
        delta[state, first : last + 1] = after
    return delta


def token_states(tokenizer: Tokenizer) -> NDArray[np.int64] | None:
    """Return the state after each token (S, V); None if every piece is valid UTF-8 by itself."""
    states = _states(tokenizer.surfaces)
    if bool((states[WHOLE] == WHOLE).all()):
        return None
    states[1:, sorted(SILENT)] = REJECTED  # an end inside a character
    return states


def _states(pieces: Sequence[bytes]) -> NDArray[np.int64]:
    """Return δ of whole tokens (S, V)."""
    lengths = np.array([len(piece) for piece in pieces])
    flat = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    starts, delta = lengths.cumsum() - lengths, automaton()
    states = np.repeat(np.arange(STATES, dtype=np.int64)[:, None], len(pieces), axis=1)
    for place in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > place)
        states[:, longer] = delta[states[:, longer], flat[starts[longer] + place]]
    return states
