"""Word links: extracted, symmetrized, in Pharaoh files, judged by alignment error rate."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.config import from_json
from foveate.errors import UserError
from foveate.files import replace_file, split_lines

Link = tuple[int, int]  # source, target
Links = set[Link]
Layer = TypeVar("Layer", int, str)  # a map by its number or its name
DIGITS = 9  # most digits of a word number


def links(weights: NDArray[np.floating], skip_columns: Collection[int] = ()) -> Links:
    """Link each target word to the source word with its largest weight: {(argmax_s a_ts, t)}.

    ``weights`` is (T, S), between words (`foveate.data.words.to_words`). A word whose largest
    weight is in one of ``skip_columns``, such as that of ``</s>``, or is 0 has no counterpart. Ties
    go to the first word. (Bahdanau et al., 2015; Luong et al., 2015)
    """
    if not weights.size:
        return set()
    best = weights.argmax(axis=-1)
    pairs = enumerate(best.tolist())
    return {(s, t) for t, s in pairs if weights[t, s] > 0 and s not in skip_columns}


def write_pharaoh(links: Iterable[Link]) -> str:
    """Return links as one line of the Pharaoh format: ``0-0 2-1``, source before target, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str, where: str = "") -> Links:
    """Return the links of one line of the Pharaoh format.

    The `UserError` for an entry that is not a link begins with ``where`` (file and line).
    """
    return {read_link(entry, "-", where) for entry in line.split()}


def link_lines(path: Path) -> list[str]:
    """Return the lines of a file of links. Raises `UserError` for a file that is not text."""
    try:
        return split_lines(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text: byte {error.start + 1} is not UTF-8") from None


def read_link(entry: str, separator: str, where: str = "") -> Link:
    """Read one link such as ``3-4``. Raises `UserError` that quotes the entry."""
    source, dash, target = entry.partition(separator)
    if not (dash and source.isdecimal() and target.isdecimal()):
        place = f"{where}: " if where else ""
        expected = f"expected SOURCE{separator}TARGET, such as 3{separator}4"
        raise UserError(f"{place}{entry!r} is not a link: {expected}")
    if max(len(source), len(target)) > DIGITS:
        raise UserError(f"{where}: {entry[:20]!r}… is not a link: no sentence has so many words")
    return int(source), int(target)


Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]

NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def symmetrize(forward: Links, backward: Links, method: Method = "grow-diag-final-and") -> Links:
    """Return the links of a pair from those of both directions."""
    return METHODS[method](forward, backward)


def grow_diag(forward: Links, backward: Links) -> Links:
    """Add to the intersection links of the union that neighbour a link, until none is added.

    Neighbours are one position apart, including diagonally. A link is added if one of its words has
    no link yet. Links are visited in order.
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
    """Return a function that grows, then adds links of either direction whose words are free."""

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

    def __add__(self, other: LinkCounts) -> LinkCounts:
        return LinkCounts(
            self.links + other.links,
            self.sure + other.sure,
            self.correct_sure + other.correct_sure,
            self.correct_possible + other.correct_possible,
        )

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


def rank_heads(
    corpus: Iterable[Mapping[Layer, NDArray[np.float32]]],
    gold: Sequence[Gold],
    links: Callable[[NDArray[np.float32]], Links] = links,
) -> list[tuple[Layer, int, LinkCounts]]:
    """Return every head of a block as (name of its map, head, its counts), least error rate first.

    ``corpus`` holds the maps (H, T, S), between words, of each sentence by name; it is read once,
    so that it may be a generator. ``links`` extracts links from one head's (T, S). Ties keep the
    order of the model. Raises `UserError` if the numbers of sentences differ.
    """
    counts: dict[tuple[Layer, int], LinkCounts] = {}
    for maps, true in zip(corpus, gold, strict=True):
        for name, heads in maps.items():
            for head, weights in enumerate(heads):
                so_far = counts.get((name, head), LinkCounts())
                counts[name, head] = so_far + agree(links(weights), true)
    ranked = sorted(counts.items(), key=lambda entry: entry[1].aer)
    return [(name, head, agreement) for (name, head), agreement in ranked]


FILE = "aligned_head.json"
Rows = Literal["produced", "read"]
Weights = NDArray[np.float32]  # (T, S + 1) of a head; the last column is the end of the source
Maps = Mapping[str, NDArray[np.float32]]  # by layer, in order: (H, T, S + 1)


@dataclass(frozen=True)
class Head:
    """The attention that links are read from: a layer (-1: the last), a head or the mean of all.

    ``rows`` is the step of a target word: the one that produces it, or the one that has read it.
    """

    layer: int = -1
    head: int | None = None
    rows: Rows = "produced"

    def weights(self, maps: Maps) -> NDArray[np.float32]:
        """Return the map (T, S + 1) of this head. Raises `UserError` with the number of them."""
        names = list(maps)
        if not -len(names) <= self.layer < len(names):
            there = f"{len(names)} layers" if names else "none: it has no attention to the source"
            raise UserError(f"layer {self.layer} of the run's cross-attention: there are {there}")
        heads = maps[names[self.layer]]
        if self.head is None:
            mean: NDArray[np.float32] = heads.mean(axis=0)
            return mean
        if self.head >= len(heads):
            raise UserError(f"head {self.head} of {names[self.layer]}: there are {len(heads)}")
        chosen: NDArray[np.float32] = heads[self.head]
        return chosen

    def links(self, maps: Maps) -> Links:
        """Link each target word to its most attended source word, unless that is the end."""
        return read_links(self.weights(maps))

    def save(self, folder: Path, why: str) -> None:
        """Write the choice into a run, for `load`."""
        tree = asdict(self) | {"chosen": why}
        replace_file(folder / FILE, json.dumps(tree, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path, otherwise: Head) -> Head:
        """Load the choice saved in a run, else ``otherwise``; raise ``ConfigError`` if damaged."""
        path = folder / FILE
        if not path.is_file():
            return otherwise
        return from_json(path, cls.of)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Head:
        """Make a head of plain values. Raises ``ValueError`` or ``LookupError`` for wrong ones."""
        layer, head, rows = tree["layer"], tree["head"], tree["rows"]
        if not isinstance(layer, int) or not isinstance(head, int | None):
            raise ValueError(f"layer {layer!r} and head {head!r} must be numbers")
        if rows not in get_args(Rows) or (head or 0) < 0:
            raise ValueError(f"rows {rows!r} of head {head!r}")
        return cls(layer, head, rows)


def read_links(weights: NDArray[np.floating]) -> Links:
    """Return links by weights (T, S + 1), whose last column is the end of the source."""
    return links(weights, skip_columns=[weights.shape[1] - 1])


def mutual_links(forward: Weights, backward: Weights, threshold: float) -> Links:
    """Return links on which the heads of two directions agree: {(s, t) : √(α_ts β_st) ≥ threshold}.

    α is (T, S + 1), of a model from source to target, and β (S, T + 1), of one from target to
    source; the last columns are the ends. Liang, Taskar and Klein (2006) do this with posteriors.
    """
    mean = np.sqrt(forward[:, :-1] * backward[:, :-1].T)
    return {(int(s), int(t)) for t, s in np.argwhere(mean >= threshold)}


def choose(
    corpus: Iterable[Maps], gold: Sequence[Gold], rows: Rows = "produced"
) -> list[tuple[Head, LinkCounts]]:
    """Return every head and how well its links agree with gold or other links, the best first.

    Raises `UserError` if the model has no attention to the source.
    """
    layers = (dict(enumerate(maps.values())) for maps in corpus)
    ranked = rank_heads(layers, gold, read_links)
    if not ranked:
        raise UserError("no head can be chosen: the run has no attention to the source")
    return [(Head(layer, head, rows), counts) for layer, head, counts in ranked]
