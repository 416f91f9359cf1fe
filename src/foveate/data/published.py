"""Published tokenizers, as their tokenizer.json says, in which ids 0 to 3 are ours.

Languages that a model wants as tokens of their own are tags here, as everywhere: ``<2fra_Latn>``
before a source asks for French, ``<2deu_Latn:fra_Latn>`` for French of a German source.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import tokenizers as rust
from numpy.typing import NDArray

from foveate.config import Tree
from foveate.data.tokenizer import (
    BOS,
    EOS,
    SPECIALS,
    TAG,
    UNK,
    Encoded,
    SpacedPieces,
    Tokenizer,
    byte_letters,
)
from foveate.errors import UserError

SPACE = "▁"  # the sign of a space in pieces
ROW = re.compile(r"<row_\d+>")  # the name of an id that has no piece
LETTERS = 0x10000  # the letters from here on count pieces
LONGER, RAREST = 0.1, -1e4  # added to the score of a joint piece; the score of what no text has
BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a piece that is one byte


class PublishedPieces(SpacedPieces):
    """The pieces of a vocabulary that others published, with our special pieces as ids 0 to 3.

    ``published`` are the ids of our pieces in that vocabulary, ``start`` its name of our start. No
    text becomes a special piece: ``</s>`` in a text is text.
    """

    published: list[int]
    _rust: rust.Tokenizer
    _ids: NDArray[np.int64]  # our id of each of its pieces

    def train(self, lines: Iterable[str]) -> None:
        raise UserError(
            "a published tokenizer is not trained: learn one of your own, "
            'task.tokenizer = { kind = "bpe" }, or begin with its run: foveate train start=RUN'
        )

    def add_tags(self, names: Sequence[str]) -> None:
        """Raise `UserError` for any other tags than its own."""
        if any(name not in self.tags for name in names):
            raise UserError("a published tokenizer has the languages of its model, and no others")

    def _encode(self, texts: list[str]) -> list[Encoded]:
        encodings = self._rust.encode_batch(texts, add_special_tokens=False)
        return [
            Encoded(self._ids[each.ids].tolist(), _forwards(each.offsets)) for each in encodings
        ]

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        encodings = self._rust.encode_batch_fast(texts, add_special_tokens=False)
        return [self._ids[each.ids].tolist() for each in encodings]

    def _vocabulary(self) -> object:
        return self._tree

    def _restore(self, vocabulary: Any) -> None:
        self._tree, pieces = vocabulary, vocabulary["pieces"]
        self.pieces, self.published = [*SPECIALS, *pieces[len(SPECIALS) :]], vocabulary["published"]
        self.start = pieces[BOS]
        self.tags = {piece: i for i, piece in enumerate(pieces) if TAG.fullmatch(piece)}


class Published(PublishedPieces, kind="published"):
    """The pieces of a tokenizer.json, split as the library `tokenizers` splits text.

    A source may begin with a token of its own, ``first``: its language (M2M100) or a start (BART).
    Targets may begin with one of the last ``openers`` ids, which costs nothing, since it is given:
    the language that the source asks for, else ``opening``. The ``last`` ids are languages and
    openings, on both sides. The texts of language models have no lines but the sign LF;
    ``startless`` ones are continued without a start before them.
    """

    paired = True

    @classmethod
    def of_json(cls, tree: Tree, names: list[str], order: list[int], **own: object) -> Published:
        """Return the tokenizer of a tokenizer.json: our ids' ``names``, ``order`` of theirs."""
        tokenizer = cls(cls.Config())
        tokenizer._restore({"tokenizer": tree, "pieces": names, "published": order} | own)
        return tokenizer

    def add_tags(self, names: Sequence[str]) -> None:
        """Give languages that it does not have ids after all others, if languages have ids."""
        wanted = dict.fromkeys(f"<2{name}>" for tag in names for name in _names(tag))
        new = [name for name in wanted if name not in self.tags]
        if new and self.tags:
            self._openers += len(new) * (self._openers > 0)
            self._last += len(new)
            self._add(new, len(self.pieces), self._tree["tokenizer"])
        elif new:
            super().add_tags(names)

    def extend(self, lines: Iterable[str], config: Tokenizer.Config) -> None:
        """Learn unknown letters and pieces that join neighbours in a word, frequent ones first.

        Every piece counts as a letter of byte pair encoding (Sennrich et al., 2016). A unigram
        model gives a + b the scores of both and a little more, so that it takes the longer piece
        where it took these two. Raises `UserError` without room for more pieces.
        """
        size: int = getattr(config, "vocab_size", 0)
        if size <= self.vocab_size:
            raise UserError(
                f"the published vocabulary has {self.vocab_size:,} pieces already: set "
                'task.tokenizer = { kind = "bpe", vocab_size = … } to more, or '
                'start.vocabulary = "same"'
            )
        texts = [self.bare(line) for line in lines]
        unknown = Counter(
            letter
            for text, encoded in zip(texts, self._encode(texts), strict=True)
            for i, (start, end) in zip(encoded.ids, encoded.offsets, strict=True)
            if i == UNK
            for letter in text[start:end]
            if not letter.isspace()
        )
        letters = [letter for letter, _ in unknown.most_common(size - self.vocab_size)]
        self._add(letters, len(self.pieces) - self._last, self._longer(dict.fromkeys(letters, ())))

        learner = rust.Tokenizer(rust.models.BPE())
        learner.pre_tokenizer = rust.pre_tokenizers.WhitespaceSplit()
        trainer = rust.trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=[chr(LETTERS + i) for i in range(self.vocab_size)],
            show_progress=False,
        )
        learner.train_from_iterator(map(self._lettered, self._encode_ids(texts)), trainer)
        merges = [
            ["".join(self.pieces[ord(letter) - LETTERS] for letter in part) for part in pair]
            for pair in json.loads(learner.to_str())["model"]["merges"]
        ]
        known = {*self.pieces}
        pairs = {a + b: (a, b) for a, b in merges if a + b not in known}
        self._add([*pairs], len(self.pieces) - self._last, self._longer(pairs))

    def _lettered(self, ids: Sequence[int]) -> str:
        """Return the words of a text, a letter for each piece that may be joined."""
        result = ""
        for i in ids:
            text, is_byte = self._bytes[i], BYTE.fullmatch(self.pieces[i])
            joins = not is_byte and all(b > 127 or chr(b).isalpha() for b in text.strip())
            result += " " * (not joins or text.startswith(b" "))
            result += chr(LETTERS + i) * joins
        return result

    def _longer(self, parts: Mapping[str, Sequence[str]]) -> Tree:
        """Return the tokenizer.json with further pieces, which get the ids behind all others.

        ``parts`` are the two that make up a piece; a letter has none.
        """
        tree, start = self._tree["tokenizer"], 1 + max(self.published)
        model, added = dict(tree["model"]), tree.get("added_tokens", [])
        if isinstance(model["vocab"], dict):
            own = {each["content"]: each["id"] for each in added if not each["special"]}
            new = {piece: start + n for n, piece in enumerate(parts)}
            listed = model["merges"] and isinstance(model["merges"][0], list)
            pairs = filter(None, parts.values())
            joined = [list(pair) if listed else " ".join(pair) for pair in pairs]
            model |= {"vocab": model["vocab"] | own | new, "merges": model["merges"] + joined}
        else:
            names = {each["id"]: each["content"] for each in added}
            held = range(len(model["vocab"]), start)
            scores = dict(model["vocab"])
            vocabulary = model["vocab"] + [[names.get(i, f"<row_{i}> "), RAREST] for i in held]
            least = min(scores.values())
            for piece, pair in parts.items():
                scores[piece] = sum(map(scores.__getitem__, pair)) + LONGER if pair else least
                vocabulary.append([piece, scores[piece]])
            model["vocab"] = vocabulary
        return tree | {"model": model}

    def _add(self, new: list[str], place: int, tree: Tree) -> None:
        """Give new pieces the ids from ``place`` on, and published ids behind all others."""
        own = {key: self._tree[key] for key in ("charsmap", "startless") if key in self._tree}
        end = 1 + max(self.published)
        theirs = [*self.published[:place], *range(end, end + len(new)), *self.published[place:]]
        moved = {i: i + len(new) * (i >= place) for i in range(len(self.pieces))}
        self._restore(
            own
            | {
                "tokenizer": tree,
                "pieces": [*self.pieces[:place], *new, *self.pieces[place:]],
                "published": theirs,
                "first": None if self._first is None else moved[self._first],
                "opening": [moved[i] for i in self._opening],
                "openers": self._openers,
                "last": self._last,
            }
        )

    def opening(self, source: str) -> list[int]:
        tag = self.tag_of(source) if self._openers else ""
        return [self.tags[f"<2{_names(tag)[-1]}>"]] if tag else self._opening

    def knows(self, tag: str) -> bool:
        names = _names(tag)
        pairs = self._first is not None or self._openers > 0
        return len(names) <= 1 + pairs and all(f"<2{name}>" in self.tags for name in names)

    def _untagged(self, text: str) -> tuple[list[int], str]:
        if self._openers:  # a target, whose language the source has
            return [], text
        if self._first is None:
            return super()._untagged(text)
        source, *target = _names(self.tag_of(text))
        return [self.tags[f"<2{source}>"] if target else self._first], self.bare(text)

    def _restore(self, vocabulary: Any) -> None:
        super()._restore(vocabulary)
        tree, pieces = vocabulary["tokenizer"], vocabulary["pieces"]
        self._first: int | None = vocabulary.get("first")
        self._opening: list[int] = vocabulary.get("opening", [])
        self._openers: int = vocabulary.get("openers", 0)
        self._last: int = vocabulary.get("last", max(len(self.tags), self._openers))
        self.certain = len(pieces) - self._openers if self._openers else 0
        if "startless" in vocabulary:
            self.startless = vocabulary["startless"]
            self.text_ends, self.line_end = (BOS, EOS), SPECIALS[EOS]
        self._rust = rust.Tokenizer.from_str(json.dumps(_without_special_pieces(tree)))
        self._ids = np.full(1 + max(self.published), UNK)
        for i, theirs in reversed([*enumerate(self.published)]):  # of several, the first
            self._ids[theirs] = i
        special = special_pieces(tree)
        silent = {UNK, *range(len(pieces) - self._openers, len(pieces))}
        silent |= {i for i, p in enumerate(pieces) if p in special or ROW.fullmatch(p)}
        shown = _spelled(tree, self.pieces)
        self._bytes = [b"" if i in silent else text for i, text in enumerate(shown)]


def _names(tag: str) -> list[str]:
    return tag[2:-1].split(":")


def special_pieces(tree: Tree) -> set[str]:
    """Return the special pieces of a tokenizer.json."""
    return {each["content"] for each in tree.get("added_tokens", ()) if each["special"]}


def _without_special_pieces(tree: Tree) -> Tree:
    """Return a tokenizer.json with which no text becomes a special piece."""
    special, model = special_pieces(tree), tree["model"]
    own = [each for each in tree.get("added_tokens", ()) if not each["special"]]
    if isinstance(model["vocab"], list):  # a space never reaches the model
        listed = [[p + " " if p in special else p, score] for p, score in model["vocab"]]
        model = model | {"vocab": listed}
    return tree | {"model": model, "added_tokens": own, "post_processor": None}


def _forwards(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans that never run backwards."""
    starts = [*accumulate((start for start, _ in spans), max)]
    return [(a, max(a, end)) for a, (_, end) in zip(starts, spans, strict=True)]


def _spelled(tree: Tree, pieces: list[str]) -> list[bytes]:
    """Return the text of each piece: letters for bytes, or signs for spaces and bytes."""
    added = {each["content"] for each in tree.get("added_tokens", ())}
    if "ByteLevel" in json.dumps([tree.get("decoder"), tree.get("pre_tokenizer")]):
        byte = {letter: bytes([value]) for value, letter in enumerate(byte_letters())}
        return [
            piece.encode() if piece in added else b"".join(map(byte.__getitem__, piece))
            for piece in pieces
        ]
    falls_back = tree["model"].get("byte_fallback", False)
    matches = [BYTE.fullmatch(piece) if falls_back else None for piece in pieces]
    return [
        piece.replace(SPACE, " ").encode() if match is None else bytes.fromhex(match[1])
        for piece, match in zip(pieces, matches, strict=True)
    ]
