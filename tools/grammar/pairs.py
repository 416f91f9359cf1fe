"""The pairs of the embedded corpora that have links between words."""

from __future__ import annotations

from dataclasses import dataclass

from foveate.data.synthetic import ENDINGS, read_lines


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    """A sentence, its translation, and which words translate which.

    ``alignment`` holds pairs (i, j): source word i, target word j, counted from 0, words as in
    `data.words.split_words`. A word may have several partners or none.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def pairs(split: str, count: int, corpus: str = "short") -> list[SyntheticPair]:
    """Return a split's first ``count`` distinct pairs with links. Raises like `read_lines`."""
    columns = (read_lines(split, ending, count, corpus) for ending in ENDINGS)
    result = []
    for source, target, links in zip(*columns, strict=True):
        ends = (link.split("-") for link in links.split())
        result.append(SyntheticPair(source, target, tuple((int(i), int(j)) for i, j in ends)))
    return result
