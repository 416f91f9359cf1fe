"""BPE-dropout: another split of the same text, drawn by chance (Provilkov et al., 2020).

Lives here: the merges of byte pair encoding one after the other, from a seed. Does not live here:
learning the merges and the plain split, which Hugging Face's `tokenizers` does (`subword`); its own
dropout takes no seed, so that a run could not be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

Pair = tuple[int, int]
Merges = Mapping[Pair, tuple[int, int]]  # two ids → the rank of their merge, and the id of both


def merges_of(vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]]) -> Merges:
    """The learned merges by ids, in the order in which they were learned."""
    return {
        (vocabulary[a], vocabulary[b]): (rank, vocabulary[a + b])
        for rank, (a, b) in enumerate(merges)
    }


def split(
    letters: Sequence[int], merges: Merges, dropout: float, chance: Iterator[float]
) -> list[int]:
    """The ids of a chunk: again and again the earliest-learned merge of those that chance leaves.

    Each possible merge is passed over with probability ``dropout``, anew in each round; the chunk
    is done where none is left. With 0 it is the plain split.
    """
    ids = list(letters)
    while True:
        found = [
            (*merges[pair], place)
            for place, pair in enumerate(pairwise(ids))
            if pair in merges and (dropout == 0 or next(chance) >= dropout)
        ]
        if not found:
            return ids
        _, merged, place = min(found)
        ids[place : place + 2] = [merged]


def uniform(seed: Sequence[int]) -> Iterator[float]:
    """Numbers in [0, 1) without end, a function of the seed."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.random(64).tolist()
