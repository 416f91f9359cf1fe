"""Word links, as text and as what a head of attention says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.config import from_json
from foveate.errors import UserError
from foveate.files import replace_file, split_lines

Link = tuple[int, int]  # source, target
Links = set[Link]
DIGITS = 9  # of the number of a word


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


FILE = "aligned_head.json"
Rows = Literal["produced", "read"]
Weights = NDArray[np.float32]  # (T, S + 1) of a head, the last column the end of the source
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
        if self.head is not None and self.head >= len(heads):
            raise UserError(f"head {self.head} of {names[self.layer]}: there are {len(heads)}")
        chosen: NDArray[np.float32]
        chosen = heads.mean(axis=0) if self.head is None else heads[self.head]
        return chosen

    def links(self, maps: Maps) -> Links:
        """Link each target word to its most attended source word, unless that is the end."""
        return read_links(self.weights(maps))

    def save(self, folder: Path, why: str) -> None:
        """Write the choice into a run, for `load`."""
        replace_file(folder / FILE, json.dumps(asdict(self) | {"chosen": why}, indent=2) + "\n")

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
    """Link each target word to the source word with its largest weight: {(argmax_s a_ts, t)}.

    ``weights`` is (T, S + 1), between words (`foveate.data.words.to_words`) and, in the last
    column, with the end of the source. A word whose largest weight is that of the end, or is 0, has
    no counterpart. Ties go to the first word. (Bahdanau et al., 2015; Luong et al., 2015)
    """
    pairs, end = enumerate(weights.argmax(axis=-1).tolist()), weights.shape[1] - 1
    return {(s, t) for t, s in pairs if weights[t, s] > 0 and s != end}
