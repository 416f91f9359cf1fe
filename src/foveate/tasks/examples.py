"""Pairs of texts with their ids, and which of them training takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.data.columns import taken
from foveate.data.text import Corpus, TextData, keep
from foveate.tasks.text_batch import Ids, lengths_of

Sides = tuple[Sequence[Ids], ...]  # of the source and of the target


@dataclass(frozen=True)
class Examples:
    """Pairs with their ids. ``rows`` are their places in the corpus as it was read, None if all
    are here.
    """

    corpus: Corpus
    sources: Sequence[Ids]
    targets: Sequence[Ids]
    rows: NDArray[np.integer] | None = None

    def kept(self, config: TextData) -> Examples:
        """The examples whose lengths training takes; the corpus counts the others."""
        rows, dropped = keep(lengths_of(self.sources, self.targets), config)
        if not dropped:
            return self
        sides = taken(self.sources, rows), taken(self.targets, rows)
        return Examples(self.corpus.take(rows, dropped), *sides, rows.astype(np.uint32))

    def row(self, index: int) -> int:
        """Where an example stands in the corpus as it was read."""
        return index if self.rows is None else int(self.rows[index])
