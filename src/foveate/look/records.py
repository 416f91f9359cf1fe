"""Records of attention: the weights of one input through a model, their labels and measures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.data.tokenizer import BOS, EOS, SILENT, Encoded, Span, Tokenizer, lines_of
from foveate.data.words import UNSPACED, group_pieces, split_words, to_words
from foveate.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Weights = NDArray[np.float32]  # (..., T, S)
Figures = NDArray[np.float64]  # (...)
Maps = Mapping[str, Weights]  # by name: (H, T, S), between pieces
LAYERS = "layers", "blocks", "layer", "block", "h"  # names of lists of layers
Labels = Sequence[str]
# The rows and columns of attention: "auto" chooses by the tokenizer and the script.
Units = Literal["auto", "tokens", "words"]


def block_of(name: str) -> str:
    """Return the name of a module without its layer.

    ``decoder.layers.3.cross_attention`` belongs to the block ``decoder.cross_attention``, and so
    does a second call of it, ``decoder.layers.3.cross_attention#2``.
    """
    parts = name.partition("#")[0].split(".")
    return ".".join(p for p in parts if p not in LAYERS and not p.isdecimal())


def spaced(block: str) -> str:
    """Return the name of a block as text: ``decoder cross-attention``."""
    return block.replace("_", "-").replace(".", " ")


def suffixes(block: str) -> list[str]:
    """Return a dotted name and its endings, the longest first: ``a.b`` gives ``a.b`` and ``b``."""
    parts = block.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of one sentence (or image, or series) through a whole model.

    ``maps`` holds, by the dotted name of the module that computed them, weights of shape (H, T, S):
    head, query, key; exactly 0 where masked. ``rows`` and ``columns`` label queries and keys by the
    map's name, by its block (``encoder.self_attention``), by the end of the block's name
    (``cross_attention``), or under ``""`` for every other block. Row t of a decoder's map belongs
    to the label *produced* at t.
    """

    maps: dict[str, NDArray[np.float32]]
    rows: dict[str, list[str]]
    columns: dict[str, list[str]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        maps: Mapping[str, Tensor],
        source: Labels = (),
        target: Labels = (),
        title: str = "",
        row: int = 0,
    ) -> AttentionRecord:
        """Return the captured maps of one row of a batch, with the tokens of their axes.

        ``source`` is what an encoder read, ``target`` what a decoder read, including its start.
        Each position of a decoder produces the next token, the last one an unknown token (``…``).
        """
        read, before = list(source), list(target)
        produced = [*before[1:], "…"] if before else []
        own, cross = (produced, before), (produced, read)
        labels = {
            name: cross if block_of(name).endswith("cross_attention") else own for name in maps
        } | {name: (read, read) for name in maps if name.startswith("encoder")}
        return cls(
            {name: weights[row].detach().float().cpu().numpy() for name, weights in maps.items()},
            {name: rows for name, (rows, _) in labels.items() if rows},
            {name: keys for name, (_, keys) in labels.items() if keys},
            title,
        )

    def axes(self, name: str) -> tuple[list[str], list[str]]:
        """Return labels of the queries (T) and keys (S) of one map; empty if none were given."""
        keys = [name, *suffixes(block_of(name)), ""]
        return (
            next((self.rows[key] for key in keys if key in self.rows), []),
            next((self.columns[key] for key in keys if key in self.columns), []),
        )

    def labels(self, name: str) -> tuple[list[str], list[str]]:
        """Return labels of the queries (T) and keys (S) of a map, by default their numbers."""
        (rows, columns), (_, height, width) = self.axes(name), self.maps[name].shape
        return rows or [*map(str, range(height))], columns or [*map(str, range(width))]

    def row_means(self, name: str) -> Literal["at", "producing"]:
        """Return what a row of a map is: the word a decoder is *producing*, or one it is *at*."""
        return "at" if block_of(name).startswith("encoder") else "producing"

    def blocks(self) -> dict[str, list[str]]:
        """Return the names of the maps of each block, both in the order of the model."""
        by_block: dict[str, list[str]] = {}
        for name in self.maps:
            by_block.setdefault(block_of(name), []).append(name)
        return by_block

    def names(self, block: str) -> list[str]:
        """Return the names of the maps of a block, which may be given by the end of its name.

        ``cross_attention`` is enough if only the decoder has one; empty if there is none. Raises
        `UserError` listing the blocks if several would match.
        """
        blocks = self.blocks()
        fitting = [block] if block in blocks else [b for b in blocks if block in suffixes(b)]
        if len(fitting) > 1:
            raise UserError(f"{block!r} could be any of: {', '.join(fitting)}")
        return blocks[fitting[0]] if fitting else []

    def layers(self, block: str) -> list[str]:
        """Return the names of the maps of a block. Raises `UserError` listing the blocks."""
        names = self.names(block)
        if not names:
            known = ", ".join(self.blocks()) or "none: this model has no attention"
            raise UserError(f"no block {block!r} here; there are: {known}")
        return names

    def drawn(self, name: str) -> NDArray[np.float32]:
        """Return one map (H, T, S) without the padding that has no label.

        Raises `UserError` if there are more labels than weights, if a weight would be cut off with
        the padding, or if a weight is not a number.
        """
        weights = self.maps[name]
        if not np.isfinite(weights).all():
            raise UserError(f"{name}: some weights are not finite; has training diverged?")
        rows, columns = self.axes(name)
        height, width = len(rows) or weights.shape[1], len(columns) or weights.shape[2]
        labelled = weights[:, :height, :width]
        if labelled.shape[1:] != (height, width):
            raise UserError(
                f"{name}: weights of shape {weights.shape} for {height} rows and {width} columns; "
                "give one label for each query and key"
            )
        lost = float(np.sum(weights[:, :height, width:]))
        if lost > 1e-6:
            raise UserError(
                f"{name}: keys without a label carry a weight of {lost:.3g}; label every key that "
                "is not padding, and mask padding"
            )
        return labelled

    def first_block(self) -> str:
        """Return the block that is shown by default: cross-attention, else the first."""
        return "cross_attention" if self.names("cross_attention") else next(iter(self.blocks()), "")

    def layer_name(self, block: str | None = None, layer: int = -1) -> str:
        """Return the name of a layer of a block, or of `first_block`. Raises `UserError`."""
        block = block or self.first_block()
        names = self.layers(block)
        if not -len(names) <= layer < len(names):
            raise UserError(f"layer {layer} of {block}: there are {len(names)}")
        return names[layer]

    def select(
        self, block: str | None = None, layer: int = -1, head: int | None = None
    ) -> NDArray[np.float32]:
        """Return one map (T, S): one head of `layer_name`, or the mean of all.

        Raises `UserError` as that does, or with the number of heads.
        """
        name = self.layer_name(block, layer)
        heads = self.drawn(name)
        if head is not None and not 0 <= head < len(heads):
            raise UserError(f"head {head} of {name}: there are {len(heads)}")
        chosen: NDArray[np.float32]
        chosen = heads.mean(axis=0, dtype=np.float32) if head is None else heads[head]
        return chosen


# The tokens of texts along the axes of maps, or the words that they are merged into.

Axis = tuple[list[list[int]], list[str]]  # the tokens of each row or column, and its label
END, START = "</s>", "<s>"
# An angle-bracket placeholder or special token, such as <N> and <unk>, is one word.
_PLACEHOLDER = re.compile(r"<[^<>\s]+>")


@dataclass(frozen=True)
class TokenizedText:
    """A text, with the characters and the label of each of its tokens (None for special tokens).

    ``units`` is what its axis shows by default: its tokens, or its words, except that words in a
    script without spaces are shown as their tokens. ``start`` is the token before an output.
    """

    text: str
    spans: Sequence[Span | None]
    labels: Sequence[str]
    units: Units = "words"
    start: str = START

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, encoded: Encoded) -> TokenizedText:
        """Return a text and its tokens; a first token that is only a space joins the first word."""
        ids, spans = encoded.ids, encoded.offsets
        placed = [
            None if i in SILENT else (start, end) if end else (0, 1)
            for i, (start, end) in zip(ids, spans, strict=True)
        ]
        labels = tokenizer.labels(ids, text, spans)
        return cls(text, placed, labels, tokenizer.units, tokenizer.start)

    @classmethod
    def read(cls, tokenizer: Tokenizer, text: str) -> TokenizedText:
        """Return a text that a model reads, tokenized."""
        return cls.of(tokenizer, text, tokenizer.encode(text))

    @classmethod
    def written(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedText:
        """Return a text that a model produces, from its ids."""
        return cls.of(tokenizer, tokenizer.decode(ids), Encoded(list(ids), tokenizer.spans(ids)))

    def axis(self, units: Units, before: Sequence[str] = (), after: Sequence[str] = ()) -> Axis:
        """Return the tokens of each row (or column), with special tokens around, and its label.

        With ``units = "auto"`` the words of scripts without spaces are shown as their tokens.
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
            apart = word is not None and UNSPACED.search(name)
            rows += [([n], tokens[n]) for n in pieces] if apart else [(pieces, name)]
        return [pieces for pieces, _ in rows], [name for _, name in rows]


def words_of(text: str) -> list[Span]:
    """Return the words of a text on an axis: `split_words`, but a placeholder is one word."""
    whole = [match.span() for match in _PLACEHOLDER.finditer(text)]
    words = [w for w in split_words(text) if not any(a <= w[0] and w[1] <= b for a, b in whole)]
    return sorted([*words, *whole])


def attention_record(
    maps: Maps,
    units: Units,
    source: TokenizedText | Sequence[str],
    target: TokenizedText,
    name: str = "",
) -> AttentionRecord:
    """Label maps (H, T, S) between tokens in the given units.

    The encoder's rows and columns are the source and its end, or the patches of an image; the
    decoder's rows are what is produced and the end, and the columns of its self-attention the start
    and what was read. ``name`` is the name of a source that is not text.
    """
    if isinstance(source, TokenizedText):
        name, read = source.text, source.axis(units, after=[END])
    else:
        read = [[i] for i in range(len(source))], list(source)
    written, before = target.axis(units, after=[END]), target.axis(units, before=[target.start])
    axes = {}
    for block in maps:
        encodes, own = block.startswith("encoder"), block.endswith("self_attention")
        axes[block] = (read, read) if encodes else (written, before if own else read)
    return _merged(maps, axes, f"{name} → {target.text}")


def encoder_record(
    maps: Maps, units: Units, source: TokenizedText, produced: str
) -> AttentionRecord:
    """Label maps (H, T, S) of a model that reads ``<s> text </s>``, in the given units.

    The rows of an encoder's maps are those of the text; another map (a pooling) has one row, for
    what it produced.
    """
    read, answer = source.axis(units, [source.start], [END]), ([[0]], [produced])
    axes = {name: (read if name.startswith("encoder") else answer, read) for name in maps}
    return _merged(maps, axes, f"{source.text} → {produced}")


def joined_record(
    maps: Maps, units: Units, source: TokenizedText, target: TokenizedText
) -> AttentionRecord:
    """Label maps (H, T, T) of a model that reads ``<s> source </s> target`` in one sequence.

    Rows are the next tokens, up to the target's end; columns what was read before them.
    """
    first, second = source.axis(units, after=[END]), target.axis(units)
    begun = len(source.spans) + 1  # the tokens of the source and its end
    pieces = [*first[0], *([begun + piece for piece in group] for group in second[0])]
    labels = [*first[1], *second[1]]
    rows: Axis = [*pieces, [begun + len(target.spans)]], [*labels, END]
    later = [[1 + piece for piece in group] for group in pieces]
    columns: Axis = [[0], *later], [target.start, *labels]
    return _merged(maps, dict.fromkeys(maps, (rows, columns)), f"{source.text} → {target.text}")


def _merged(maps: Maps, axes: Mapping[str, tuple[Axis, Axis]], title: str) -> AttentionRecord:
    """Return a record of maps whose rows and columns are merged as in ``axes``, which it notes."""
    counts = [(sum(map(len, pieces)), len(pieces)) for axis in axes.values() for pieces, _ in axis]
    merged = ", ".join(f"{a} into {b}" for a, b in dict.fromkeys(counts) if b < a)
    notes = [f"tokens are merged into words: {merged}"] if merged else []
    return AttentionRecord(
        {
            name: np.stack([to_words(w, axes[name][0][0], axes[name][1][0]) for w in heads])
            for name, heads in maps.items()
        },
        {name: rows[1] for name, (rows, _) in axes.items()},
        {name: columns[1] for name, (_, columns) in axes.items()},
        title,
        notes,
    )


def lines_record(
    maps: Maps, units: Units, tokenizer: Tokenizer, ids: Sequence[int], notes: Sequence[str] = ()
) -> AttentionRecord:
    """Label maps (H, T, T) of a model that reads a start and then text, in the given units.

    Rows are the next tokens, up to the end of the last line; columns what was read before them.
    """
    rows = lines_axis(tokenizer, [*ids, EOS], units)
    columns = lines_axis(tokenizer, [tokenizer.text_ends[0], *ids], units)
    title = " ".join(tokenizer.decode_lines(ids).split())
    made = _merged(maps, dict.fromkeys(maps, (rows, columns)), title)
    return replace(made, notes=[*notes, *made.notes])


def lines_axis(tokenizer: Tokenizer, ids: Sequence[int], units: Units) -> Axis:
    """Return the tokens of each row or column, starts and ends by themselves, and the labels."""
    groups: list[list[int]] = []
    labels: list[str] = []
    for start, line in lines_of(ids):
        written = TokenizedText.written(tokenizer, line)
        alone = {BOS: tokenizer.name(BOS), EOS: tokenizer.line_end}.get(line[0])
        pieces, names = written.axis(units) if alone is None else ([[0]], [alone])
        groups += [[start + piece for piece in group] for group in pieces]
        labels += names
    return groups, labels


# Measures of attention maps, and the kind of each head.


def entropy(weights: Weights) -> Figures:
    """Return how broad the attention of the rows is: mean over t of -Σ_s a_ts log2 a_ts, in bits.

    Shape: (..., T, S) to (...). 0 if each row has one key, log2 S if all keys are equal.
    """
    return _bits(weights).mean(axis=-1)


def _bits(weights: Weights) -> Figures:
    """Return the entropy of each row, -Σ_s a_ts log2 a_ts."""
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    return -(safe * np.log2(safe)).sum(axis=-1)


def confidence(weights: Weights) -> Figures:
    """Return the mean over the rows of their largest weight (Voita et al., 2019).

    Shape: (..., T, S) to (...).
    """
    return weights.max(axis=-1).mean(axis=-1, dtype=np.float64)


def diagonality(weights: Weights) -> Figures:
    """Return the closeness to the diagonal: 1 - mean over t of Σ_s a_ts |s/(S-1) - t/(T-1)|.

    Shape: (..., T, S) to (...). 1 for a map that copies in order, 0 for one as far off as possible.
    """
    height, width = weights.shape[-2:]
    across = np.arange(width) / max(width - 1, 1)
    down = np.arange(height) / max(height - 1, 1)
    distance = np.abs(across - down[:, None])
    return 1 - (weights * distance).sum(axis=-1).mean(axis=-1)


# Offsets follow the labels of a map: rows of a decoder's self-attention are the words produced, its
# columns the words read, so the last word read is at the position of the previous token.
CROSS = {"diagonal": 0}
ENCODER = {"same token": 0, "previous token": -1, "next token": 1}
DECODER = {"previous token": 0, "two tokens before": -1}
ENOUGH = 0.4  # mean weight on one offset from which a head is called after it


def on_diagonal(weights: Weights, offset: int = 0) -> Figures:
    """Return the mean weight on the key at the position of the query, or ``offset`` further.

    Shape: (..., T, S) to (...). If T ≠ S the position is t (S−1)/(T−1), rounded. Rows whose
    position would lie outside are left out.
    """
    height, width = weights.shape[-2:]
    places = np.rint(np.arange(height) * (width - 1) / max(height - 1, 1)).astype(int) + offset
    rows = np.flatnonzero((places >= 0) & (places < width))
    if not len(rows):
        return np.zeros(weights.shape[:-2])
    return weights[..., rows, places[rows]].mean(axis=-1, dtype=np.float64)


def on_sink(weights: Weights) -> Figures:
    """Return the largest mean weight of one key: near 1 if all rows attend to one key.

    Shape: (..., T, S) to (...).
    """
    return weights.mean(axis=-2, dtype=np.float64).max(axis=-1, initial=0.0)


def breadth(weights: Weights) -> Figures:
    """Return the mean of each row's entropy, relative to its maximum over visible keys: 0 to 1.

    Shape: (..., T, S) to (...). A key of weight 0 counts as hidden; rows that see one key are left
    out.
    """
    seen = (weights > 0).sum(axis=-1)
    wide = seen > 1
    shares = np.where(wide, _bits(weights) / np.log2(np.where(wide, seen, 2)), 0)
    return shares.sum(axis=-1) / np.maximum(wide.sum(axis=-1), 1)


def spread(weights: Weights) -> Figures:
    """Return the number of distinct strongest keys over the possible. (..., T, S) to (...)."""
    height, width = weights.shape[-2:]
    chosen = np.sort(weights.argmax(axis=-1), axis=-1)
    different = 1 + (np.diff(chosen, axis=-1) > 0).sum(axis=-1)
    return different / max(min(height, width), 1)


def kind_of(weights: Weights, offsets: Mapping[str, int] = ENCODER) -> str:
    """Return what a head does, judged by its map (T, S), by a heuristic.

    The offset with the largest mean weight names the head (``offsets`` are positions relative to
    the row's) if that weight is at least 40 %, and more than any key has over all rows (else
    ``sink``, if that key has 40 %). A head that crosses from a target to a source is ``aligning``
    if its rows are sure (their largest weight is 40 % on average) of at least half as many keys as
    possible; any head is ``broad`` if its rows attend to their keys almost evenly (entropy 90 % of
    the maximum). A single row or key has ``no pattern``; without any weight it is ``silenced``.
    """
    if not weights.any():
        return "silenced"
    if min(weights.shape) < 2:
        return "no pattern"
    shares = {name: float(on_diagonal(weights, offset)) for name, offset in offsets.items()}
    shares["sink"] = float(on_sink(weights))
    name = max(shares, key=shares.__getitem__)
    if shares[name] >= ENOUGH:
        return name
    if offsets is CROSS and confidence(weights) >= ENOUGH and spread(weights) >= 0.5:
        return "aligning"
    return "broad" if breadth(weights) >= 0.9 else "no pattern"


def kinds_of(maps: Mapping[str, Weights]) -> dict[str, list[str]]:
    """Return what each head of each map (H, T, S) does, by `kind_of`."""
    kinds = {}
    for name, heads in maps.items():
        own = ENCODER if name.startswith("encoder") else DECODER
        offsets = CROSS if name.endswith("cross_attention") else own
        kinds[name] = [kind_of(head, offsets) for head in heads]
    return kinds
