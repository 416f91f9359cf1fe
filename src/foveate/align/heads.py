"""Which head of a run links words: its choice, its file in the run folder, links read from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.align.aer import Gold, rank_heads
from foveate.align.extract import Links, links
from foveate.atomic import replace_file
from foveate.tree import from_json

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
