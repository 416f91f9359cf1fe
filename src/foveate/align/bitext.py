"""Pairs of sentences as numbers, and the table t(f | e) of a word given a word.

Lives here: what every statistical aligner shares, as arrays. Does not live here: which source word
a target word comes from (`ibm`, `hmm`), and text (the caller cuts it into words).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = Sequence[str]
Pair = tuple[Words, Words]  # source words, target words
Floats = NDArray[np.floating]
NULL = 0  # the number of the empty source word e_0
STEM = 4  # words with so many first letters in common may be cognates; shorter ones are equal
FLOOR = 1e-12  # t(f | e) of words that training never showed together


@dataclass(frozen=True)
class Group:
    """B pairs of S source and T target words: their indices (B,), the numbers of their words.

    ``source`` is (B, S + 1), NULL first; ``target`` is (B, T).
    """

    pairs: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """T and S, which the other direction's group has exchanged."""
        return self.target.shape[1], self.source.shape[1] - 1

    def keys(self, width: int) -> NDArray[np.int64]:
        """One number for each pair of words (f_j, e_i): (B, T, S + 1)."""
        keys: NDArray[np.int64] = self.source[:, None, :] * width + self.target[:, :, None]
        return keys


class Numbers:
    """The numbers of words: of the source from 1 (0 is NULL), of the target from 0.

    Words that training did not show share the last number.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.source: dict[str, int] = {}
        self.target: dict[str, int] = {}
        for source, target in pairs:
            for word in source:
                self.source.setdefault(word, len(self.source) + 1)
            for word in target:
                self.target.setdefault(word, len(self.target))
        self.width = len(self.target) + 1

    def stems(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of each source and target word's first `STEM` letters, NULL's own."""
        known: dict[str, int] = {"": 0}
        sides = ["", *self.source], [*self.target]
        source, target = (
            np.array([known.setdefault(word[:STEM].lower(), len(known)) for word in side])
            for side in sides
        )
        return source, target

    def groups(self, pairs: Sequence[Pair]) -> list[Group]:
        """Pairs in groups of equal lengths, so that arrays need no padding; empty ones left out."""
        of_lengths: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(pairs):
            if source and target:
                of_lengths.setdefault((len(source), len(target)), []).append(index)
        return [self._group(pairs, chosen) for _, chosen in sorted(of_lengths.items())]

    def _group(self, pairs: Sequence[Pair], chosen: list[int]) -> Group:
        source = _rows((pairs[i][0] for i in chosen), self.source, len(self.source) + 1)
        target = _rows((pairs[i][1] for i in chosen), self.target, len(self.target))
        return Group(np.array(chosen), np.pad(source, ((0, 0), (1, 0))), target)


def _rows(lines: Iterator[Words], known: Mapping[str, int], unknown: int) -> NDArray[np.int64]:
    return np.array([[known.get(word, unknown) for word in line] for line in lines], dtype=np.int64)


class Lexicon:
    """t(f | e) for all words that stand in one pair somewhere: N entries, sorted by their keys."""

    def __init__(self, keys: NDArray[np.int64], width: int) -> None:
        self.keys, self.width = keys, width
        self.source = keys // width
        partners = np.bincount(self.source)
        self.probability: Floats = np.append(1 / partners[self.source], FLOOR)

    @classmethod
    def of(cls, groups: Sequence[Group], width: int) -> tuple[Lexicon, NDArray[np.int64]]:
        """The uniform lexicon of a corpus, and where the words of its groups stand, end to end."""
        every = np.concatenate([group.keys(width).ravel() for group in groups])
        keys, places = np.unique(every, return_inverse=True)
        return cls(keys, width), places

    def places(self, group: Group) -> NDArray[np.int64]:
        """Where the words of a group stand in the table; N for what it does not hold."""
        keys = group.keys(self.width)
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        found: NDArray[np.int64] = np.where(self.keys[places] == keys, places, len(self.keys))
        return found

    def alike(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Whether the words of each entry begin alike: names, figures, cognates (N,)."""
        source, target = numbers.stems()
        same: NDArray[np.bool_] = source[self.source] == target[self.keys % self.width]
        return same

    def learn(self, counts: Floats, concentration: float, extra: Floats | None = None) -> None:
        """t(f | e) = c(f, e) / Σ_f' c(f', e); with a Dirichlet prior its variational mean.

        exp ψ(c(f, e) + α) / exp ψ(Σ_f' c(f', e) + α V), which takes from rare words what they
        would otherwise collect (Riley & Gildea, 2012); α = 0 is maximum likelihood. ``extra`` is
        added to α of each entry (N,).
        """
        counts = counts + (0.0 if extra is None else extra)
        totals = np.bincount(self.source, counts)
        if concentration:
            upper = np.exp(digamma(counts + concentration))
            lower = np.exp(digamma(totals + concentration * (self.width - 1)))
        else:
            upper, lower = counts, np.maximum(totals, np.finfo(float).tiny)
        self.probability = np.append(np.maximum(upper / lower[self.source], FLOOR), FLOOR)


def digamma(x: Floats) -> Floats:
    """ψ(x) = d log Γ(x) / dx for x > 0: ψ(x) = ψ(x + 6) − Σ_k 1/(x + k), then the series."""
    shift = sum(1 / (x + k) for k in range(6))
    y = x + 6
    z = 1 / (y * y)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    result: Floats = np.log(y) - 0.5 / y - series - shift
    return result
