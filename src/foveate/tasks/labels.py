"""Labels for the axes of attention maps: tokens, or the words that they are merged into."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.data.vocabulary import SILENT, Encoded, Span, Tokenizer
from foveate.data.words import is_unsegmented, split_words
from foveate.look.record import AttentionRecord
from foveate.look.words import Units, group_pieces, to_words

Axis = tuple[list[list[int]], list[str]]  # the tokens of each row or column, and its label
END, START = "</s>", "<s>"
# An angle-bracket placeholder or special token, such as <N> and <unk>, is one word.
_PLACEHOLDER = re.compile(r"<[^<>\s]+>")


@dataclass(frozen=True)
class TokenizedText:
    """A text, the characters of each of its tokens (None: a special one) and a label for each.

    ``units`` says what its axis shows by default: its tokens, or its words, of which those in a
    script without blanks are shown as their tokens.
    """

    text: str
    spans: Sequence[Span | None]
    labels: Sequence[str]
    units: Units = "words"

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, encoded: Encoded) -> TokenizedText:
        """A text and its tokens; a first token that is the blank before it joins its first word."""
        ids, spans = encoded.ids, encoded.offsets
        placed = [
            None if i in SILENT else (start, end) if end else (0, 1)
            for i, (start, end) in zip(ids, spans, strict=True)
        ]
        return cls(text, placed, tokenizer.labels(ids, text, spans), tokenizer.units)

    @classmethod
    def read(cls, tokenizer: Tokenizer, text: str) -> TokenizedText:
        """A text that a model reads."""
        return cls.of(tokenizer, text, tokenizer.encode(text))

    @classmethod
    def written(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedText:
        """A text that a model produces, by its ids."""
        return cls.of(tokenizer, tokenizer.decode(ids), Encoded(list(ids), tokenizer.spans(ids)))

    def axis(self, units: Units, before: Sequence[str] = (), after: Sequence[str] = ()) -> Axis:
        """The tokens of each row (or column), with special tokens around the text, and its label.

        With ``units = "auto"`` the words of scripts without blanks are shown as their tokens.
        """
        tokens = [*before, *self.labels, *after]
        if units == "tokens" or (units == "auto" and self.units == "tokens"):
            return [[n] for n in range(len(tokens))], tokens
        places = words_of(self.text)
        offsets = [*(None for _ in before), *self.spans, *(None for _ in after)]
        grouping = group_pieces(offsets, places)
        names = grouping.labels([self.text[a:b] for a, b in places], tokens)
        if units == "words":
            return grouping.pieces, names
        rows: list[tuple[list[int], str]] = []
        for pieces, name, word in zip(grouping.pieces, names, grouping.words, strict=True):
            apart = word is not None and is_unsegmented(name)
            rows += [([n], tokens[n]) for n in pieces] if apart else [(pieces, name)]
        return [pieces for pieces, _ in rows], [name for _, name in rows]


def words_of(text: str) -> list[Span]:
    """The words of a text as axes show them: `split_words`, but a placeholder is one word."""
    whole = [found.span() for found in _PLACEHOLDER.finditer(text)]
    words = [w for w in split_words(text) if not any(a <= w[0] and w[1] <= b for a, b in whole)]
    return sorted([*words, *whole])


def caption_record(
    maps: Mapping[str, NDArray[np.float32]],
    units: Units,
    name: str,
    places: Sequence[str],
    caption: TokenizedText,
) -> AttentionRecord:
    """Maps (H, T, S) of a picture's captioner: the encoder's between ``places`` of the picture,
    the decoder's from what is produced to places, or to what was read.
    """
    written, before = caption.axis(units, after=[END]), caption.axis(units, before=[START])
    seen: Axis = [[i] for i in range(len(places))], list(places)
    axes = {}
    for block in maps:
        row = seen if block.startswith("encoder") else written
        axes[block] = row, before if row is written and block.endswith("self_attention") else seen
    return _merged(maps, axes, f"{name} → {caption.text}")


def attention_record(
    maps: Mapping[str, NDArray[np.float32]],
    units: Units,
    source: TokenizedText,
    target: TokenizedText,
) -> AttentionRecord:
    """Maps (H, T, S) between tokens in the units asked for, with their labels.

    The encoder's rows and columns are the source and its end; the decoder's rows are what is
    produced and the end, and the columns of its self-attention the start and what was read.
    """
    read = source.axis(units, after=[END])
    written, before = target.axis(units, after=[END]), target.axis(units, before=[START])
    axes = {}
    for name in maps:
        own = name.endswith("self_attention")
        row = read if name.startswith("encoder") else written
        axes[name] = row, read if row is read or not own else before
    return _merged(maps, axes, f"{source.text} → {target.text}")


def encoder_record(
    maps: Mapping[str, NDArray[np.float32]], units: Units, source: TokenizedText, produced: str
) -> AttentionRecord:
    """Maps (H, T, S) of what reads ``<s> text </s>``, in the units asked for, with their labels.

    The rows of an encoder's maps are the text's; another map (a pooling) has the one row of what
    it produced.
    """
    read, answer = source.axis(units, [START], [END]), ([[0]], [produced])
    axes = {name: (read if name.startswith("encoder") else answer, read) for name in maps}
    return _merged(maps, axes, f"{source.text} → {produced}")


def joined_record(
    maps: Mapping[str, NDArray[np.float32]],
    units: Units,
    source: TokenizedText,
    target: TokenizedText,
) -> AttentionRecord:
    """Maps (H, T, T) of what reads ``<s> source </s> target`` in one sequence.

    Rows are what comes next, to the target's end; columns what was read before it.
    """
    first, second = source.axis(units, after=[END]), target.axis(units)
    begun = len(source.spans) + 1  # the tokens of the source and its end
    pieces = [*first[0], *([begun + piece for piece in group] for group in second[0])]
    labels = [*first[1], *second[1]]
    rows: Axis = [*pieces, [begun + len(target.spans)]], [*labels, END]
    columns: Axis = [[0], *([1 + piece for piece in group] for group in pieces)], [START, *labels]
    title = f"{source.text} → {target.text}"
    return _merged(maps, dict.fromkeys(maps, (rows, columns)), title)


def _merged(
    maps: Mapping[str, NDArray[np.float32]], axes: Mapping[str, tuple[Axis, Axis]], title: str
) -> AttentionRecord:
    """The record of maps between tokens whose rows and columns are merged as ``axes`` say."""
    return AttentionRecord(
        {
            name: np.stack([to_words(w, axes[name][0][0], axes[name][1][0]) for w in heads])
            for name, heads in maps.items()
        },
        {name: rows[1] for name, (rows, _) in axes.items()},
        {name: columns[1] for name, (_, columns) in axes.items()},
        title=title,
    )


def namer(tokenizer: Tokenizer) -> Callable[[int], str]:
    """What says the text of an id, special ones by their names."""
    return lambda i: tokenizer.decode([i], skip_special=False) or tokenizer.name(i)
