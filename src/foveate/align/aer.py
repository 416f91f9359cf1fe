"""Word links: extracted, symmetrized, in Pharaoh files, judged by alignment error rate."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.config import from_json
from foveate.files import replace_file

Link = tuple[int, int]  # source, target
Links = set[Link]
DIGITS = 9  # of the number of a word


def links(
    weights: NDArray[np.floating],
    least: float = 0.0,
    skip_rows: Collection[int] = (),
    skip_columns: Collection[int] = (),
) -> Links:
    """Each target word linked to the source word at which it looks most: {(argmax_s a_ts, t)}.

    ``weights`` is (T, S), between words (`foveate.look.words.to_words`). Words of
    ``skip_rows`` and ``skip_columns``, such as ``</s>``, are never linked: a row that looks most
    at a skipped column
    says that its word has no counterpart, and so has no link. Nor has a row whose largest weight
    is not above ``least``. The first of equals wins. (Bahdanau et al., 2015; Luong et al., 2015)
    """
    if not weights.size:
        return set()
    best = weights.argmax(axis=-1)
    return {
        (int(s), t)
        for t, s in enumerate(best)
        if weights[t, s] > least and t not in skip_rows and s not in skip_columns
    }


def write_pharaoh(found: Iterable[Link]) -> str:
    """Links as one line of the Pharaoh format: ``0-0 2-1``, source before target, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(found))


def read_pharaoh(line: str, where: str = "") -> Links:
    """The links of one line of the Pharaoh format.

    ``where`` (file and line) is named in the ``ValueError`` for an entry that is no link.
    """
    return {read_link(entry, "-", where) for entry in line.split()}


def link_lines(path: Path) -> list[str]:
    """The lines of a file of links. Raises ``ValueError`` naming a file that is no text."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: byte {error.start + 1} is not UTF-8") from None


def read_link(entry: str, separator: str, where: str = "") -> Link:
    """One link such as ``3-4``. Raises ``ValueError`` naming the entry."""
    source, found, target = entry.partition(separator)
    if not (found and source.isdecimal() and target.isdecimal()):
        place = f"{where}: " if where else ""
        raise ValueError(f"{place}{entry!r} is no link; a link is SOURCE{separator}TARGET, as 3-4")
    if max(len(source), len(target)) > DIGITS:
        raise ValueError(f"{where}: {entry[:20]!r}… is no link: no sentence has so many words")
    return int(source), int(target)


# -------------------------------------------------------------------------------------- symmetrize
# One alignment from two directions: set operations on links, growing from those both agree on.
#
# Links of both directions are (source, target). (Och & Ney, 2003; Koehn et al., 2003, 2005)

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


# --------------------------------------------------------------------------------------------- aer
# Alignments judged against gold: precision, recall and error rate, of links and of heads.


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
    links: Callable[[NDArray[np.float32]], Links] = links,
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


# ------------------------------------------------------------------------------------------- heads
# Which head of a run links words: its choice, its file in the run folder, links read from it.

FILE = "aligned_head.json"
Rows = Literal["produced", "read"]
Maps = Mapping[str, NDArray[np.float32]]  # by layer, in order: (H, T, S + 1)


@dataclass(frozen=True)
class Head:
    """Where links are read: a layer (from the last: -1), one of its heads or the mean of all.

    ``rows`` says at which step: that which produces a target word, or that which has just read it.
    """

    layer: int = -1
    head: int | None = None
    rows: Rows = "produced"

    def weights(self, maps: Maps) -> NDArray[np.float32]:
        """The map (T, S + 1) of this head. Raises ``ValueError`` naming the layers or heads."""
        names = list(maps)
        if not -len(names) <= self.layer < len(names):
            there = f"{len(names)} layers" if names else "none: it has no attention to the source"
            raise ValueError(f"layer {self.layer} of the run's cross-attention: there are {there}")
        heads = maps[names[self.layer]]
        if self.head is None:
            mean: NDArray[np.float32] = heads.mean(axis=0)
            return mean
        if self.head >= len(heads):
            raise ValueError(f"head {self.head} of {names[self.layer]}: there are {len(heads)}")
        chosen: NDArray[np.float32] = heads[self.head]
        return chosen

    def links(self, maps: Maps) -> Links:
        """Each target word's most attended source word; none where that is the end."""
        return read_links(self.weights(maps))

    def save(self, folder: Path, why: str) -> None:
        """Write the choice into a run, for `load`."""
        tree = asdict(self) | {"chosen": why}
        replace_file(folder / FILE, json.dumps(tree, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path, otherwise: Head) -> Head:
        """The choice saved in a run, else ``otherwise``. Raises ``ConfigError`` if damaged."""
        path = folder / FILE
        if not path.is_file():
            return otherwise
        return from_json(path, cls._told)

    @classmethod
    def _told(cls, tree: dict[str, Any]) -> Head:
        layer, head, rows = tree["layer"], tree["head"], tree["rows"]
        if not isinstance(layer, int) or not isinstance(head, int | None):
            raise ValueError(f"layer {layer!r} and head {head!r} are no numbers")
        if rows not in get_args(Rows) or (head or 0) < 0:
            raise ValueError(f"rows {rows!r} of head {head!r}")
        return cls(layer, head, rows)


def read_links(weights: NDArray[np.floating]) -> Links:
    """Links by weights (T, S + 1), whose last column is the end of the source."""
    return links(weights, skip_columns=[weights.shape[1] - 1])


@dataclass(frozen=True)
class Choice:
    """A head and how well its links agree with what it was chosen by."""

    head: Head
    precision: float
    recall: float
    aer: float


def choose(corpus: Iterable[Maps], gold: Sequence[Gold], rows: Rows = "produced") -> list[Choice]:
    """Every head by its error rate against gold or other links, the best first.

    Raises ``ValueError`` where the model has no attention to the source.
    """
    names: list[str] = []

    def seen() -> Iterable[Maps]:
        for maps in corpus:
            names[:] = list(maps)
            yield maps

    ranked = rank_heads(seen(), gold, read_links)
    if not ranked:
        raise ValueError("there is no head to choose: the run has no attention to the source")
    return [
        Choice(Head(names.index(name), head, rows), found.precision, found.recall, found.aer)
        for name, head, found in ranked
    ]
