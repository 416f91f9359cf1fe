"""One alignment from two directions: set operations on links, growing from those both agree on.

Links of both directions are (source, target). (Och & Ney, 2003; Koehn et al., 2003, 2005)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from foveate.align.extract import Link, Links

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def symmetrize(forward: Links, backward: Links, method: Method = "grow-diag-final-and") -> Links:
    """The links of a pair from those of both directions."""
    return METHODS[method](forward, backward)


def grow_diag(forward: Links, backward: Links) -> Links:
    """From the intersection, add links of the union beside one that is there.

    A link is beside another at a distance of one place, diagonals included, and is added where
    one of its words has no link yet; until nothing changes. Links are visited in order.
    """
    grown, union = forward & backward, forward | backward
    sources, targets = {s for s, _ in grown}, {t for _, t in grown}
    before = -1
    while before < len(grown):
        before = len(grown)
        for s, t in sorted(grown):
            for link in ((s + i, t + j) for i, j in NEIGHBOURS):
                free = link[0] not in sources or link[1] not in targets
                if link in union and free:
                    _add(grown, link, sources, targets)
    return grown


def _final(join: Callable[[bool, bool], bool]) -> Callable[[Links, Links], Links]:
    """Grow, then add the links of one direction after the other whose words are free."""

    def grow(forward: Links, backward: Links) -> Links:
        grown = grow_diag(forward, backward)
        sources, targets = {s for s, _ in grown}, {t for _, t in grown}
        for direction in (forward, backward):
            for link in sorted(direction):
                if join(link[0] not in sources, link[1] not in targets):
                    _add(grown, link, sources, targets)
        return grown

    return grow


def _add(grown: Links, link: Link, sources: set[int], targets: set[int]) -> None:
    grown.add(link)
    sources.add(link[0])
    targets.add(link[1])


grow_diag_final = _final(lambda source, target: source or target)  # either word is free
grow_diag_final_and = _final(lambda source, target: source and target)  # both are

METHODS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}
