"""Word links: symmetrized, and judged by alignment error rate."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from foveate.engine.links import (
    Head,
    Link,
    Links,
    Maps,
    Rows,
    link_lines,
    read_link,
    read_links,
)
from foveate.errors import UserError

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def grow_diag(
    forward: Links, backward: Links, final: Callable[[Iterable[bool]], bool] | None = None
) -> Links:
    """Add to the intersection links of the union that neighbour a link, until none is added.

    Neighbours are one position apart, including diagonally. A link is added if one of its words has
    no link yet. Links are visited in order. With ``final``, links of either direction of whose
    words some are free, any or all, are added last.
    """
    grown, union = forward & backward, forward | backward
    sources, targets = {s for s, _ in grown}, {t for _, t in grown}

    def add(link: Link, some: Callable[[Iterable[bool]], bool]) -> None:
        if some((link[0] not in sources, link[1] not in targets)):
            grown.add(link)
            sources.add(link[0])
            targets.add(link[1])

    before = -1
    while before < len(grown):
        before = len(grown)
        for s, t in sorted(grown):
            for link in ((s + i, t + j) for i, j in NEIGHBOURS):
                if link in union:
                    add(link, any)
    if final is not None:
        for link in (*sorted(forward), *sorted(backward)):
            add(link, final)
    return grown


# How the links of a pair are made from those of both directions.
METHODS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": grow_diag,
    "grow-diag-final": partial(grow_diag, final=any),
    "grow-diag-final-and": partial(grow_diag, final=all),
}


@dataclass(frozen=True)
class Gold:
    """The gold links of a sentence: sure links, and possible links, which include the sure ones."""

    sure: Links
    possible: Links


@dataclass(frozen=True)
class LinkCounts:
    """Counts of links over a corpus; sums, so that the parts of a corpus add up.

    ``links`` is |A|, the links judged; ``sure`` |S|, the sure gold links; ``correct_sure`` |A ∩ S|
    and ``correct_possible`` |A ∩ P|.
    """

    links: int = 0
    sure: int = 0
    correct_sure: int = 0
    correct_possible: int = 0

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def precision(self) -> float:
        """|A ∩ P| / |A|: the share of the links that are possible; 0 without links."""
        return self.correct_possible / self.links if self.links else 0.0

    @property
    def recall(self) -> float:
        """|A ∩ S| / |S|: the share of the sure links that are among the links; 0 without any."""
        return self.correct_sure / self.sure if self.sure else 0.0

    @property
    def aer(self) -> float:
        """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the alignment error rate (Och and Ney, 2003).

        0 is best, also if there are neither links nor sure links.
        """
        total = self.links + self.sure
        return 1 - (self.correct_sure + self.correct_possible) / total if total else 0.0


def agree(links: Links, gold: Gold) -> LinkCounts:
    """Return the counts of one sentence."""
    possible = gold.possible | gold.sure
    return LinkCounts(len(links), len(gold.sure), len(links & gold.sure), len(links & possible))


def judge(alignments: Sequence[Links], gold: Sequence[Gold]) -> LinkCounts:
    """Return the counts of a corpus. Raises `UserError` if the numbers of sentences differ."""
    if len(alignments) != len(gold):
        raise UserError(
            f"{len(alignments)} alignments for {len(gold)} gold sentences; give as many"
        )
    return sum(map(agree, alignments, gold), LinkCounts())


def read_gold(path: str | Path, say: Callable[[str], None] | None = None) -> list[Gold]:
    """Read the gold alignments of a file, one sentence per line: ``i-j`` sure, ``ipj`` possible.

    Words count from 1, or from 0 if an entry has a 0, which ``say`` reports; those of the result
    count from 0. Sure links are possible too. Raises `UserError` with the file, line and entry.
    """
    rows = list[tuple[Links, Links]]()
    first, zero = 1, ""
    for number, line in enumerate(link_lines(Path(path)), 1):
        where = f"{path}:{number}"
        sure, possible = set[Link](), set[Link]()
        for entry in line.split():
            separator = "p" if "p" in entry else "-"
            link = read_link(entry, separator, where)
            (possible if separator == "p" else sure).add(link)
            if 0 in link and first:
                first, zero = 0, f"{where}: {entry}"
        rows.append((sure, possible))
    if say is not None and not first:
        say(f"gold links count words from 0 ({zero})")
    moved = ([{(s - first, t - first) for s, t in part} for part in row] for row in rows)
    return [Gold(sure, sure | possible) for sure, possible in moved]


def choose(
    corpus: Iterable[Maps], gold: Sequence[Gold], rows: Rows = "produced"
) -> list[tuple[Head, LinkCounts]]:
    """Return every head and how well its links agree with gold or other links, the best first.

    ``corpus`` holds the maps of each sentence; it is read once, so that it may be a generator. Ties
    keep the order of the model. Raises `UserError` if the model has no attention to the source.
    """
    counts: dict[Head, LinkCounts] = {}
    for maps, true in zip(corpus, gold, strict=True):
        for layer, heads in enumerate(maps.values()):
            for number, weights in enumerate(heads):
                head = Head(layer, number, rows)
                counts[head] = counts.get(head, LinkCounts()) + agree(read_links(weights), true)
    if not counts:
        raise UserError("no head can be chosen: the run has no attention to the source")
    return sorted(counts.items(), key=lambda entry: entry[1].aer)
