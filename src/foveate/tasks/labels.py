"""Words for the axes of attention maps: from the pieces that a model reads to words of the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.tokenizer import Tokenizer
from foveate.data.words import split_words
from foveate.look.record import AttentionRecord
from foveate.look.words import Grouping, group_pieces, to_words

Span = tuple[int, int]
Text = tuple[str, Sequence[Span]]  # a text and the characters of each of its pieces
END, START, UNKNOWN = "</s>", "<s>", "<unk>"


def caption_record(
    maps: Mapping[str, NDArray[np.float32]], name: str, places: Sequence[str], caption: Text
) -> AttentionRecord:
    """Maps (H, T, S) of a picture's captioner: the encoder's between ``places`` of the picture,
    the decoder's from the words produced to places, or to the words read.
    """
    written, before = _axis(caption, after=[END]), _axis(caption, before=[START])
    seen = Grouping([[i] for i in range(len(places))], [None] * len(places)), list(places)
    words: dict[str, NDArray[np.float32]] = {}
    rows: dict[str, list[str]] = {}
    columns: dict[str, list[str]] = {}
    for block, weights in maps.items():
        row = seen if block.startswith("encoder") else written
        column = before if row is written and block.endswith("self_attention") else seen
        words[block] = np.stack([to_words(w, row[0].pieces, column[0].pieces) for w in weights])
        rows[block], columns[block] = row[1], column[1]
    return AttentionRecord(words, rows, columns, title=f"{name} → {caption[0]}")


def attention_record(
    maps: Mapping[str, NDArray[np.float32]], source: Text, target: Text
) -> AttentionRecord:
    """Maps (H, T, S) over pieces as maps over words, with their labels.

    The encoder's rows and columns are the source's words and its end; the decoder's rows are the
    words produced and the end, and the columns of its self-attention the start and the words read.
    """
    read = _axis(source, after=[END])
    written, before = _axis(target, after=[END]), _axis(target, before=[START])
    words: dict[str, NDArray[np.float32]] = {}
    rows: dict[str, list[str]] = {}
    columns: dict[str, list[str]] = {}
    for name, weights in maps.items():
        own = name.endswith("self_attention")
        row = read if name.startswith("encoder") else written
        column = read if row is read or not own else before
        words[name] = np.stack([to_words(w, row[0].pieces, column[0].pieces) for w in weights])
        rows[name], columns[name] = row[1], column[1]
    return AttentionRecord(words, rows, columns, title=f"{source[0]} → {target[0]}")


def encoder_record(
    maps: Mapping[str, NDArray[np.float32]], source: Text, produced: str
) -> AttentionRecord:
    """Maps (H, T, S) of what reads ``<s> text </s>``, as maps over words, with their labels.

    The rows of an encoder's maps are words of the text; another map (a pooling) has the one row of
    what it produced.
    """
    grouping, labels = _axis(source, before=[START], after=[END])
    words: dict[str, NDArray[np.float32]] = {}
    rows: dict[str, list[str]] = {}
    for name, weights in maps.items():
        own = name.startswith("encoder")
        row = grouping.pieces if own else [[0]]
        words[name] = np.stack([to_words(w, row, grouping.pieces) for w in weights])
        rows[name] = labels if own else [produced]
    columns = dict.fromkeys(maps, labels)
    return AttentionRecord(words, rows, columns, title=f"{source[0]} → {produced}")


def pieces_in(text: str, spans: Sequence[Span]) -> list[str]:
    """The characters of each piece of a text."""
    return [text[start:end] for start, end in spans]


def namer(tokenizer: Tokenizer) -> Callable[[int], str]:
    """What says the text of an id, special ones by their names."""
    return lambda i: tokenizer.decode([i], skip_special=False)


def _axis(
    text: Text, before: Sequence[str] = (), after: Sequence[str] = ()
) -> tuple[Grouping, list[str]]:
    """The pieces of each word of a text, with special tokens around it, and the words' labels."""
    line, spans = text
    offsets: list[Span | None] = [*(None for _ in before), *spans, *(None for _ in after)]
    places = _words(line, spans)
    tokens = [*before, *(line[a:b] for a, b in spans), *after]
    grouping = group_pieces(offsets, places)
    return grouping, grouping.labels([line[a:b] for a, b in places], tokens)


def _words(line: str, spans: Sequence[Span]) -> list[Span]:
    """The words of a line; a piece that decodes to ``<unk>`` is one, whatever its signs."""
    unknown = {(b - len(UNKNOWN), b) for a, b in spans if line[a:b].lstrip() == UNKNOWN}
    whole = [w for w in split_words(line) if not any(a <= w[0] and w[1] <= b for a, b in unknown)]
    return sorted([*whole, *unknown])


def joined_record(
    maps: Mapping[str, NDArray[np.float32]], source: Text, target: Text
) -> AttentionRecord:
    """Maps (H, T, T) of what reads ``<s> source </s> target`` in one sequence, as maps over words.

    Rows are what comes next, to the target's end; columns what was read before it.
    """
    first, second = _axis(source, after=[END]), _axis(target)
    begun = len(source[1]) + 1  # the pieces of the source and its end
    pieces = [*first[0].pieces, *([begun + piece for piece in g] for g in second[0].pieces)]
    labels = [*first[1], *second[1]]
    rows = [*pieces, [begun + len(target[1])]]
    columns = [[0], *([1 + piece for piece in group] for group in pieces)]
    words = {n: np.stack([to_words(w, rows, columns) for w in m]) for n, m in maps.items()}
    title = f"{source[0]} → {target[0]}"
    return AttentionRecord(words, {"": [*labels, END]}, {"": [START, *labels]}, title)
