"""The parts that all searches share: hypotheses, positions, limits, ensembles, forced scores."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Self, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, ConfigError, Configurable, merge
from foveate.decode.choosing import widened
from foveate.decode.constraints import (
    FREE,
    Constrained,
    Constraints,
    Next,
    OutputRule,
    Steps,
)
from foveate.decode.engine import Hypothesis, Outputs, check_outputs

PRUNED, LIVE, DONE = 0, 1, 2
Outcome = Literal["pruned", "live", "done"]
STATES: tuple[Outcome, ...] = ("pruned", "live", "done")


@dataclass(frozen=True)
class SearchPosition:
    """One position of the outputs of a search: the C candidates of each of M sources, best first.

    A candidate extends the hypothesis in row ``parent`` of ``following`` (the distributions of the
    position) by a token; one whose ``log_p`` is −∞ does not exist. ``place`` numbers the tokens
    that are searched; ``vocabulary`` holds their ids if they are not all of them. ``onward`` are
    the rows of the next position: indices, into the flattened (M, C), of the candidates in them, −1
    for a source that begins.
    """

    sources: list[int]
    place: Int[Tensor, "M C"]
    log_p: Float[Tensor, "M C"]
    score: Float[Tensor, "M C"]
    parent: Int[Tensor, "M C"]
    state: Int[Tensor, "M C"]
    onward: Int[Tensor, "R"]
    following: Next
    vocabulary: Int[Tensor, "W"] | None = None

    @property
    def token(self) -> Int[Tensor, "M C"]:
        """The ids of the candidates' last tokens."""
        return self.place if self.vocabulary is None else self.vocabulary[self.place]

    @property
    def token_log_p(self) -> Float[Tensor, "M C"]:
        """The log p of the candidates' last tokens."""
        logits, log_z = self.following.logits, self.following.log_z
        return logits[self.parent, self.place] - log_z[self.parent, 0]

    def alternatives(self, top_k: int) -> list[Alternatives]:
        """Return the ``top_k`` most probable tokens of each row; in a prefix the model's own."""
        rows = alternatives(self.following.free or self.following, top_k)
        if self.vocabulary is None:
            return rows
        ids = self.vocabulary.tolist()
        return [row._replace(tokens=[ids[place] for place in row.tokens]) for row in rows]


class Alternatives(NamedTuple):
    """The k most probable tokens of a position with log p, best first, and its entropy in nats.

    H = −Σ_v p(v) log p(v)
    """

    tokens: list[int]
    log_p: list[float]
    entropy: float


@dataclass(frozen=True)
class PartialHypothesis:
    """The first tokens of an output: those of its ``parent`` and one more.

    ``log_p`` and ``score`` cover all its tokens, ``token_log_p`` the last. ``id`` counts from 0 in
    the order of the search; ``parent`` is None for the first token.
    """

    id: int
    parent: int | None
    token: int
    token_log_p: float
    log_p: float
    score: float
    state: Outcome


class Watch:
    """The record of the search of one source: partial hypotheses and alternatives."""

    def __init__(self, top_k: int = 8) -> None:
        self.top_k = top_k
        self.positions: list[list[PartialHypothesis]] = []
        self._all: list[PartialHypothesis] = []
        self._choices: list[list[Alternatives]] = []  # by position and row
        self._place: list[tuple[int, int]] = []  # position and row of each partial hypothesis
        self._rows: list[int | None] = [None]  # partial hypothesis in each row of the next position

    def read(self, position: SearchPosition) -> list[PartialHypothesis]:
        """Record a position and return its partial hypotheses, best first.

        Raises ``ValueError`` if the search has several sources.
        """
        if len(position.sources) != 1:
            raise ValueError(f"a Watch follows one source, not {len(position.sources)}")
        self._choices.append(position.alternatives(self.top_k))
        candidates: dict[int, PartialHypothesis] = {}
        names = "token", "token_log_p", "log_p", "score", "parent", "state"
        parts = (getattr(position, name)[0].tolist() for name in names)
        for place, (token, own, log_p, score, row, state) in enumerate(zip(*parts, strict=True)):
            if log_p == -torch.inf:
                continue
            parent = self._rows[row if self.positions else 0]
            candidates[place] = PartialHypothesis(
                len(self._all), parent, token, own, log_p, score, STATES[state]
            )
            self._all.append(candidates[place])
            self._place.append((len(self.positions), row))
        onward = map(candidates.get, position.onward.tolist())
        self._rows = [None if candidate is None else candidate.id for candidate in onward]
        self.positions.append(list(candidates.values()))
        return self.positions[-1]

    def path(self, partial: PartialHypothesis) -> list[PartialHypothesis]:
        """Return a partial hypothesis and all that it extends, the first token first."""
        path = [partial]
        while path[-1].parent is not None:
            path.append(self._all[path[-1].parent])
        return path[::-1]

    def find(self, ids: Sequence[int], end: int) -> list[PartialHypothesis]:
        """Return the path of an output, whose ids lack its end; empty if no output ended there."""
        for hypothesis in self._all:
            if hypothesis.state == "done":
                path = self.path(hypothesis)
                tokens = [step.token for step in path]
                if tokens in ([*ids], [*ids, end]):
                    return path
        return []

    def instead(self, partial: PartialHypothesis) -> Alternatives:
        """Return the alternatives to the last token of a partial hypothesis."""
        position, row = self._place[partial.id]
        return self._choices[position][row]


def alternatives(following: Next, top_k: int) -> list[Alternatives]:
    """Return the ``top_k`` most probable tokens of each row, without p = 0, and its entropy."""
    log_p = (following.logits - following.log_z).float()
    entropy = -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(dim=1)
    best, tokens = log_p.topk(min(top_k, log_p.shape[1]), dim=1)
    rows = []
    for values, names, nats in zip(best.tolist(), tokens.tolist(), entropy.tolist(), strict=True):
        count = sum(value > -torch.inf for value in values)  # sorted: those of p = 0 come last
        rows.append(Alternatives(names[:count], values[:count], max(0.0, nats)))
    return rows


Positions = Generator[SearchPosition, None, Outputs]
Searching = Generator[Callable[[], SearchPosition], None, Outputs]
Yielded = TypeVar("Yielded")
Returned = TypeVar("Returned")
Mapped = TypeVar("Mapped")


def result_of(generator: Generator[Yielded, None, Returned]) -> Returned:
    """Return what a generator returns, discarding what it yields."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return cast("Returned", end.value)


def map_yields(
    generator: Generator[Yielded, None, Returned], function: Callable[[Yielded], Mapped]
) -> Generator[Mapped, None, Returned]:
    """Apply a function to all that a generator yields; return what it returns."""
    while True:
        try:
            value = next(generator)
        except StopIteration as end:
            return cast("Returned", end.value)
        yield function(value)


class Search(Configurable):
    """Chooses an output among all possible outputs."""

    class Config(BaseConfig, family="search"):
        """Length limits: at most ``max_ratio`` · source length + ``max_extra`` tokens.

        ``rules`` forbid tokens, such as those of repeated phrases. With ``shortlist`` only tokens
        that are likely for a source are searched, if the run has such a list and no prefix is
        given; p is then over these tokens only. With ``whole_characters`` outputs are valid UTF-8
        even if tokens are parts of characters (`foveate.decode.constraints`).
        """

        max_ratio: float = Field(2.0, ge=0, le=1000)
        """Longest output, as a multiple of the source's tokens (max_extra is added)."""
        max_extra: int = Field(20, ge=1, le=1_000_000)  # tokens that are added to that limit
        rules: tuple[OutputRule.Config, ...] = ()
        """Constraints that every output meets, such as no_repeat."""
        shortlist: bool = False
        """Whether scores are computed only for words that go with the source."""
        whole_characters: bool = True  # no output holds a part of a character's UTF-8 bytes

        @classmethod
        def like(cls, other: Search.Config, **changes: object) -> Self:
            """Return a config of this kind with the fields that ``other`` shares, and changes."""
            shared = {k: v for k, v in other.tree().items() if k in cls.model_fields}
            return cls.parse(merge(shared, changes), ("decode",))

        def giving(self, count: int) -> Search.Config:
            """Return the same search, wide enough for ``count`` outputs of each source.

            A kind with only one output returns a config of another kind.
            """
            return Search.Config.parse(widened(self.tree(), count), ("decode",))

    def __init__(self, config: Config) -> None:
        try:
            inspect.signature(self.find).bind(None)
        except TypeError:
            raise ConfigError(
                f"{type(self).__name__}.find takes the steps only: define find(self, steps); "
                "limits, start, end and rows are attributes of the steps, such as steps.limits"
            ) from None
        self.config = config

    @property
    def width(self) -> int:
        """The number of hypotheses of a source that are decoded at a time."""
        return 1

    def limits(self, lengths: Sequence[int]) -> list[int]:
        """Return the maximum length of the outputs of each source, by its own length."""
        return [int(self.config.max_ratio * n) + self.config.max_extra for n in lengths]

    @torch.no_grad()
    def __call__(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
        constraints: Constraints = FREE,
        vocabulary: Int[Tensor, "W"] | None = None,
    ) -> Outputs:
        """Return the hypotheses of each source, best first; ``start`` and ``end`` are ids.

        ``rows`` number the sources (0, 1, … if None): samples and ``constraints`` go by these
        numbers, so that the outputs of a source do not depend on its batch. Outputs may always have
        ``max_extra`` tokens after a prefix. ``vocabulary`` are the ids of the tokens that the steps
        know, None for all. Raises `NoOutputError` for a source without an output.
        """
        ends = start, end
        constrained = self._constrained(steps, lengths, ends, rows, constraints, vocabulary)
        return _checked(result_of(self.find(constrained)), constrained)

    @torch.no_grad()
    def positions(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
        constraints: Constraints = FREE,
        vocabulary: Int[Tensor, "W"] | None = None,
    ) -> Positions:
        """Run the same search, yielding position by position; it returns the same outputs."""
        ends = start, end
        constrained = self._constrained(steps, lengths, ends, rows, constraints, vocabulary)
        outputs = yield from map_yields(
            self.find(constrained), lambda position: replace(position(), vocabulary=vocabulary)
        )
        return _checked(outputs, constrained)

    def _constrained(
        self,
        steps: Steps,
        lengths: Sequence[int],
        ends: tuple[int, int],
        rows: Sequence[int] | None,
        constraints: Constraints,
        vocabulary: Int[Tensor, "W"] | None,
    ) -> Constrained:
        numbers, limits = list(range(len(lengths)) if rows is None else rows), self.limits(lengths)
        if constraints.prefixes:
            least = [len(constraints.prefixes[n]) + self.config.max_extra for n in numbers]
            limits = [max(both) for both in zip(limits, least, strict=True)]
        if constraints.longest is not None:
            limits = [min(limit, constraints.longest) for limit in limits]
        rules = [*(rule.build() for rule in self.config.rules), *constraints.rules]
        characters = constraints.characters if self.config.whole_characters else None
        own = replace(constraints, rules=rules, characters=characters)
        return Constrained(steps, limits, ends, numbers, own, vocabulary)

    def find(self, steps: Constrained) -> Searching:
        """Return the hypotheses of each source; the steps hold all constraints.

        A generator that yields, after each position, a function that makes its `SearchPosition`.
        This is called at once or not at all: a search that is not followed makes none.
        """
        raise NotImplementedError

    def posterior(self, hypotheses: Sequence[Hypothesis]) -> list[float]:
        """Return an estimate of p(y | x) from the outputs of one source: weights that sum to 1.

        w_i = p(y_i | x) / Σ_j p(y_j | x), for an n-best list (Kumar & Byrne, 2004).
        """
        log_p = torch.tensor([h.log_probability for h in hypotheses], dtype=torch.float64)
        weights: list[float] = log_p.softmax(dim=0).tolist()
        return weights

    def decide(
        self, hypotheses: list[Hypothesis], text: Callable[[list[int]], str]
    ) -> list[Hypothesis]:
        """Return the final outputs of one source, best first; ``text`` decodes ids.

        Only searches that compare texts change their order.
        """
        return hypotheses


Draw = tuple[int, int]  # the number of a source and of its output


class SingleSearch(Search, ABC):
    """A search whose outputs do not compete: ``width`` for each source, one token at a time.

    Sources whose outputs have ended leave the batch.
    """

    @abstractmethod
    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        """Return each output's next token; ``draws`` are the source and number of each output."""

    def find(self, steps: Constrained) -> Searching:
        width, device, rows = self.width, steps.device, steps.rows
        limits, end = steps.limits, steps.end
        outputs: Outputs = [[] for _ in limits]
        limit = torch.tensor(limits, device=device)
        alive = torch.arange(len(limits), device=device)  # (M,) sources still being decoded
        owner = alive.repeat_interleave(width)  # (N,) the source of each output, N = M · width
        total = torch.zeros(len(owner), device=device)  # (N,) log p so far
        done = torch.zeros(len(owner), dtype=torch.bool, device=device)
        written = torch.empty(len(owner), 0, dtype=torch.long, device=device)  # (N, t)
        ids = torch.full((len(limits),), steps.start, device=device)
        draws = [(row, k) for row in rows for k in range(width)]
        while len(alive):
            following = steps.step(ids)
            if len(ids) < len(owner):  # one row for each source, from which its outputs diverge
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
                outputs[int(owner[row])].append(output)
            before, done = done, done | ended | last
            over = done.view(-1, width).all(dim=1)
            yield partial(_position, rows, alive, following, (ids, total, before, done), over)
            if over.any():
                keep = (~over).nonzero().flatten()
                onward = (keep[:, None] * width + torch.arange(width, device=device)).flatten()
                steps.reorder(onward)
                steps.select(keep)
                alive, owner, ids, done = alive[keep], owner[onward], ids[onward], done[onward]
                total, written = total[onward], written[onward]
                draws = [draws[n] for n in onward.tolist()]
        return [sorted(each, key=lambda output: -output.score) for each in outputs]


def _position(
    rows: Sequence[int],
    alive: Int[Tensor, "M"],
    following: Next,
    outputs: tuple[Tensor, Tensor, Tensor, Tensor],
    over: Bool[Tensor, "M"],
) -> SearchPosition:
    """Return the position of outputs (token, log p, done before, done now), M · width each."""
    ids, total, before, done = (part.view(len(alive), -1) for part in outputs)
    shown = total.masked_fill(before, -torch.inf)
    state = torch.where(done, DONE, LIVE)
    parent = torch.arange(ids.numel(), device=ids.device).view_as(ids)
    sources, onward = [rows[i] for i in alive.tolist()], parent[~over].flatten()
    return SearchPosition(sources, ids, shown, shown, parent, state, onward, following)


def _checked(outputs: Outputs, steps: Constrained) -> Outputs:
    """Return the outputs with ids of the whole vocabulary. Raises `NoOutputError` without any."""
    check_outputs(outputs, steps.rows)
    if steps.vocabulary is None:
        return outputs
    ids = steps.vocabulary.tolist()
    return [[replace(h, ids=[ids[i] for i in h.ids]) for h in each] for each in outputs]


def log_mean_p(logits: Sequence[Float[Tensor, "*B V"]]) -> Float[Tensor, "*B V"]:
    """Return log 1/M Σ_m p_m(v), p_m the softmax of member m's logits (Sutskever et al., 2014)."""
    return log_mean([each.float().log_softmax(dim=-1) for each in logits])


def log_mean(log_p: Sequence[Float[Tensor, "*B"]]) -> Float[Tensor, "*B"]:
    """Return log 1/M Σ_m p_m, as log Σ_m exp(log p_m) − log M, so that nothing underflows."""
    return torch.stack(list(log_p)).logsumexp(dim=0) - math.log(len(log_p))


class EnsembleSteps:
    """Steps of several models over the same sources, all of which read the same tokens."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members, self.device = list(members), members[0].device

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Return the log of the members' mean p of each next token."""
        return log_mean_p([member.step(ids) for member in self.members])

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``, in every member."""
        for member in self.members:
            member.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only."""
        for member in self.members:
            member.select(sources)


def token_log_probabilities(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return log p(y_t | y_<t, x) of each token of the target."""
    picked = logits.gather(-1, target[..., None]).squeeze(-1)
    return picked.float() - logits.float().logsumexp(dim=-1)


@dataclass(frozen=True)
class DecodingBatch:
    """Sources that are decoded together, by their places among all sources.

    ``lengths`` are those that limits of the output go by; ``vocabulary`` are the ids of the tokens
    that the steps know, None for all.
    """

    places: Sequence[int]
    steps: Steps
    lengths: Sequence[int]
    vocabulary: Int[Tensor, "W"] | None = None
