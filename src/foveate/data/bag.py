"""Documents as bags of terms: how often each term stands in each document.

Lives here: the document–term matrix. Does not live here: learnt vectors of bags
(`foveate.models.bag`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Counts:
    """``table[i, j]`` is how often ``terms[i]`` stands in document j: (V, N)."""

    terms: list[str]
    table: NDArray[np.int64]

    def text(self) -> str:
        """The table with a row for each term."""
        width = max(map(len, self.terms), default=0)
        rows = zip(self.terms, self.table, strict=True)
        return "\n".join(f"{term:<{width}} " + " ".join(map(str, row)) for term, row in rows)


def document_terms(documents: Sequence[Sequence[str]]) -> Counts:
    """Count the terms of documents that are split into tokens; terms by code point.

    The order of the tokens in a document leaves no trace: the model that reads counts reads the
    document as a multiset (Harris, 1954).
    """
    counts = [Counter(tokens) for tokens in documents]
    terms = sorted(set().union(*counts))
    table = np.array([[count[term] for count in counts] for term in terms], dtype=np.int64)
    return Counts(terms, table.reshape(len(terms), len(documents)))
