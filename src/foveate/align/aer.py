"""Alignments judged against gold: precision, recall and error rate, of links and of heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.align.extract import Links, link_lines, read_link
from foveate.align.extract import links as most_looked_at


@dataclass(frozen=True)
class Gold:
    """What annotators linked in a sentence: sure links, and possible ones, the sure among them."""

    sure: Links
    possible: Links


@dataclass(frozen=True)
class Agreement:
    """Links counted over a corpus; sums, so that parts of a corpus add up.

    ``found`` are the links judged, ``sure`` the sure gold links, ``found_sure`` and
    ``found_possible`` those of ``found`` that are among the sure and among the possible.
    """

    found: int = 0
    sure: int = 0
    found_sure: int = 0
    found_possible: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.found + other.found,
            self.sure + other.sure,
            self.found_sure + other.found_sure,
            self.found_possible + other.found_possible,
        )

    @property
    def precision(self) -> float:
        """|A ∩ P| / |A|: the share of the links found that are possible; 0 where none is found."""
        return self.found_possible / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """|A ∩ S| / |S|: the share of the sure links that are found; 0 where none is sure."""
        return self.found_sure / self.sure if self.sure else 0.0

    @property
    def aer(self) -> float:
        """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the alignment error rate (Och and Ney, 2003).

        0 is best; 0 too where there is nothing to find and nothing found.
        """
        total = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / total if total else 0.0


def agree(found: Links, gold: Gold) -> Agreement:
    """The counts of one sentence."""
    possible = gold.possible | gold.sure
    return Agreement(len(found), len(gold.sure), len(found & gold.sure), len(found & possible))


def judge(found: Sequence[Links], gold: Sequence[Gold]) -> Agreement:
    """The counts of a corpus. Raises ``ValueError`` where the numbers of sentences differ."""
    if len(found) != len(gold):
        raise ValueError(f"{len(found)} alignments for {len(gold)} gold sentences; give as many")
    return sum(map(agree, found, gold), Agreement())


def aer(found: Sequence[Links], gold: Sequence[Gold]) -> float:
    """The alignment error rate of a corpus; see `Agreement.aer`."""
    return judge(found, gold).aer


def read_gold(path: str | Path) -> list[Gold]:
    """Gold alignments of a file, a line for a sentence: ``i-j`` sure, ``ipj`` possible, from 1.

    The indices of the answer count from 0; sure links are possible too. Raises ``ValueError``
    naming the file, line and entry.
    """
    return [_gold(line, f"{path}:{n}") for n, line in enumerate(link_lines(Path(path)), 1)]


def _gold(line: str, where: str) -> Gold:
    entries = line.split()
    sure = {_from_one(entry, "-", where) for entry in entries if "p" not in entry}
    possible = {_from_one(entry, "p", where) for entry in entries if "p" in entry}
    return Gold(sure, sure | possible)


def _from_one(entry: str, separator: str, where: str) -> tuple[int, int]:
    source, target = read_link(entry, separator, where)
    if not (source and target):
        raise ValueError(f"{where}: {entry!r} counts from 0; gold links count from 1")
    return source - 1, target - 1


def rank_heads(
    corpus: Iterable[Mapping[str, NDArray[np.float32]]],
    gold: Sequence[Gold],
    links: Callable[[NDArray[np.float32]], Links] = most_looked_at,
) -> list[tuple[str, int, Agreement]]:
    """Every head of a block as (name of its map, head, its counts), the least error rate first.

    ``corpus`` holds the maps (H, T, S), between words, of each sentence by name; it is read once,
    so that it may be a generator. ``links`` reads links from one head's (T, S). Equals stay in the
    order of the model. Raises ``ValueError`` where the numbers of sentences differ.
    """
    counts: dict[tuple[str, int], Agreement] = {}
    for maps, true in zip(corpus, gold, strict=True):
        for name, heads in maps.items():
            for head, weights in enumerate(heads):
                so_far = counts.get((name, head), Agreement())
                counts[name, head] = so_far + agree(links(weights), true)
    ranked = sorted(counts.items(), key=lambda entry: entry[1].aer)
    return [(name, head, agreement) for (name, head), agreement in ranked]
