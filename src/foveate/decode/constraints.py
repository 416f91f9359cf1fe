"""What an output must and must not hold: rules over tokens and phrases, and the masks they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable
from foveate.data.tokenizer import SILENT, Tokenizer
from foveate.native.kernels import log_sum_exp

WHOLE, REJECTED, STATES = 0, 8, 8
LONGEST = 3  # continuation bytes of a character, and so tokens that finish one
PADDING = 256  # stands behind the bytes of a token and changes no state


def automaton() -> NDArray[np.int8]:
    """δ (states + 1, bytes + 1) of UTF-8: 0 between characters, 8 rejected.

    States 1, 2 and 3 wait for as many continuation bytes; 4 to 7 stand behind E0, ED, F0 and F4,
    whose next byte is restricted.
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


@dataclass(frozen=True)
class ByteTable:
    """The automaton over the tokens of a vocabulary.

    *Shapes:* ``after`` (S, V) the state behind each token, 0 where it is barred; ``barred``
    (4, S, V) whether it may not come, by how many tokens may follow it (3: as many as needed);
    ``always`` (C,) the tokens that may never come between characters.
    """

    after: Int[Tensor, "S V"]
    barred: Bool[Tensor, "4 S V"]
    always: Int[Tensor, "C"]

    @classmethod
    def over(cls, states: Int[Tensor, "S V"]) -> ByteTable:
        """The table of tokens whose δ is given, `REJECTED` where there is none."""
        whole = torch.arange(STATES) == WHOLE
        finished, barred = whole, []  # (S,) whether so many tokens suffice from a state
        for _ in range(LONGEST + 1):
            allowed = torch.cat((finished, torch.tensor([False])))[states]  # (S, V)
            barred.append(~allowed)
            finished = finished | allowed.any(dim=1)
        stuck = torch.stack(barred).all(dim=2)  # too few tokens are left: then as if there were all
        each = torch.where(stuck[..., None], barred[-1], torch.stack(barred))
        after = states.where(~barred[-1], torch.zeros(()).to(states))
        return cls(after, each, barred[-1][WHOLE].nonzero().flatten())

    def of(self, tokens: Int[Tensor, "W"]) -> ByteTable:
        """The table of some tokens alone, by their places among these."""
        chosen = tokens.to(self.after.device)
        states = self.after.where(~self.barred[-1], torch.tensor(REJECTED).to(self.after))
        return ByteTable.over(states[:, chosen])

    def to(self, device: torch.device) -> ByteTable:
        """The same on a device."""
        return ByteTable(*(part.to(device) for part in (self.after, self.barred, self.always)))


def byte_table(tokenizer: Tokenizer) -> ByteTable | None:
    """That of a tokenizer, made once; None where each of its pieces is valid UTF-8 by itself."""
    return _table(tokenizer, tokenizer.vocab_size)


@lru_cache(maxsize=8)
def _table(tokenizer: Tokenizer, _: int) -> ByteTable | None:
    pieces = tokenizer.surfaces
    states = _states(pieces)
    if bool((states[WHOLE] == WHOLE).all()):
        return None
    states[1:, sorted(SILENT)] = REJECTED  # an end inside a character
    return ByteTable.over(torch.from_numpy(states))


def _states(pieces: Sequence[bytes]) -> NDArray[np.int64]:
    """δ of whole tokens (S, V)."""
    lengths = np.array([len(piece) for piece in pieces])
    flat = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    starts, delta = lengths.cumsum() - lengths, automaton()
    states = np.repeat(np.arange(STATES, dtype=np.int64)[:, None], len(pieces), axis=1)
    for place in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > place)
        states[:, longer] = delta[states[:, longer], flat[starts[longer] + place]]
    return states


class CharacterMask:
    """Where each hypothesis of a search stands in UTF-8, and how many tokens it may still write."""

    def __init__(self, table: ByteTable, limits: Sequence[int], device: torch.device) -> None:
        self.table = table.to(device)
        self.limits = torch.tensor(limits, dtype=torch.long, device=device) + 1  # with the start
        self.state, self.left = torch.zeros_like(self.limits), self.limits  # (N,) each

    def read(self, ids: Int[Tensor, "N"]) -> None:
        """Go on by one token of each hypothesis."""
        self.state, self.left = self.table.after[self.state, ids], self.left - 1

    def apply(self, logits: Tensor) -> Tensor:
        """Logits (N, V), into which −∞ is written at the tokens that may not follow."""
        rows = ((self.state != WHOLE) | (self.left <= LONGEST)).nonzero().flatten()
        room = (self.left[rows] - 1).clamp(0, LONGEST)
        own = logits[rows].masked_fill_(self.table.barred[room, self.state[rows]], -torch.inf)
        logits.T.index_fill_(0, self.table.always, -torch.inf)  # by columns: three times as fast
        logits[rows] = own
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.state, self.left = self.state.index_select(0, rows), self.left.index_select(0, rows)

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Take sources in, a hypothesis each after the others'."""
        new = self.limits[sources]
        self.state = torch.cat((self.state, torch.zeros_like(new)))
        self.left = torch.cat((self.left, new))


# ----------------------------------------------------------------------------------------- phrases
# Phrases that an output must hold, as token sequences: how far each beginning has got with them.
#
# A phrase is met when one of its spellings is written as whole words: what follows must not go on
# with the word, and a spelling without a blank before it only follows what ends none. Does not
# live
# here: how a beam shares its places (`lexical_beam`), text (`wording`).


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


# ------------------------------------------------------------------------------------------- rules
# Rules about what an output may hold, for every search: a token that is forbidden has p = 0.

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

        size: int = Field(3, ge=1)  # no n-gram of this many tokens occurs twice in an output

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

        length: int = Field(1, ge=1)  # tokens that an output has at least

    config: Config

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        rows = torch.arange(len(written), device=written.device)
        rows = rows[: len(rows) if written.shape[1] < self.config.length else 0]
        return rows, torch.full_like(rows, end)


# ------------------------------------------------------------------------------------- constrained
# What may come next: the model's distribution, of which rules and given beginnings leave a part.
#
#     log p(v | y_<t, x) = z_v − log Z,   Z = Σ_w exp z_w      w over the tokens that rules allow
#
# A beginning that is given takes no part in Z: the score of an output counts what its beginning
# costs the model, and is that of the same output found freely. Rules wait until it is written.


class Next(NamedTuple):
    """Each hypothesis's next token: log p(v) = ``logits[:, v] − log_z``, −∞ where v may not come.

    ``free`` is what might come where a beginning is given; None where it is the same. ``of`` leaves
    the ``ledger`` out.

    *Shapes:* ``logits`` (N, V), ``log_z`` (N, 1).
    """

    logits: Float[Tensor, "N V"]
    log_z: Float[Tensor, "N 1"]
    free: Next | None = None
    ledger: Ledger | None = None  # how far each has got with phrases that are asked for

    def of(self, rows: Int[Tensor, "R"]) -> Next:
        """Those of some hypotheses, which may be repeated."""
        free = None if self.free is None else self.free.of(rows)
        return Next(self.logits[rows], self.log_z[rows], free)


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


class Constrained:
    """Steps that keep rules and begin each output as it was asked to begin.

    ``prefixes`` are the first tokens of each source's outputs, none where there are no lists.
    Where rules allow nothing the output ends, with p = 1; inside a character they wait for its end.
    """

    def __init__(
        self,
        steps: Steps,
        rules: Sequence[Forbids],
        prefixes: Sequence[Sequence[int]],
        end: int,
        ledger: Ledger | None = None,
    ) -> None:
        self.steps, self.rules, self.end = steps, rules, end
        self.device: torch.device = getattr(steps, "device", torch.device("cpu"))
        self.written: Tensor | None = None  # (N, t), what rules read; the start is left out
        self.length = -1  # tokens written so far
        self.prefixes = list(prefixes)  # of the sources that are still being decoded
        self.ledger = ledger
        self.characters: CharacterMask | None = None  # where tokens are parts of characters

    def step(self, ids: Int[Tensor, "N"]) -> Next:
        """What may follow, after reading one more id of each hypothesis.

        Phrases that are asked for take no part in Z either: an end that comes too soon is −∞.
        """
        if self.ledger is None:
            return self._step(ids)
        self.ledger.read(ids)
        following = self._step(ids)
        allowed(following.logits, self.ledger, self.end)
        return following._replace(ledger=self.ledger)

    def _step(self, ids: Int[Tensor, "N"]) -> Next:
        self.length += 1
        if self.rules:
            new = ids[:, None]
            self.written = new[:, :0] if self.written is None else torch.cat((self.written, new), 1)
        logits = self.steps.step(ids)
        if self.characters is not None:
            self.characters.read(ids)
        begun = self._begun(logits)
        if begun is None:
            return self._ruled(logits)
        rows, given = begun
        free = Next(logits.clone(), log_sum_exp(logits))
        following = self._ruled(logits)
        following.logits[rows], following.log_z[rows] = given.logits, given.log_z
        return Next(following.logits, following.log_z, free)

    def _ruled(self, logits: Tensor) -> Next:
        """What may follow freely: −∞ at what a rule forbids, which is written into the logits."""
        characters = self.characters
        unruled = logits.clone() if self.rules and characters is not None else logits
        for rule in self.rules:
            assert self.written is not None
            rows, tokens = rule.forbidden(self.written, self.end)
            logits[rows, tokens] = -torch.inf
        log_z = log_sum_exp(logits)
        if characters is not None:
            characters.apply(logits)
        if self.rules:
            stuck = logits.amax(dim=1).isneginf()
            logits[stuck, self.end] = 0.0
            log_z[stuck] = 0.0
            if characters is not None:
                inside = (stuck & (characters.state != WHOLE)).nonzero().flatten()
                log_z[inside] = log_sum_exp(unruled[inside])
                logits[inside] = characters.apply(unruled)[inside]
        return Next(logits, log_z)

    def _begun(self, logits: Tensor) -> tuple[Tensor, Next] | None:
        """The hypotheses whose beginnings are not yet written, and the one token that follows."""
        at = self.length
        pairs = [(i, p[at]) for i, p in enumerate(self.prefixes) if len(p) > at]
        if not pairs:
            return None
        source, token = torch.tensor(pairs, device=logits.device).unbind(dim=1)
        each = len(logits) // len(self.prefixes)
        rows = (source[:, None] * each + torch.arange(each, device=logits.device)).flatten()
        own, only = logits[rows], token.repeat_interleave(each)[:, None]
        alone = torch.full_like(own, -torch.inf).scatter(1, only, own.gather(1, only))
        return rows, Next(alone, log_sum_exp(own))

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.steps.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)
        if self.characters is not None:
            self.characters.reorder(rows)
        if self.ledger is not None:
            self.ledger.reorder(rows)

    @property
    def enters(self) -> bool:
        """Whether sources may `enter` while others are being decoded: they do as they like."""
        return getattr(self.steps, "enters", False) and not (
            self.rules or self.prefixes or self.ledger
        )

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Take sources in that had been left out, a hypothesis each after the others'."""
        cast(Any, self.steps).enter(sources)
        if self.characters is not None:
            self.characters.enter(sources)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        self.steps.select(sources)
        if self.prefixes:
            self.prefixes = [self.prefixes[source] for source in sources.tolist()]
        if self.ledger is not None:
            self.ledger.select(sources)
