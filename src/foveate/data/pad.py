"""Ragged lists of ids as one rectangle.

Lives here: padding. Does not live here: which examples stand together (`plan`), tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.vocabulary import PAD

Ids = Sequence[int] | NDArray[np.integer]


def pad(sequences: Sequence[Ids], value: int = PAD, multiple: int = 1) -> NDArray[np.int64]:
    """Sequences side by side, (B, L), with ``value`` on the right.

    L is the longest length rounded up to a ``multiple``; no sequences give (0, 0).
    """
    if multiple < 1:
        raise ValueError(f"multiple: must be at least 1, not {multiple}")
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    longest = int(lengths.max(initial=0))
    width = -(-longest // multiple) * multiple
    padded = np.full((len(sequences), width), value, dtype=np.int64)
    if longest:
        filled = np.arange(width) < lengths[:, None]  # (B, L)
        padded[filled] = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in sequences])
    return padded
