"""Epochs of several corpora, each with its share.

Lives here: which examples an epoch has. Does not live here: how they are put into batches (`plan`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.columns import indices_for
from foveate.data.plan import Indices, Last, Lengths, Plan


class Mixture:
    """A plan in which corpus c has the share w_c / Σ w of the examples of every epoch.

    An epoch has as many examples as all corpora together. Each corpus is dealt out in orders drawn
    anew, one after the other, and an epoch goes on where the last one ended: no example comes again
    before all others of its corpus have come. A function of its arguments and the epoch alone.
    """

    def __init__(
        self,
        lengths: Lengths,
        batch_tokens: int,
        seed: int,
        corpora: NDArray[np.integer],
        weights: Sequence[float],
    ) -> None:
        """``corpora`` (N,): the number of each example's corpus, from 0."""
        self.lengths, self.batch_tokens, self.seed = lengths, batch_tokens, seed
        kind = indices_for(len(lengths))
        self.members = [np.flatnonzero(corpora == c).astype(kind) for c in range(len(weights))]
        self._last = Last()
        total = sum(w for w, m in zip(weights, self.members, strict=True) if len(m))
        self.counts = [
            round(len(lengths) * w / total) if len(m) else 0
            for w, m in zip(weights, self.members, strict=True)
        ]

    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
        """The batches of an epoch, as indices, in order."""
        chosen, plan = self._last.of(number, lambda: self._chosen(number))
        return [chosen[batch] for batch in plan.epoch(number, rank, world)]

    def _chosen(self, number: int) -> tuple[Indices, Plan]:
        """The examples of an epoch, and the plan of their batches."""
        chosen = np.concatenate([self._dealt(c, number) for c in range(len(self.members))])
        return chosen, Plan(self.lengths[chosen], self.batch_tokens, self.seed)

    def _dealt(self, corpus: int, number: int) -> Indices:
        """The examples of a corpus in an epoch: a window of its orders, one after the other."""
        members, count = self.members[corpus], self.counts[corpus]
        if count == 0:
            return members[:0]
        start = number * count
        rounds = range(start // len(members), (start + count - 1) // len(members) + 1)
        orders = [
            np.random.default_rng((self.seed, corpus, r)).permutation(members) for r in rounds
        ]
        skip = start - rounds[0] * len(members)
        return np.concatenate(orders)[skip : skip + count]
