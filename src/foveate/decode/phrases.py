"""Phrases that an output must hold, as token sequences: how far each beginning has got with them.

A phrase is met when one of its spellings is written as whole words: what follows must not go on
with the word, and a spelling without a blank before it only follows what ends none. Does not live
here: how a beam shares its places (`lexical_beam`), text (`wording`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Spelling(NamedTuple):
    """The ids of a phrase; ``bare`` if it brings no blank of its own."""

    ids: tuple[int, ...]
    bare: bool = False


Phrase = tuple[Spelling, ...]  # any of these meets it


@dataclass(frozen=True)
class Pieces:
    """Of each id, whether it goes on with a word, and whether it ends in the middle of one."""

    goes_on: Sequence[bool]
    in_word: Sequence[bool]


@dataclass(frozen=True)
class State:
    """What a beginning has met for good, what it meets unless the word goes on, what it is in."""

    met: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    within: tuple[tuple[int, int, int], ...] = ()  # phrase, spelling, ids of it written
    last_in_word: bool = False


START = State()


@dataclass(frozen=True)
class Demand:
    """The phrases that the outputs of one source must hold."""

    phrases: tuple[Phrase, ...]
    pieces: Pieces

    def after(self, state: State, token: int) -> State:
        """The state once a token is written."""
        met = state.met if self.pieces.goes_on[token] else state.met | state.pending
        pending, within = set[int](), list[tuple[int, int, int]]()
        for phrase, spelling, done in self._open(state, met):
            ids = self.phrases[phrase][spelling].ids
            if ids[done] != token:
                continue
            if done + 1 == len(ids):
                pending.add(phrase)
            else:
                within.append((phrase, spelling, done + 1))
        in_word = self.pieces.in_word[token]
        return State(met, frozenset(pending), tuple(within), in_word)

    def _open(self, state: State, met: frozenset[int]) -> Iterator[tuple[int, int, int]]:
        """Spellings that may go on with the next token, those that may begin included."""
        yield from state.within
        for number, phrase in enumerate(self.phrases):
            if number not in met:
                for n, spelling in enumerate(phrase):
                    if not (spelling.bare and state.last_in_word):
                        yield number, n, 0

    def wanted(self, state: State) -> set[int]:
        """The tokens that would bring a beginning further."""
        met = state.met | state.pending
        places = self._open(state, met)
        return {self.phrases[p][s].ids[done] for p, s, done in places}

    def progress(self, state: State) -> int:
        """How many tokens of phrases are written: the number of a beginning's bank."""
        met = state.met | state.pending
        whole = sum(self._size(phrase) for phrase in met)
        return whole + max((done for p, _, done in state.within if p not in met), default=0)

    def _size(self, phrase: int) -> int:
        return max(len(spelling.ids) for spelling in self.phrases[phrase])

    def done(self, state: State) -> bool:
        """Whether an output may end here."""
        return len(state.met | state.pending) == len(self.phrases)


class Ledger:
    """The states of all hypotheses of a batch, rows grouped by source."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.demands = list(demands)
        self.states = [START] * len(self.demands)
        self._begun = False

    def read(self, ids: Int[Tensor, "N"]) -> None:
        """Each hypothesis has written one more id; the first is the start, which counts not."""
        if self._begun:
            demands = self.of_rows()
            self.states = [
                d.after(state, token) if d.phrases else state
                for d, state, token in zip(demands, self.states, ids.tolist(), strict=True)
            ]
        self._begun = True

    def of_rows(self) -> list[Demand]:
        """The demand of each row's source."""
        each = len(self.states) // max(1, len(self.demands))
        return [demand for demand in self.demands for _ in range(each)]

    def unmet(self) -> list[int]:
        """The rows that may not end yet."""
        pairs = zip(self.of_rows(), self.states, strict=True)
        return [row for row, (demand, state) in enumerate(pairs) if not demand.done(state)]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.states = [self.states[row] for row in rows.tolist()]

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        self.demands = [self.demands[source] for source in sources.tolist()]


def allowed(logits: Tensor, ledger: Ledger, end: int) -> Tensor:
    """The logits, −∞ where an output would end before it holds all its phrases."""
    rows = ledger.unmet()
    if rows:
        logits[torch.tensor(rows, device=logits.device), end] = -torch.inf
    return logits
