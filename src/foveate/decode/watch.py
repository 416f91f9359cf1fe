"""The record of a search: its partial hypotheses, and the alternatives to each of their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from foveate.decode.constraints import Next
from foveate.decode.search import SearchPosition

Outcome = Literal["pruned", "live", "done"]
STATES: tuple[Outcome, ...] = ("pruned", "live", "done")  # PRUNED, LIVE and DONE of a search


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
        self._instead: list[Alternatives] = []  # by partial hypothesis
        self._rows: list[int | None] = [None]  # partial hypothesis in each row of the next position

    def read(self, position: SearchPosition) -> list[PartialHypothesis]:
        """Record a position and return its partial hypotheses, best first.

        Raises ``ValueError`` if the search has several sources.
        """
        if len(position.sources) != 1:
            raise ValueError(f"a Watch follows one source, not {len(position.sources)}")
        choices = alternatives(position.following.free or position.following, self.top_k)
        if position.vocabulary is not None:  # in a prefix the model's own
            own = position.vocabulary.tolist()
            choices = [row._replace(tokens=[own[i] for i in row.tokens]) for row in choices]
        first, ids = len(self._all), dict[int, int]()
        names = "token", "token_log_p", "log_p", "score", "parent", "state"
        parts = (getattr(position, name)[0].tolist() for name in names)
        for index, (token, own, log_p, score, row, state) in enumerate(zip(*parts, strict=True)):
            if log_p == -torch.inf:
                continue
            ids[index] = len(self._all)
            self._all.append(
                PartialHypothesis(
                    ids[index], self._rows[row], token, own, log_p, score, STATES[state]
                )
            )
            self._instead.append(choices[row])
        self._rows = [ids.get(index) for index in position.onward.tolist()]
        self.positions.append(self._all[first:])
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
                if [each.token for each in path] in ([*ids], [*ids, end]):
                    return path
        return []

    def instead(self, partial: PartialHypothesis) -> Alternatives:
        """Return the alternatives to the last token of a partial hypothesis."""
        return self._instead[partial.id]


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
