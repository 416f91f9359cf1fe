"""Links between words: from a map of attention, and in the Pharaoh format.

A link is a pair (source, target) of word indices, counted from 0. Judging links is `aer`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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

    ``weights`` is (T, S), between words (`foveate.look.words.to_words`). Words of ``skip_rows`` and
    ``skip_columns``, such as ``</s>``, are never linked: a row that looks most at a skipped column
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
