"""Lexically constrained beam search: the k places of a beam are shared among banks.

    bank(y) = number of tokens of wanted phrases that y has written,   0 … C
    the next beam: in turn the most probable extension of bank C, C − 1, …, 0, C, …

so that beginnings compete with those that have got as far as they have (grid beam search, Hokamp
& Liu, 2017; dynamic beam allocation, Post & Vilar, 2018). Extensions are the most probable ones
of each beginning, and those that bring it further. An output ends only with all its phrases; its
score is log p / lp under the model, as without phrases.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.beam import Beam, Extensions
from foveate.decode.constrained import Next
from foveate.decode.phrases import Demand, State

Candidate = tuple[float, int, int]  # log p, token, parent


class LexicalBeam(Beam):
    """A beam whose outputs hold the phrases that `Search.demands` asks for."""

    def extend(
        self,
        total: Float[Tensor, "M G n"],
        following: Next,
        place: Int[Tensor, "M G n"],
        end: int,
    ) -> Extensions:
        log_p, token, parent = super().extend(total, following, place, end)
        ledger = following.ledger
        if ledger is None:
            return log_p, token, parent
        for source, demand in enumerate(ledger.demands):
            if demand.phrases:
                rows = place[source, 0].tolist()
                states = [ledger.states[row] for row in rows]
                found = _extensions(demand, states, total[source, 0], following, rows)
                for n, one in enumerate(shared(demand, states, found, log_p.shape[-1])):
                    log_p[source, 0, n], token[source, 0, n], parent[source, 0, n] = one
        return log_p, token, parent


def _extensions(
    demand: Demand,
    states: Sequence[State],
    total: Float[Tensor, "n"],
    following: Next,
    rows: Sequence[int],
) -> list[Candidate]:
    """Of each beginning its most probable extensions, and those that bring it on in a phrase."""
    log_p = following.logits[rows] - following.log_z[rows] + total[:, None]  # (n, V)
    likely = log_p.topk(min(len(rows) + 1, log_p.shape[1]), dim=1).indices.tolist()
    pairs = [
        (token, parent)
        for parent, state in enumerate(states)
        for token in {*likely[parent], *demand.wanted(state)}
    ]
    tokens, parents = (list(part) for part in zip(*pairs, strict=True))
    return list(zip(log_p[parents, tokens].tolist(), tokens, parents, strict=True))


def shared(
    demand: Demand, states: Sequence[State], found: Sequence[Candidate], count: int
) -> list[Candidate]:
    """So many of the extensions: the best of each bank in turn, from the fullest bank down."""
    banks: dict[int, list[Candidate]] = {}
    for one in sorted(found, key=lambda one: -one[0]):
        if one[0] > -torch.inf:
            bank = demand.progress(demand.after(states[one[2]], one[1]))
            banks.setdefault(bank, []).append(one)
    order = [banks[bank][::-1] for bank in sorted(banks, reverse=True)]
    chosen: list[Candidate] = []
    while len(chosen) < count and any(order):
        for left in order:
            if left and len(chosen) < count:
                chosen.append(left.pop())
    return chosen + [(-torch.inf, 0, 0)] * (count - len(chosen))
