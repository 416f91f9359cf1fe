"""The elements of a run of text, by the characters that they are around.

Does not live here: where a run is cut (`foveate.passages.run`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foveate.data.vocabulary import Span
from foveate.passages.pieces import Piece

LONGEST = 1000  # characters and elements of a sentence; what is longer is cut at white space


@dataclass(frozen=True)
class Leaf:
    """What is kept as it is: a protected span, or an object, whose text may be empty.

    The model sees it only if ``shown``.
    """

    start: int
    end: int
    pieces: tuple[Piece, ...]
    span: str | None = None
    shown: bool = False
    count: int = 1  # of the elements and leaves that it is


@dataclass
class Node:
    """An element around the characters from ``start`` to ``end`` of the run."""

    start: int
    end: int = -1
    open: str = ""
    close: str = ""
    kids: list[Node | Leaf] = field(default_factory=list)
    count: int = 1

    @property
    def long(self) -> bool:
        """Whether it is no part of a sentence, but sentences are parts of it."""
        return self.end - self.start + self.count > LONGEST


def overlapped(cuts: Sequence[Span], kid: Node) -> list[Span]:
    """The cuts, which are in order and disjoint, that an element overlaps."""
    first = bisect_left(cuts, kid.start, key=lambda cut: cut[1])
    last = bisect_right(cuts, kid.end, key=lambda cut: cut[0])
    return [(a, b) for a, b in cuts[first:last] if a < kid.end or b > kid.start]


def leaves(node: Node) -> Iterator[Leaf]:
    """All leaves of an element, in order."""
    for kid in node.kids:
        if isinstance(kid, Leaf):
            yield kid
        else:
            yield from leaves(kid)
