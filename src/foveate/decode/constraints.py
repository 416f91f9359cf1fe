"""Rules on what an output must and must not contain: over tokens and phrases, and their masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, FromConfig
from foveate.data.tokenizer import Tokenizer
from foveate.decode.engine import REJECTED, STATES, WHOLE, Stop, check_stop, token_states
from foveate.decode.phrases import BannedPhrases, Phrase, WordPieces

LONGEST = 3  # continuation bytes of a character, and so tokens that finish one


@dataclass(frozen=True)
class ByteTable:
    """The automaton over the tokens of a vocabulary.

    *Shapes:* ``after`` (S, V), the state after each token, 0 if it is barred; ``barred`` (4, S, V),
    whether it may not come, by how many tokens may follow it (3: as many as needed); ``always``
    (C,), the tokens that may never come between characters.
    """

    after: Int[Tensor, "S V"]
    barred: Bool[Tensor, "4 S V"]
    always: Int[Tensor, "C"]

    @classmethod
    def over(cls, states: Int[Tensor, "S V"]) -> ByteTable:
        """Return the table for the transitions ``states`` of whole tokens; `REJECTED` for none."""
        whole = torch.arange(STATES) == WHOLE
        finished, barred = whole, []  # (S,) whether this many tokens suffice from a state
        for _ in range(LONGEST + 1):
            allowed = torch.cat((finished, torch.tensor([False])))[states]  # (S, V)
            barred.append(~allowed)
            finished = finished | allowed.any(dim=1)
        stuck = torch.stack(barred).all(dim=2)  # too few tokens left: as if there were enough
        each = torch.where(stuck[..., None], barred[-1], torch.stack(barred))
        after = states.where(~barred[-1], torch.zeros(()).to(states))
        return cls(after, each, barred[-1][WHOLE].nonzero().flatten())

    @property
    def states(self) -> Int[Tensor, "S V"]:
        """The state after each token, `REJECTED` if it is barred."""
        return self.after.where(~self.barred[-1], torch.tensor(REJECTED).to(self.after))

    def of(self, tokens: Int[Tensor, "W"]) -> ByteTable:
        """Return the table of some tokens only, numbered by their index in ``tokens``."""
        return ByteTable.over(self.states[:, tokens.to(self.after.device)])


def byte_table(tokenizer: Tokenizer) -> ByteTable | None:
    """Return the cached table of a tokenizer; None if each of its pieces is valid UTF-8."""
    return _table(tokenizer, tokenizer.vocab_size)


@lru_cache(maxsize=8)
def _table(tokenizer: Tokenizer, _: int) -> ByteTable | None:
    states = token_states(tokenizer)
    return None if states is None else ByteTable.over(torch.from_numpy(states))


class CharacterMask:
    """The UTF-8 state of each hypothesis of a search, and how many tokens it may still get."""

    def __init__(self, table: ByteTable, limits: Sequence[int], device: torch.device) -> None:
        parts = table.after, table.barred, table.always
        self.table = ByteTable(*(part.to(device) for part in parts))
        self.left = torch.tensor(limits, dtype=torch.long, device=device) + 1  # with the start
        self.state = torch.zeros_like(self.left)  # (N,), like `left`
        self.least = min(limits, default=0) + 1  # ≤ each of ``left``
        self.inside = False  # whether any hypothesis ends inside a character

    def read(self, ids: Int[Tensor, "N"]) -> None:
        """Read one more token of each hypothesis."""
        after = self.table.after
        self.state = after[self.state, ids] if self.inside else after[WHOLE].index_select(0, ids)
        self.left, self.least = self.left - 1, self.least - 1
        self.inside = bool(self.state.any())

    def apply(self, logits: Tensor) -> Tensor:
        """Return the logits (N, V), with −∞ written to the tokens that may not follow."""
        always = self.table.always
        if not self.inside and self.least > LONGEST:
            logits.T.index_fill_(0, always, -torch.inf)  # by columns: three times as fast
            return logits
        rows = ((self.state != WHOLE) | (self.left <= LONGEST)).nonzero().flatten()
        room = (self.left[rows] - 1).clamp(0, LONGEST)
        own = logits[rows].masked_fill_(self.table.barred[room, self.state[rows]], -torch.inf)
        logits.T.index_fill_(0, always, -torch.inf)
        logits[rows] = own
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``."""
        self.state, self.left = self.state.index_select(0, rows), self.left.index_select(0, rows)


@dataclass(frozen=True)
class PhraseState:
    """The phrases in a partial hypothesis: met, met unless the word continues, and begun.

    ``committed`` counts the ids written of a phrase that was forced on the model: the next token
    continues it, or, if it is ``closed`` (written to its end), does not continue the word.
    """

    met: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    within: tuple[tuple[int, int, int], ...] = ()  # phrase, spelling, number of ids written
    last_in_word: bool = False
    first: bool = True  # whether nothing is written yet
    committed: int = 0
    closed: bool = False


START = PhraseState()


@dataclass(frozen=True)
class RequiredPhrases:
    """The phrases that the outputs of one source must contain.

    A phrase is met when one of its spellings is written as whole words: the next token must not
    continue the word, and a ``bare`` spelling must not follow a token that ends inside a word. A
    phrase that is forced on the model begins where the model begins a word, and is completed.
    """

    phrases: tuple[Phrase, ...]
    pieces: WordPieces

    def after(self, state: PhraseState, token: int, forced: bool = False) -> PhraseState:
        """Return the state after one more token; ``forced`` if the model did not choose it."""
        met = state.met if self.pieces.goes_on[token] else state.met | state.pending
        sizes, whole = set[int](), set[int]()
        pending, within = set[int](), list[tuple[int, int, int]]()
        for phrase, spelling, done in self._open(state, met):
            ids, size = self.phrases[phrase][spelling].ids, done + 1
            if ids[done] != token:
                continue
            sizes.add(size)
            if size == len(ids):
                pending.add(phrase)
                whole.add(size)
            else:
                within.append((phrase, spelling, size))
        size = state.committed + 1 if state.committed and state.committed + 1 in sizes else 0
        committed = size or (max(sizes, default=0) if forced else 0)
        in_word, rest = self.pieces.in_word[token], (frozenset(pending), tuple(within))
        return PhraseState(met, *rest, in_word, False, committed, committed in whole)

    def _open(self, state: PhraseState, met: frozenset[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the spellings that the next token may continue or begin."""
        yield from state.within
        for number, phrase in enumerate(self.phrases):
            if number not in met:
                for n, spelling in enumerate(phrase):
                    if not (spelling.bare and state.last_in_word) and (
                        state.first or not spelling.initial
                    ):
                        yield number, n, 0

    def next_tokens(self, state: PhraseState, top: int | None) -> set[int]:
        """Return the tokens that continue a phrase, or begin one where the model begins a word.

        ``top`` is the model's first choice, None if it ends the text: a bare spelling begins if it
        is a letter, and another if it does not continue a word.
        """
        goes_on, tokens = self.pieces.goes_on, set[int]()
        for phrase, number, done in self._open(state, state.met | state.pending):
            spelling = self.phrases[phrase][number]
            token = spelling.ids[done]
            apart = spelling.bare and not goes_on[token]  # no letter, or of an unspaced script
            begins = top is not None and (apart or spelling.bare == goes_on[top])
            if state.committed:
                ready = state.closed and top is not None
                begins = ready and not (spelling.bare or goes_on[token])
            if begins if not done else done == (state.committed or done):
                tokens.add(token)
        return tokens

    def progress(self, state: PhraseState) -> int:
        """Return how many tokens of phrases are written: the bank of a partial hypothesis."""
        met = state.met | state.pending
        whole = sum(max(len(spelling.ids) for spelling in self.phrases[p]) for p in met)
        return whole + max((done for p, _, done in state.within if p not in met), default=0)

    def done(self, state: PhraseState) -> bool:
        """Return whether an output may end in this state."""
        return len(state.met | state.pending) == len(self.phrases)


class PhraseTracker:
    """The phrase states of all hypotheses of a batch, in rows grouped by source."""

    def __init__(self, demands: Sequence[RequiredPhrases]) -> None:
        self.demands = list(demands)
        self.states = [START] * len(self.demands)
        self.top: list[int | None] = []  # most probable next token, None for the end
        self.likely: list[set[int]] = []  # per hypothesis, the tokens that are not forced
        self.goes_on = torch.tensor([demand.pieces.goes_on for demand in self.demands[:1]])
        self._begun = False

    def read(self, ids: Int[Tensor, "N"]) -> None:
        """Read one more id of each hypothesis; the first is the start and does not count."""
        if self._begun:
            rows = zip(self.of_rows(), self.states, ids.tolist(), self.likely, strict=True)
            self.states = [
                d.after(state, token, token not in likely) if d.phrases else state
                for d, state, token, likely in rows
            ]
        self._begun = True

    def of_rows(self) -> list[RequiredPhrases]:
        """Return the required phrases of each row's source."""
        each = len(self.states) // max(1, len(self.demands))
        return [demand for demand in self.demands for _ in range(each)]

    def unmet(self) -> list[int]:
        """Return the rows whose outputs may not end yet."""
        pairs = zip(self.of_rows(), self.states, strict=True)
        return [row for row, (demand, state) in enumerate(pairs) if not demand.done(state)]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``."""
        self.states = [self.states[row] for row in rows.tolist()]
        self.likely = [self.likely[row] for row in rows.tolist()]

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only."""
        self.demands = [self.demands[source] for source in sources.tolist()]


Forbidden = tuple[Int[Tensor, "F"], Int[Tensor, "F"]]


class Forbids(ABC):
    """A rule about which tokens may not come next: a forbidden token has p = 0."""

    @abstractmethod
    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        """Return pairs of a row of ``written``, without start, and a token that may not follow."""


class OutputRule(FromConfig, Forbids):
    """A rule of a config about the outputs of every search."""

    class Config(BaseConfig, family="rule"):
        """The kind of rule."""


class NoRepeat(OutputRule):
    """No n-gram of tokens occurs twice in an output (Paulus et al., 2018)."""

    class Config(OutputRule.Config, kind="no_repeat"):
        """``size`` is n."""

        size: int = Field(3, ge=1)  # no n-gram of this many tokens occurs twice in an output

    config: Config

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        n, length = self.config.size, written.shape[1]
        if length < n:
            return written[:, 0:0].flatten(), written[:, 0:0].flatten()
        grams = written.unfold(1, n, 1)  # (N, t − n + 1, n)
        last = written[:, length - n + 1 :]  # (N, n − 1), which the next token would extend
        again = (grams[..., :-1] == last[:, None]).all(dim=-1)
        row, place = again.nonzero(as_tuple=True)
        return row, grams[row, place, -1]


class MinLength(OutputRule):
    """An output has at least so many tokens, its end left out."""

    class Config(OutputRule.Config, kind="min_length"):
        """``length`` in tokens."""

        length: int = Field(1, ge=1)  # tokens that an output has at least

    config: Config

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        rows = torch.arange(len(written), device=written.device)
        rows = rows[: len(rows) if written.shape[1] < self.config.length else 0]
        return rows, torch.full_like(rows, end)


class Banned(Forbids):
    """A rule: no output contains any of some phrases as whole words, regardless of case."""

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer) -> None:
        self.phrases = BannedPhrases(phrases, tokenizer)

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        """Return each token with which a row would end in a banned phrase."""
        pairs = [
            (row, token)
            for row, ids in enumerate(written[:, -self.phrases.longest - 1 :].tolist())
            for token in self.phrases.completing(ids)
        ]
        rows, tokens = torch.tensor(pairs, dtype=torch.long, device=written.device).view(-1, 2).T
        return rows, tokens


class Next(NamedTuple):
    """Each hypothesis's next token: log p(v) = ``logits[:, v] − log_z``, −∞ if v may not come.

    ``free`` is the distribution without the given prefix; None if it is the same. ``tracker`` holds
    the phrases that each hypothesis has met; ``of`` drops it. *Shapes:* ``logits`` (N, V),
    ``log_z`` (N, 1).
    """

    logits: Float[Tensor, "N V"]
    log_z: Float[Tensor, "N 1"]
    free: Next | None = None
    tracker: PhraseTracker | None = None

    def of(self, rows: Int[Tensor, "R"]) -> Next:
        """Return the same for some hypotheses, which may be repeated."""
        free = None if self.free is None else self.free.of(rows)
        return Next(self.logits[rows], self.log_z[rows], free)


class Steps(Protocol):
    """A batch of sources being decoded: N hypotheses at a time, in rows grouped by source.

    Logits are on ``device``.
    """

    device: torch.device = torch.device("cpu")

    def step(self, ids: Tensor) -> Tensor:
        """Read one more id (N,) of each hypothesis; return logits (N, V) of the next token.

        The caller may overwrite them.
        """

    def reorder(self, rows: Tensor) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``."""

    def select(self, sources: Tensor) -> None:
        """Continue with these sources only, whose hypotheses are already reordered."""


@dataclass(frozen=True)
class DecodingBatch:
    """Sources that are decoded together: their ``places`` among all sources, and their steps.

    The limits of the outputs depend on ``lengths``; ``vocabulary`` are the ids of the tokens that
    the steps know, None for all.
    """

    places: Sequence[int]
    steps: Steps
    lengths: Sequence[int]
    vocabulary: Int[Tensor, "W"] | None = None


@dataclass(frozen=True)
class Constraints:
    """The constraints on outputs; ``prefixes`` and ``required`` phrases by source number.

    A given token whose id is at least ``certain``, such as a language, has p = 1; 0 means none.
    ``characters`` is the table of a vocabulary whose tokens may be parts of characters. Before each
    position ``stop`` is called; if it returns True, `SearchStopped` is raised.
    """

    prefixes: Sequence[Sequence[int]] = ()
    rules: Sequence[Forbids] = ()
    required: Sequence[RequiredPhrases] = ()
    characters: ByteTable | None = None
    stop: Stop | None = None
    longest: int | None = None  # most tokens of an output, if the model sets a limit
    certain: int = 0


FREE = Constraints()


class Constrained:
    """Steps whose outputs obey rules, begin with given prefixes and contain required phrases.

        log p(v | y_<t, x) = z_v − log Z,   Z = Σ_w exp z_w      −∞ if v may not come

    ``limits`` are the maximum lengths of each source's outputs, their ends included, ``ends`` the
    ids of start and end. Neither rules nor a prefix change Z: the score of an output is that of the
    same output without them. Rules begin after the prefix. If rules allow no token, the output
    ends, with p = 1; inside a character they wait for its end.
    """

    def __init__(
        self,
        batch: DecodingBatch,
        limits: Sequence[int],
        ends: tuple[int, int],
        constraints: Constraints,
    ) -> None:
        self.steps, self.device, self.vocabulary = batch.steps, batch.steps.device, batch.vocabulary
        self.limits, self.numbers, (self.start, self.end) = limits, batch.places, ends
        self.written: Tensor | None = None  # (N, t) without the start, for the rules
        self.length = -1  # tokens written so far
        self.rules, self.stop = constraints.rules, constraints.stop
        self.certain = constraints.certain or 2**31
        # of the sources that are still being decoded
        numbers, prefixes, required = batch.places, constraints.prefixes, constraints.required
        self.prefixes = [prefixes[n] for n in numbers] if prefixes else []
        demands = [required[n] for n in numbers] if required else []
        self.tracker = PhraseTracker(demands) if any(d.phrases for d in demands) else None
        table = constraints.characters
        if table is not None and batch.vocabulary is not None:
            table = table.of(batch.vocabulary)
        self.characters = None if table is None else CharacterMask(table, limits, self.device)

    def step(self, ids: Int[Tensor, "N"]) -> Next:
        """Return the next token of each hypothesis, after reading one more id of each.

        Required phrases take no part in Z either: an end before all of them has p = 0.
        """
        check_stop(self.stop)
        if self.tracker is not None:
            self.tracker.read(ids)
        self.length += 1
        if self.rules:
            new = ids[:, None]
            self.written = new[:, :0] if self.written is None else torch.cat((self.written, new), 1)
        logits = self.steps.step(ids)
        if self.characters is not None:
            self.characters.read(ids)
        following = self._prefixed(logits) if self.prefixes else self._ruled(logits)
        if self.tracker is None:
            return following
        top = following.logits.argmax(dim=1).tolist()
        self.tracker.top = [None if token == self.end else token for token in top]
        self.tracker.likely = [set() for _ in self.tracker.top]
        unmet = torch.tensor(self.tracker.unmet(), dtype=torch.long, device=logits.device)
        following.logits[unmet, self.end] = -torch.inf
        return following._replace(tracker=self.tracker)

    def _ruled(self, logits: Tensor) -> Next:
        """Return the next token without a prefix; a forbidden token's logit is set to −∞."""
        characters, log_z = self.characters, logits.logsumexp(dim=1, keepdim=True)
        unruled = logits.clone() if self.rules and characters is not None else logits
        for rule in self.rules:
            assert self.written is not None
            rows, tokens = rule.forbidden(self.written, self.end)
            logits[rows, tokens] = -torch.inf
        if characters is not None:
            characters.apply(logits)
        if self.rules:
            stuck = logits.amax(dim=1).isneginf()
            logits[stuck, self.end] = log_z[stuck, 0]
            if characters is not None:
                inside = (stuck & (characters.state != WHOLE)).nonzero().flatten()
                logits[inside] = characters.apply(unruled)[inside]
        return Next(logits, log_z)

    def _prefixed(self, logits: Tensor) -> Next:
        """Return the next token; hypotheses inside their prefix have a single choice."""
        at = self.length
        pairs = [(i, p[at]) for i, p in enumerate(self.prefixes) if len(p) > at]
        if not pairs:
            return self._ruled(logits)
        source, token = torch.tensor(pairs, device=logits.device).unbind(dim=1)
        each = len(logits) // len(self.prefixes)
        rows = (source[:, None] * each + torch.arange(each, device=logits.device)).flatten()
        only = token.repeat_interleave(each)
        own, free = logits[rows, only], logits.clone()
        ruled, log_z = self._ruled(logits)[:2]
        following = Next(ruled, log_z.clone(), free=Next(free, log_z))
        ruled[rows] = -torch.inf
        ruled[rows, only] = own
        following.log_z[rows, 0] = torch.where(only < self.certain, log_z[rows, 0], own)
        return following

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``."""
        self.steps.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)
        if self.characters is not None:
            self.characters.reorder(rows)
        if self.tracker is not None:
            self.tracker.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only."""
        self.steps.select(sources)
        if self.prefixes:
            self.prefixes = [self.prefixes[source] for source in sources.tolist()]
        if self.tracker is not None:
            self.tracker.select(sources)
