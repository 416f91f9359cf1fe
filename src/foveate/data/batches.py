"""Batches: which examples belong together at which step, padding, and mixing corpora."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foveate.data.text import indices_for
from foveate.data.tokenizer import EOS, PAD

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Ids = Sequence[int] | NDArray[np.integer]


def pad(sequences: Sequence[Ids], value: int = PAD) -> NDArray[np.int64]:
    """Return sequences as rows (B, L), filled with ``value`` on the right; (0, 0) for none."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    longest = int(lengths.max(initial=0))
    padded = np.full((len(sequences), longest), value, dtype=np.int64)
    if longest:
        filled = np.arange(longest) < lengths[:, None]  # (B, L)
        padded[filled] = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in sequences])
    return padded


def source_batch(
    sources: Sequence[Ids], device: torch.device | None = None, start: Sequence[int] = ()
) -> tuple[Tensor, Tensor | None]:
    """Return ids (B, S) of sources with their ends, and where they are real, None if everywhere.

    ``start`` is put before each of them.
    """
    import torch

    ids = torch.from_numpy(pad([[*start, *s, EOS] for s in sources]))
    mask = ids != PAD
    return ids.to(device), None if bool(mask.all()) else mask.to(device)


Indices = NDArray[np.integer]
Lengths = NDArray[np.integer]

# The share of examples that an epoch sorts as one token too long: it changes neighbours from epoch
# to epoch at the cost of a little padding.
_STRAYS = 0.03
_DRAWN = 1 << 20  # random numbers held at a time


class BatchPlan:
    """Batches of similar lengths: a function of (lengths, budget, seed, epoch) and nothing else.

    A batch costs rows × length of its longest side, padding included, which is at most
    ``batch_tokens``; a longer example is a batch of its own. Each epoch contains every example
    once. Indices take 4 bytes each, and lengths below 16,384 two bytes per side.
    """

    def __init__(self, lengths: Lengths, batch_tokens: int, seed: int) -> None:
        """Take ``lengths`` (N, sides) in tokens, as they will be in the batch."""
        self.lengths = _by_sides(lengths, batch_tokens)
        self.batch_tokens, self.seed = batch_tokens, seed
        self._last_dealt = lru_cache(maxsize=1)(self._dealt)  # requested repeatedly at the start

    def epoch(self, number: int, /) -> list[Indices]:
        """Return the batches of an epoch, as indices, in order."""
        return list(self._last_dealt(number))

    def _dealt(self, number: int) -> list[Indices]:
        random = np.random.default_rng((self.seed, number))
        batches = _cut(self._order(random), self.lengths, self.batch_tokens)
        return [batches[i] for i in random.permutation(len(batches))]

    def _order(self, random: np.random.Generator) -> Indices:
        """Return the examples along a path on which both sides change little from one to the next.

        They are sorted by the longer side and then by the difference of the sides, rising and
        falling in turn, so that the path does not jump where the longer side grows; ties are
        random.
        """
        shuffled = np.arange(len(self.lengths), dtype=indices_for(len(self.lengths)))
        random.shuffle(shuffled)
        lengths = self.lengths[shuffled]
        longest = lengths.max(axis=1)
        for at in range(0, len(longest), _DRAWN):
            drawn = random.random(len(longest[at : at + _DRAWN]))
            longest[at : at + _DRAWN] += drawn < _STRAYS
        turn = 1 - 2 * (longest % 2)  # rising or falling
        differences = [turn * d for d in np.diff(lengths, axis=1).T]
        del lengths, turn
        return shuffled[np.lexsort((*differences, longest))]


def sorted_batches(
    lengths: Lengths, batch_tokens: int, max_rows: int | None = None
) -> list[Indices]:
    """Return batches for inference in the budget, longest first, so memory runs out at once."""
    lengths = _by_sides(lengths, batch_tokens)
    order = np.lexsort((*-lengths.T[::-1], -lengths.max(axis=1)))
    return _cut(order, lengths, batch_tokens, max_rows)


def _cut(
    order: Indices, lengths: Lengths, budget: int, max_rows: int | None = None
) -> list[Indices]:
    """Cut a path into the longest runs with rows × longest side ≤ budget."""
    limit = budget if max_rows is None else max_rows
    widths = np.maximum(lengths.max(axis=1), 1)[order]
    batches, start = [], 0
    while start < len(order):
        most = max(1, min(budget // int(widths[start]), limit))
        longest = np.maximum.accumulate(widths[start : start + most])
        cost = longest * np.arange(1, len(longest) + 1)
        rows = max(1, int(np.searchsorted(cost, budget, side="right")))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def _by_sides(lengths: Lengths, batch_tokens: int) -> Lengths:
    """Return (N, sides) in integers that hold lengths + 1 and differences; check the limits."""
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, not {batch_tokens}")
    if lengths.ndim not in (1, 2) or 0 in lengths.shape[1:]:
        raise ValueError(f"lengths must have the shape (N,) or (N, sides), not {lengths.shape}")
    if lengths.min(initial=0) < 0:
        raise ValueError(f"lengths must not be negative, but one is {lengths.min()}")
    kind: type[np.integer] = np.int16 if lengths.max(initial=0) < 1 << 14 else np.int64
    sides = lengths.size // max(1, len(lengths)) or 1
    return lengths.astype(kind, copy=False).reshape(len(lengths), sides)


class Mixture:
    """A plan in which corpus c has the share w_c / Σ w of the examples of every epoch.

    An epoch has as many examples as all corpora together. Each corpus is dealt out in one random
    order after another, and an epoch continues where the last one ended: no example is repeated
    before all others of its corpus have been used. A function of its arguments and the epoch alone.
    """

    def __init__(
        self,
        lengths: Lengths,
        batch_tokens: int,
        seed: int,
        corpora: NDArray[np.integer],
        weights: Sequence[float],
    ) -> None:
        """Take ``corpora`` (N,), the number of each example's corpus, from 0."""
        self.lengths, self.batch_tokens, self.seed = lengths, batch_tokens, seed
        kind = indices_for(len(lengths))
        self.members = [np.flatnonzero(corpora == c).astype(kind) for c in range(len(weights))]
        self._last_chosen = lru_cache(maxsize=1)(self._chosen)
        total = sum(w for w, m in zip(weights, self.members, strict=True) if len(m))
        self.counts = [
            round(len(lengths) * w / total) if len(m) else 0
            for w, m in zip(weights, self.members, strict=True)
        ]

    def epoch(self, number: int, /) -> list[Indices]:
        """Return the batches of an epoch, as indices, in order."""
        chosen, plan = self._last_chosen(number)
        return [chosen[batch] for batch in plan.epoch(number)]

    def _chosen(self, number: int) -> tuple[Indices, BatchPlan]:
        """Return the examples of an epoch, and the plan of their batches."""
        chosen = np.concatenate([self._dealt(c, number) for c in range(len(self.members))])
        return chosen, BatchPlan(self.lengths[chosen], self.batch_tokens, self.seed)

    def _dealt(self, corpus: int, number: int) -> Indices:
        """Return the examples of a corpus in an epoch: a window of its successive orders."""
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
