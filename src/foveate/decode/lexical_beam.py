"""Beam search whose outputs contain required phrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from foveate.decode.beam import Beam
from foveate.decode.constraints import (
    Constrained,
    Next,
    PhraseState,
    PhraseTracker,
    RequiredPhrases,
)
from foveate.decode.search import Beams, Extensions

Candidate = tuple[float, int, int]  # log p, token, parent


class LexicalBeam(Beam):
    """A beam whose outputs contain the required phrases, in banks by their progress.

        bank(y) = number of tokens of required phrases in y,   0 … C
        the next beam: in turn the most probable extension of bank C, C − 1, …, 0, C, …

    so that hypotheses compete with those of equal progress (grid beam search, Hokamp & Liu, 2017;
    dynamic beam allocation, Post & Vilar, 2018). Candidates are the most probable extensions of
    each hypothesis and those that continue a phrase. An output ends only with all its phrases; its
    score is log p / lp under the model, as without phrases.
    """

    def extend(self, beams: Beams, following: Next, steps: Constrained) -> Extensions:
        log_p, token, parent = super().extend(beams, following, steps)
        tracker = following.tracker
        if tracker is None:
            return log_p, token, parent
        for source, demand in enumerate(tracker.demands):
            if demand.phrases:
                rows = beams.row[source, 0].tolist()
                states = [tracker.states[row] for row in rows]
                candidates = _extensions(demand, tracker, beams.log_p[source, 0], following, rows)
                chosen = allocate(demand, states, candidates, log_p.shape[-1])
                for n, extension in enumerate(chosen):
                    log_p[source, 0, n], token[source, 0, n], parent[source, 0, n] = extension
        return log_p, token, parent


def _extensions(
    demand: RequiredPhrases,
    tracker: PhraseTracker,
    total: Float[Tensor, "n"],
    following: Next,
    rows: Sequence[int],
) -> list[Candidate]:
    """Return the most probable extensions of each hypothesis, and those that continue a phrase.

    A hypothesis that is committed to a phrase has only the latter, until the phrase is written.
    """
    log_p = following.logits[rows] - following.log_z[rows] + total[:, None]  # (n, V)
    goes_on = tracker.goes_on.to(log_p.device)  # (1, V)
    count, candidates = min(len(rows) + 1, log_p.shape[1]), list[Candidate]()
    for parent, (row, own) in enumerate(zip(rows, log_p, strict=True)):
        committed = tracker.states[row]
        for state in (committed, replace(committed, committed=0, closed=False)):
            open_to = own.masked_fill(goes_on[0], -torch.inf) if state.closed else own
            value, token = open_to.topk(count)
            free = state.closed or not state.committed
            likely = set(token[value > -torch.inf].tolist()) if free else set[int]()
            tokens = list(likely | demand.next_tokens(state, tracker.top[row]))
            scored = zip(own[tokens].tolist(), tokens, [parent] * len(tokens), strict=True)
            possible = [candidate for candidate in scored if candidate[0] > -torch.inf]
            if possible:
                break
        tracker.likely[row] = likely
        candidates += possible
    return candidates


def allocate(
    demand: RequiredPhrases,
    states: Sequence[PhraseState],
    candidates: Sequence[Candidate],
    count: int,
) -> list[Candidate]:
    """Return ``count`` candidates: the best of each bank in turn, from the fullest bank down."""
    banks: dict[int, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate[0]):
        _, token, parent = candidate
        bank = demand.progress(demand.after(states[parent], token))
        banks.setdefault(bank, []).append(candidate)
    queues = [banks[bank][::-1] for bank in sorted(banks, reverse=True)]
    chosen: list[Candidate] = []
    while len(chosen) < count and any(queues):
        for left in queues:
            if left and len(chosen) < count:
                chosen.append(left.pop())
    return chosen + [(-torch.inf, 0, 0)] * (count - len(chosen))
