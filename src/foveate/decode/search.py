"""What every search shares: the protocol `Steps`, hypotheses, ensembles, forced scores."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, Configurable, merge
from foveate.decode.constraints import (
    ByteTable,
    CharacterMask,
    Constrained,
    Demand,
    Forbids,
    Ledger,
    Next,
    Rule,
    Steps,
)

PRUNED, LIVE, DONE = 0, 1, 2
State = Literal["pruned", "live", "done"]
STATES: tuple[State, ...] = ("pruned", "live", "done")


@dataclass(frozen=True)
class Step:
    """One step of a search: C beginnings of each of M sources that were looked at, best first.

    A beginning extends what stood in the row ``parent`` of ``following`` (what might have come) by
    ``token``; it is not there where its ``log_p`` is −∞. ``onward`` are the places, counted through
    (M, C), of the beginnings that stand in the rows of the next step.
    """

    sources: list[int]
    token: Int[Tensor, "M C"]
    log_p: Float[Tensor, "M C"]
    score: Float[Tensor, "M C"]
    parent: Int[Tensor, "M C"]
    state: Int[Tensor, "M C"]
    onward: Int[Tensor, "R"]
    following: Next


Listener = Callable[[Step], None]


class Alternatives(NamedTuple):
    """The k most probable tokens of a place with their log p, best first, and its entropy in nats.

    H = −Σ_v p(v) log p(v)
    """

    tokens: list[int]
    log_p: list[float]
    entropy: float


@dataclass(frozen=True)
class Beginning:
    """The first tokens of an output: those of its ``parent`` and one more.

    ``log_p`` and ``score`` are of all its tokens, ``token_log_p`` of the last. ``id`` counts from 0
    in the order in which beginnings were met; ``parent`` is None for the first token.
    """

    id: int
    parent: int | None
    token: int
    token_log_p: float
    log_p: float
    score: float
    state: State


class Watch:
    """A listener that keeps the search of one source: beginnings step by step, and alternatives.

    ``told`` is called after every step with its beginnings, best first. What raises in it stops
    the search.
    """

    def __init__(
        self, top_k: int = 8, told: Callable[[list[Beginning]], None] | None = None
    ) -> None:
        self.top_k, self.told = top_k, told
        self.steps: list[list[Beginning]] = []
        self._all: list[Beginning] = []
        self._choices: list[list[Alternatives]] = []  # by step and row
        self._place: list[tuple[int, int]] = []  # of each beginning: its step, its row there
        self._rows: list[int | None] = [None]  # the beginning in each row of the next step

    def __call__(self, step: Step) -> None:
        """Keep a step. Raises ``ValueError`` where a search has several sources."""
        if len(step.sources) != 1:
            raise ValueError(f"a Watch follows one source, not {len(step.sources)}")
        self._choices.append(alternatives(step.following.free or step.following, self.top_k))
        picked = step.following.logits[step.parent[0], step.token[0]]
        own: list[float] = (picked - step.following.log_z[step.parent[0], 0]).tolist()
        found: dict[int, Beginning] = {}
        parts = (step.token[0], step.log_p[0], step.score[0], step.parent[0], step.state[0])
        for place, (token, log_p, score, row, state) in enumerate(
            zip(*(part.tolist() for part in parts), strict=True)
        ):
            if log_p == -torch.inf:
                continue
            one = Beginning(
                len(self._all),
                self._rows[row if self.steps else 0],
                token,
                own[place],
                log_p,
                score,
                STATES[state],
            )
            found[place] = one
            self._all.append(one)
            self._place.append((len(self.steps), row))
        self._rows = [found[place].id if place in found else None for place in step.onward.tolist()]
        self.steps.append(list(found.values()))
        if self.told is not None:
            self.told(self.steps[-1])

    def path(self, one: Beginning) -> list[Beginning]:
        """A beginning and all that it extends, the first token first."""
        found = [one]
        while found[-1].parent is not None:
            found.append(self._all[found[-1].parent])
        return found[::-1]

    def find(self, ids: Sequence[int], end: int) -> list[Beginning]:
        """The path of an output (without its end): its beginnings, that of its end among them.

        Empty where the search never ended there.
        """
        for one in self._all:
            if one.state == "done":
                path = self.path(one)
                tokens = [step.token for step in path]
                if tokens in ([*ids], [*ids, end]):
                    return path
        return []

    def instead(self, one: Beginning) -> Alternatives:
        """What might have come in the place of a beginning's last token."""
        step, row = self._place[one.id]
        return self._choices[step][row]


def alternatives(following: Next, top_k: int) -> list[Alternatives]:
    """The ``top_k`` most probable tokens of each row, and the entropy of all.

    Tokens that may not come (p = 0) are left out.
    """
    log_p = (following.logits - following.log_z).float()
    entropy = -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(dim=1)
    best, tokens = log_p.topk(min(top_k, log_p.shape[1]), dim=1)
    found = []
    for values, names, spread in zip(best.tolist(), tokens.tolist(), entropy.tolist(), strict=True):
        kept = [(t, v) for t, v in zip(names, values, strict=True) if v > -torch.inf]
        found.append(Alternatives([t for t, _ in kept], [v for _, v in kept], max(0.0, spread)))
    return found


# ------------------------------------------------------------------------------------------- steps
# What a search asks of a model, and what it gives back.


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
        beginning is given; scores are then those of p over these. With ``whole_characters`` outputs
        are valid UTF-8 also where tokens are parts of characters (`foveate.decode.constraints`).
        """

        max_ratio: float = Field(2.0, ge=0)
        """Longest output, as a multiple of the source's tokens (max_extra is added)."""
        max_extra: int = Field(20, ge=1)  # tokens that are added to that limit
        rules: tuple[Rule.Config, ...] = ()
        """Constraints that every output meets, such as no_repeat."""
        shortlist: bool = False
        """Whether scores are computed only for words that go with the source."""
        whole_characters: bool = True  # no output holds a part of a character's UTF-8 bytes

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
        self.table: ByteTable | None = None

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

    def spelling(self, table: ByteTable | None) -> Self:
        """The same search over tokens that may be parts of characters: each comes out whole."""
        spelled = copy.copy(self)
        spelled.table = table if self.config.whole_characters else None
        return spelled

    def among(self, tokens: Tensor) -> Self:
        """The same search over some tokens alone, by their places among these."""
        some = copy.copy(self)
        some.table = None if self.table is None else self.table.of(tokens)
        return some

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
        if self.table is not None:
            kept.characters = CharacterMask(self.table, limits, kept.device)
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


# ------------------------------------------------------------------------------------------ single
# Searches whose outputs do not compete: a token at a time of each, then it is settled.

Draw = tuple[int, int]  # the number of a source, and which of its outputs


class SingleSearch(Search, ABC):
    """``width`` outputs a source, side by side; sources that have ended leave the batch."""

    @abstractmethod
    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        """The next token of each output; ``draws`` says which outputs they are."""

    @torch.no_grad()
    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        width, device = self.width, steps.device
        found: list[list[Hypothesis]] = [[] for _ in limits]
        limit = torch.tensor(limits, device=device)
        alive = torch.arange(len(limits), device=device)  # (M,) sources still being decoded
        owner = alive.repeat_interleave(width)  # (N,) the source of each output, N = M · width
        total = torch.zeros(len(owner), device=device)  # (N,) log p so far
        done = torch.zeros(len(owner), dtype=torch.bool, device=device)
        written = torch.empty(len(owner), 0, dtype=torch.long, device=device)  # (N, t)
        ids = torch.full((len(limits),), start, device=device)
        draws = [(row, k) for row in rows for k in range(width)]
        while len(alive):
            following = steps.step(ids)
            if len(ids) < len(owner):  # one beginning a source, from which its outputs part
                following = following.of(owner)
                steps.reorder(owner)
            ids = self.choose(following.logits, written, draws)
            picked = following.logits.gather(1, ids[:, None]) - following.log_z
            total = total + picked.squeeze(1)
            written = torch.cat((written, ids[:, None]), dim=1)
            ended = ids == end
            last = written.shape[1] >= limit[owner]
            for row in ((ended | last) & ~done).nonzero().flatten().tolist():
                output = Hypothesis.alone(written[row].tolist(), float(total[row]), end)
                found[int(owner[row])].append(output)
            before, done = done, done | ended | last
            over = done.view(-1, width).all(dim=1)
            if self.listener is not None:
                sources = [rows[i] for i in alive.tolist()]
                shown = total.masked_fill(before, -torch.inf).view(-1, width)
                state = torch.where(done, DONE, LIVE).view(-1, width)
                parent = torch.arange(len(owner), device=device).view(-1, width)
                onward = parent[~over].flatten()
                token = ids.view(-1, width)
                self.listener(Step(sources, token, shown, shown, parent, state, onward, following))
            if over.any():
                keep = (~over).nonzero().flatten()
                kept = (keep[:, None] * width + torch.arange(width, device=device)).flatten()
                steps.reorder(kept)
                steps.select(keep)
                alive, owner, ids, done = alive[keep], owner[kept], ids[kept], done[kept]
                total, written = total[kept], written[kept]
                draws = [draws[n] for n in kept.tolist()]
        return [sorted(outputs, key=lambda one: -one.score) for outputs in found]


# ---------------------------------------------------------------------------------------- ensemble
# Several models that decode together: the mean of what they say of the next token.
#
#     p(v | y_<t, x) = 1/M Σ_m p_m(v | y_<t, x)
#     log p = log Σ_m exp(log p_m) − log M             so that nothing underflows
#
# The members read the same tokens. Lives here: the equation, for steps and for whole sequences.
# Does
# not live here: which models go together (`foveate.tasks.text_to_text`).


def log_mean_p(logits: Sequence[Float[Tensor, "*B V"]]) -> Float[Tensor, "*B V"]:
    """Log of the mean of softmax(logits) over the members (Sutskever et al., 2014, decode so)."""
    log_p = torch.stack([one.float().log_softmax(dim=-1) for one in logits])
    return log_p.logsumexp(dim=0) - math.log(len(logits))


class EnsembleSteps:
    """Steps of several models over the same sources, hypothesis by hypothesis."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members, self.device = list(members), device_of(members[0])

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Log of the members' mean p of each next token."""
        return log_mean_p([member.step(ids) for member in self.members])

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``, in every member."""
        for member in self.members:
            member.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        for member in self.members:
            member.select(sources)


# ------------------------------------------------------------------------------------------ forced
# Forced decoding: the log-probability of an output that is given.


def token_log_probabilities(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Log p(y_t | y_<t, x) of each given token."""
    picked = logits.gather(-1, target[..., None]).squeeze(-1)
    return picked.float() - logits.float().logsumexp(dim=-1)
