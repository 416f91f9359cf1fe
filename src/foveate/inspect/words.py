"""The labels of attention: pieces of a tokenizer joined to words, and hidden characters shown."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]  # first character and the one after the last
# The rows and columns of attention: "auto" chooses by the tokenizer and the script.
Units = Literal["auto", "tokens", "words"]


@dataclass(frozen=True)
class Grouping:
    """Which pieces make which word, in the order of the text.

    ``pieces[k]`` are the indices of the pieces of the k-th word; ``words[k]`` is the index of its
    span, or ``None`` where it is a special token that stands in no text.
    """

    pieces: list[list[int]]
    words: list[int | None]

    def labels(self, words: Sequence[str], tokens: Sequence[str]) -> list[str]:
        """The label of each word: of ``words``, or of ``tokens`` where it is a special token."""
        return [
            tokens[group[0]] if word is None else words[word]
            for group, word in zip(self.pieces, self.words, strict=True)
        ]


def group_pieces(offsets: Sequence[Span | None], words: Sequence[Span]) -> Grouping:
    """Give each piece to the word with which it shares most characters.

    ``offsets`` are the character spans of the pieces; ``None`` (or an empty span at 0, as the
    ``tokenizers`` library writes it) marks a special token such as ``</s>``, which becomes a word
    of its own. A piece that touches no word (a space) goes to the word that follows it, or to the
    last one. A word that shares its only piece with a longer neighbour keeps an empty group, so
    that every word of ``words`` has one.
    """
    owners = [None if span in (None, (0, 0)) else _owner(span, words) for span in offsets]
    last = max((piece for piece, owner in enumerate(owners) if owner is not None), default=-1)
    groups: list[list[int]] = [[] for _ in words]
    entries: list[tuple[tuple[int, int], list[int], int | None]]  # the first is the place
    entries = [((word, 1), group, word) for word, group in enumerate(groups)]
    begun = 0  # words before the piece
    for piece, owner in enumerate(owners):
        if owner is None:
            entries.append(((len(words) if piece > last else begun, 0), [piece], None))
        else:
            begun = max(begun, owner + 1)
            groups[owner].append(piece)
    entries.sort(key=lambda entry: entry[0])
    return Grouping([group for _, group, _ in entries], [word for *_, word in entries])


def _owner(span: Span | None, words: Sequence[Span]) -> int | None:
    """The word with which a piece shares most characters, the first of equals; else the next.

    ``words`` are in order and disjoint, so that only those around the piece are looked at.
    """
    if span is None or not words:
        return None
    first = bisect_right(words, span[0], key=lambda word: word[1])
    best, most = min(first, len(words) - 1), 0
    for place in range(first, len(words)):
        start, end = words[place]
        if start >= span[1]:
            break
        shared = min(span[1], end) - max(span[0], start)
        if shared > most:
            best, most = place, shared
    return best


def to_words(
    weights: NDArray[np.floating],
    row_words: Sequence[Sequence[int]],
    column_words: Sequence[Sequence[int]],
) -> NDArray[np.float32]:
    """Weights between words, A'[i, j] = (1 / |rows i|) Σ_{t in rows i} Σ_{s in columns j} A[t, s].

    Shape: (..., T, S) to (..., words of the rows, words of the columns). Rows go on summing to 1
    where every piece of the columns is in one group. A word without pieces gives zeros.
    Raises ``IndexError`` where a group names a piece that is not there.
    """
    total, width = weights.shape[-2:]
    rows = np.zeros((len(row_words), total))
    for word, group in enumerate(row_words):
        rows[word, list(group)] = 1 / max(len(group), 1)
    columns = np.zeros((width, len(column_words)))
    for word, group in enumerate(column_words):
        columns[list(group), word] = 1
    merged: NDArray[np.float32] = (rows @ weights @ columns).astype(np.float32)
    return merged


# Joiners are part of a word between two letters or signs beyond ASCII (Persian, Hindi, emoji).
_JOINER = re.compile(r"(?<=[^\x00-\u0300])[\u200c\u200d](?=[^\x00-\u0300])")


def visible(label: str) -> str:
    """A label in which nothing is hidden: controls, joiners and bidi marks as signs.

    A newline becomes ``⟨U+000A⟩``, a zero-width space ``⟨U+200B⟩``, a label of nothing but spaces
    ``␣``, an empty one ``(empty)``. Letters of every script stay as they are.
    """
    if not label:
        return "(empty)"
    if label.isspace() and label.isprintable():
        return "␣" * len(label)
    joiners = {match.start() for match in _JOINER.finditer(label)}
    return "".join(c if i in joiners else _visible(c) for i, c in enumerate(label))


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
    return f"⟨U+{ord(character):04X}⟩" if hidden else character
