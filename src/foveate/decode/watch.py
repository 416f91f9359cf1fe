"""Watching a search: what each step looked at, what of it went on, what might have come instead.

Lives here: what a listener is told, and a listener that keeps it. Does not live here: the searches
(`foveate.decode.steps.Search.watched` makes one tell), and how a beam is drawn
(`foveate.look.lanes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.constrained import Next

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
