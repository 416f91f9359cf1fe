"""The parts that all searches share: hypotheses, positions, limits, ensembles, forced scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.config import BaseConfig, FromConfig, merge
from foveate.decode.constraints import (
    FREE,
    Constrained,
    Constraints,
    DecodingBatch,
    Next,
    OutputRule,
)
from foveate.decode.engine import Ending, Hypothesis, Outputs, check_outputs, widened

PRUNED, LIVE, DONE = 0, 1, 2  # states of a hypothesis


@dataclass(frozen=True)
class SearchPosition:
    """One position of the outputs of a search: the C candidates of each of M sources, best first.

    The candidates are the extensions of all groups. One extends the hypothesis in row ``parent`` of
    ``following`` (the distributions of the position) by a token; one whose ``log_p`` is −∞ does not
    exist. ``index`` numbers the tokens that are searched; ``vocabulary`` holds their ids if they
    are not all of them. ``onward`` are the rows of the next position: indices, into the flattened
    (M, C), of the candidates in them.
    """

    sources: list[int]
    index: Int[Tensor, "M C"]
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
        return self.index if self.vocabulary is None else self.vocabulary[self.index]

    @property
    def token_log_p(self) -> Float[Tensor, "M C"]:
        """The log p of the candidates' last tokens."""
        logits, log_z = self.following.logits, self.following.log_z
        return logits[self.parent, self.index] - log_z[self.parent, 0]


Positions = Generator[SearchPosition, None, Outputs]
Extensions = tuple[Tensor, Tensor, Tensor]  # log p, token and parent, (M, G, c) each
Groups = list[list[Hypothesis]]  # outputs of a source by group


@dataclass
class Followed:
    """The positions of a search, to iterate over; afterwards its ``outputs``."""

    positions: Positions
    outputs: Outputs = field(default_factory=list)

    def __iter__(self) -> Iterator[SearchPosition]:
        self.outputs = yield from self.positions


def result_of(positions: Positions) -> Outputs:
    """Return the outputs of a search whose positions are not needed."""
    followed = Followed(positions)
    for _ in followed:
        pass
    return followed.outputs


@dataclass(frozen=True)
class Beams:
    """The partial hypotheses of M sources that are being decoded: n in each of their G groups.

    ``sources`` are their numbers in the batch, ``tokens`` the t tokens of each hypothesis and
    ``log_p`` its log p, −∞ if it does not exist; the steps have read it in a ``row``. ``best`` are
    the highest scores of the outputs of each group, −∞ where there are fewer.
    """

    sources: Int[Tensor, "M"]
    log_p: Float[Tensor, "M G n"]
    tokens: Int[Tensor, "M G n t"]
    row: Int[Tensor, "M G n"]
    best: Float[Tensor, "M G n"]

    @classmethod
    def begin(cls, count: int, groups: int, size: int, device: torch.device) -> Beams:
        """Return an empty hypothesis in each group; those of a source share a row."""
        sources = torch.arange(count, device=device)
        row = sources[:, None, None].expand(-1, groups, 1)
        log_p, tokens = torch.zeros(row.shape, device=device), row.new_empty(*row.shape, 0)
        best = log_p.new_full((count, groups, size), -torch.inf)
        return cls(sources, log_p, tokens, row, best)

    @property
    def token(self) -> Int[Tensor, "M G n"]:
        """The last token of each hypothesis."""
        return self.tokens[..., -1]

    def extended(self, log_p: Tensor, token: Tensor, parent: Tensor) -> Beams:
        """Return these extensions, each in the row of the hypothesis that it extends."""
        tokens = torch.take_along_dim(self.tokens, parent[..., None], 2)
        tokens = torch.cat((tokens, token[..., None]), dim=-1)
        return replace(self, log_p=log_p, tokens=tokens, row=self.row.gather(-1, parent))

    def select(
        self,
        sources: Int[Tensor, "L"],
        hypotheses: Int[Tensor, "L G m"],
        state: Int[Tensor, "M G n"],
        best: Float[Tensor, "M G n"],
    ) -> Beams:
        """Return some hypotheses, in rows of their own; those that are not live do not exist."""
        log_p = self.log_p.masked_fill(state != LIVE, -torch.inf).flatten()[hypotheses]
        row = torch.arange(hypotheses.numel(), device=log_p.device).view_as(hypotheses)
        tokens = self.tokens.flatten(0, 2)[hypotheses]
        return Beams(self.sources[sources], log_p, tokens, row, best[sources])


def unfinished(ended: Bool[Tensor, "*B c"], size: int) -> Int[Tensor, "*B n"]:
    """Return the indices of n extensions: the first that have not ended, then ended ones."""
    return ended.long().argsort(dim=-1, stable=True)[..., :size]


def going_on(
    state: Int[Tensor, "M G c"], ended: Bool[Tensor, "M G c"], size: int
) -> tuple[Int[Tensor, "L"], Int[Tensor, "L G n"]]:
    """Return the sources with a live hypothesis, and the n extensions that each continues with."""
    sources = (state == LIVE).flatten(1).any(dim=1).nonzero().flatten()
    index = torch.arange(state.numel(), device=state.device).view_as(state)
    return sources, index.gather(-1, unfinished(ended, size))[sources]


def finish(
    longer: Beams,
    score: Float[Tensor, "M G c"],
    ended: Bool[Tensor, "M G c"],
    last: Bool[Tensor, "M"],
    search: Search,
) -> tuple[Int[Tensor, "M G c"], Float[Tensor, "M G n"]]:
    """Return the state of each extension, and the n highest scores of the ended ones of each group.

    Those among the n best that have ``ended`` are done. The n best of the others are live, unless
    this token is the ``last`` of their source, when they are done too, or their group is full: it
    has n outputs, without proof that no live hypothesis would score higher, unless the ``stop`` is
    "bound": then none of its n best outputs scores less than a live hypothesis does now. With
    "shrink" a group considers as many extensions as it lacks outputs.
    """
    size, stop = longer.best.shape[-1], search.stop
    lacks = longer.best.isinf().sum(dim=-1, keepdim=True) if stop == "shrink" else torch.inf
    rank = torch.arange(ended.shape[-1], device=ended.device)
    exists = (longer.log_p > -torch.inf) & (rank < lacks)
    going = ~ended & ((~ended).cumsum(dim=-1) <= size) & exists
    done = ended & exists & (rank < size)
    outputs = torch.cat((longer.best, score.masked_fill(~done, -torch.inf)), dim=-1)
    best = outputs.topk(size, dim=-1).values
    bar = score.masked_fill(~going, -torch.inf).amax(dim=-1) if stop == "bound" else -torch.inf
    full = (best[..., -1] > -torch.inf) & (best[..., -1] >= bar)
    live = going & ~full[..., None]
    cut = (live if search.forced_end else going) & last[:, None, None]  # full groups read no end
    return torch.where(done | cut, DONE, torch.where(live, LIVE, PRUNED)), best


def ranked(groups: Groups, size: int) -> list[Hypothesis]:
    """Return the n best outputs of each group in one list, best first."""
    best = [sorted(group, key=lambda h: (-h.score, not h.ended))[:size] for group in groups]
    return sorted((h for group in best for h in group), key=lambda h: -h.score)


class Search(FromConfig):
    """Chooses an output among all possible outputs."""

    class Config(BaseConfig, family="search"):
        """Length limits: at most ``max_ratio`` · source length + ``max_extra`` tokens.

        A ``shortlist`` is used if the run has one and no prefix is given; p is then over the tokens
        that are likely for a source only.
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
            wide = widened(own := self.tree(), count)
            return self if wide is own else Search.Config.parse(wide, ("decode",))

    config: Config
    width = 1  # hypotheses of a source that are decoded at a time
    groups = 1  # that they are divided into; hypotheses of a group compete
    stop: Ending = "count"  # when a group is full (`finish`)
    forced_end = False  # whether an output that is cut off counts as ended

    def limits(self, lengths: Sequence[int]) -> list[int]:
        """Return the maximum length of the outputs of each source, by its own length."""
        return [int(self.config.max_ratio * n) + self.config.max_extra for n in lengths]

    def __call__(
        self, batch: DecodingBatch, start: int, end: int, constraints: Constraints = FREE
    ) -> Outputs:
        """Return the hypotheses of each source, best first; ``start`` and ``end`` are ids.

        Samples and ``constraints`` go by the places of the sources, so that the outputs of a source
        do not depend on its batch. Outputs may always have ``max_extra`` tokens after a prefix.
        Raises `NoOutputError` for a source without an output.
        """
        return result_of(self.positions(batch, start, end, constraints))

    @torch.no_grad()
    def positions(
        self, batch: DecodingBatch, start: int, end: int, constraints: Constraints = FREE
    ) -> Positions:
        """Run the same search, yielding position by position; it returns the same outputs."""
        limits = self.limits(batch.lengths)
        if constraints.prefixes:
            least = [len(constraints.prefixes[n]) + self.config.max_extra for n in batch.places]
            limits = [max(both) for both in zip(limits, least, strict=True)]
        if constraints.longest is not None:
            limits = [min(limit, constraints.longest) for limit in limits]
        rules = [*(rule.build() for rule in self.config.rules), *constraints.rules]
        characters = constraints.characters if self.config.whole_characters else None
        own = replace(constraints, rules=rules, characters=characters)
        outputs = yield from self.find(Constrained(batch, limits, (start, end), own))
        check_outputs(outputs, batch.places)
        if batch.vocabulary is None:
            return outputs
        ids = batch.vocabulary.tolist()
        return [[replace(h, ids=[ids[i] for i in h.ids]) for h in each] for each in outputs]

    def find(self, steps: Constrained) -> Positions:
        """Return the hypotheses of each source, best first, and yield each position.

            read a token of each hypothesis → extend → finish → continue the live ones

        The steps hold all constraints. Sources without a live hypothesis leave the batch.
        """
        size, limit = self.width // self.groups, torch.tensor(steps.limits, device=steps.device)
        outputs: list[Groups] = [[[] for _ in range(self.groups)] for _ in steps.limits]
        beams = Beams.begin(len(limit), self.groups, size, steps.device)
        ids = torch.full_like(beams.sources, steps.start)
        while len(beams.sources):
            following = steps.step(ids)  # read
            longer = beams.extended(*self.extend(beams, following, steps))  # extend
            length = longer.tokens.shape[-1]
            score, ended = longer.log_p / self.penalty(length), longer.token == steps.end
            state, best = finish(longer, score, ended, length >= limit[beams.sources], self)
            self._collect(outputs, longer, state, steps.end)
            sources, onward = going_on(state, ended, size)  # continue
            yield SearchPosition(
                sources=[steps.numbers[source] for source in beams.sources.tolist()],
                index=longer.token.flatten(1),
                log_p=longer.log_p.flatten(1),
                score=score.flatten(1),
                parent=longer.row.flatten(1),
                state=state.flatten(1),
                onward=onward.flatten(),
                following=following,
                vocabulary=steps.vocabulary,
            )
            rows = longer.row.flatten()[onward.flatten()]
            if not torch.equal(rows, torch.arange(len(ids), device=rows.device)):
                steps.reorder(rows)
            if len(sources) < len(state):
                steps.select(sources)
            beams = longer.select(sources, onward, state, best)
            ids = beams.token.flatten()
        return [ranked(groups, size) for groups in outputs]

    def extend(self, beams: Beams, following: Next, steps: Constrained) -> Extensions:
        """Return extensions of the hypotheses of each group: log p, token, parent in the group.

        Each is (M, G, c), best first. ``following`` is the next token of each row of the steps.
        """
        raise NotImplementedError

    def penalty(self, length: int) -> float:
        """Return the divisor of log p for an output of ``length`` tokens, its end included."""
        return 1.0

    def _collect(
        self, outputs: list[Groups], beams: Beams, state: Int[Tensor, "M G c"], end: int
    ) -> None:
        """Add the hypotheses that are done to the outputs of their sources and groups."""
        for m, group, rank in (state == DONE).nonzero().tolist():
            ids = beams.tokens[m, group, rank].tolist()
            log_p, ended = float(beams.log_p[m, group, rank]), ids[-1] == end
            score = log_p / self.penalty(len(ids) + (self.forced_end and not ended))
            output = Hypothesis(ids[:-1] if ended else ids, log_p, score, ended)
            outputs[int(beams.sources[m])][group].append(output)

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

    There are as many ``groups``.
    """

    @abstractmethod
    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        """Return each output's next token; ``draws`` are the source and number of each output."""

    def extend(self, beams: Beams, following: Next, steps: Constrained) -> Extensions:
        if len(following.logits) < beams.row.numel():  # the first token: a row for each source
            following = following.of(beams.row.flatten())
        draws = [(steps.numbers[s], k) for s in beams.sources.tolist() for k in range(self.width)]
        token = self.choose(following.logits, beams.tokens.flatten(0, 2), draws)[:, None]
        picked = following.logits.gather(1, token) - following.log_z
        log_p = beams.log_p + picked.view_as(beams.row)
        return log_p, token.view_as(beams.row), torch.zeros_like(beams.row)


class Greedy(SingleSearch, kind="greedy"):
    """y_t = argmax p(y | y_<t, x): the most probable token at every position.

    A beam of one writes the same, with log p / lp as its score in place of log p; for several
    outputs take a beam.
    """

    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        return logits.argmax(dim=1)


def token_log_probabilities(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return log p(y_t | y_<t, x) of each token of the target."""
    picked = logits.gather(-1, target[..., None]).squeeze(-1)
    return picked.float() - logits.float().logsumexp(dim=-1)
