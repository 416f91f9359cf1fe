"""SentencePiece models of other libraries, used as they were published.

A ``.spm`` or ``.model`` file is read once, without the library, and places as plain values: pieces,
scores and the replacements of its normalizer. What text becomes which pieces is as before; only the
ids are ours, so that the four special pieces are 0 to 3 here as in every vocabulary of foveate.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as rust
from tokenizers import models, pre_tokenizers

from foveate.config import Tree
from foveate.data.published import SPACE, Published, PublishedPieces
from foveate.data.tokenizer import UNK, Encoded, bounded
from foveate.errors import UserError

NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # types of pieces
MARK = re.compile(r"^>>(\S+?)<<")  # a piece that names the target language, before a source
UNIGRAM, JOINED = 1, 2  # types of models; the second joins neighbours, as BPE
Field = int | float | bytes  # of a message: a number, or bytes that may be a message again


@dataclass(frozen=True)
class SentencePieceModel:
    """Content of a SentencePiece file: pieces (text, score, type), and a normalizer (`Charsmap`).

    Pieces of other types than `NORMAL` never stand for text.
    """

    pieces: list[tuple[str, float, int]]
    charsmap: bytes

    @staticmethod
    def read(path: Path, model_type: int = UNIGRAM) -> SentencePieceModel:
        """Read a file. Raises `UserError` if it is none, or of an unsupported kind."""
        try:
            message = [*fields(bounded(path))]
            pieces = [dict(fields(each)) for number, each in message if number == 1]
            parts = {number: dict(fields(each)) for number, each in message if number in (2, 3)}
            listed = [(str(p[1], "utf-8"), float(p.get(2, 0)), int(p.get(3, 1))) for p in pieces]
            trainer, normalizer = parts.get(2, {}), parts.get(3, {})
            charsmap = bytes(normalizer.get(2) or bytes(4))
        except (ValueError, LookupError, TypeError, struct.error) as error:
            raise UserError(f"{path}: not a SentencePiece model ({error!r})") from None
        kinds = {kind for _, _, kind in listed}
        plain = all(normalizer.get(number, 1) for number in (3, 4, 5)) and not trainer.get(24, 0)
        if trainer.get(3, UNIGRAM) != model_type or not plain or kinds - {1, 2, 3, 5}:
            raise UserError(
                f"{path}: a SentencePiece model of type {trainer.get(3, UNIGRAM)} with options "
                f"of its own; supported here is type {model_type} with spaces marked before words "
                "and without byte pieces"
            )
        if sum(kind == UNKNOWN for _, _, kind in listed) != 1:
            raise UserError(f"{path}: a SentencePiece model has exactly one unknown piece")
        return SentencePieceModel(listed, charsmap)


def fields(message: object) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a Protocol Buffers message."""
    if not isinstance(message, bytes):
        raise ValueError("a number in place of a message")
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, number()
            continue
        size = number() if kind == 2 else {1: 8, 5: 4}[kind]
        value = message[place : place + size]
        if len(value) < size:
            raise ValueError("it ends in the middle of a field")
        place += size
        yield key >> 3, struct.unpack("<f", value)[0] if kind == 5 else value


class Charsmap:
    """The replacements of a normalizer; of those that match at a character the longest is made.

    The ``blob`` is a double-array trie (Aoe, 1989) over UTF-8, of 32-bit units as darts-clone lays
    them out, whose leaves are offsets into the texts that follow it.
    """

    def __init__(self, blob: bytes) -> None:
        (size,) = struct.unpack("<I", blob[:4])
        self._units = np.frombuffer(blob[4 : 4 + size], "<u4").tolist()
        self._texts = blob[4 + size :]
        plain = not any(self.longest(chr(code), 0)[0] for code in range(32, 127))
        # An ASCII character alone is rarely replaced, but an "e" before an accent is.
        self._pattern = re.compile(r"[^ -~]|.(?=[^ -~])" if plain else ".", re.DOTALL)

    def longest(self, text: str, start: int) -> tuple[int, str]:
        """Return how many characters are replaced at a position, 0 if none are, and by what."""
        units, longest = self._units, (0, "")
        if not units:
            return longest
        node = _offset(units[0])
        for count, character in enumerate(islice(text, start, None), start=1):
            for byte in character.encode():
                node ^= byte
                if node >= len(units) or units[node] & 0x800000FF != byte:
                    return longest
                unit = units[node]
                node ^= _offset(unit)
            if unit >> 8 & 1:
                begin = units[node] & 0x7FFFFFFF
                longest = count, self._texts[begin : self._texts.index(b"\0", begin)].decode()
        return longest

    def replaced(self, text: str) -> tuple[str, list[int]]:
        """Return a text after all replacements; where each of its characters was, and its end."""
        parts, at, place = [], [], 0
        for match in self._pattern.finditer(text):
            start = match.start()
            try:
                taken, new = (0, "") if start < place else self.longest(text, start)
            except (LookupError, ValueError):
                raise UserError("the normalizer of a SentencePiece model is damaged") from None
            if taken:
                parts += [text[place:start], new]
                at += [*range(place, start), *[start] * len(new)]
                place = start + taken
        return "".join((*parts, text[place:])), [*at, *range(place, len(text) + 1)]

    def normal(self, text: str) -> tuple[str, Sequence[int]]:
        """Return the text that is split, and where each of its characters begins in the original.

        The longest replacement at each character is made; then spaces at both ends are removed and
        those in a row become one, and one is put before the first word.
        """
        whole, at = self.replaced(text)
        if _SPACES.search(whole):
            later = (whole := whole.rstrip(" " + SPACE))[1:] + " "
            places = [n for n, c in enumerate(whole) if c != " " or later[n] != " "]
            places = places[len(places) > 0 and whole[places[0]] == " " :]
            whole = "".join(whole[n] for n in places)
            at = [*(at[n] for n in places), at[places[-1] + 1] if places else 0]
        return (" " + whole, [at[0], *at]) if whole else (whole, at)


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


class NormalizedPieces(PublishedPieces):
    """The pieces of a SentencePiece model, whose normalizer changes a text before it is split."""

    _charsmap: Charsmap

    def _encode(self, texts: list[str]) -> list[Encoded]:
        normal = [self._charsmap.normal(text) for text in texts]
        encoded = super()._encode([text for text, _ in normal])
        return [
            Encoded(each.ids, [(at[a], at[b]) for a, b in each.offsets])
            for each, (_, at) in zip(encoded, normal, strict=True)
        ]

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        return super()._encode_ids([self._charsmap.normal(text)[0] for text in texts])

    def _restore(self, vocabulary: Tree) -> None:
        super()._restore(vocabulary)
        self._charsmap = Charsmap(b64decode(str(vocabulary["charsmap"])))


class JoinedPieces(NormalizedPieces, Published, kind="sentencepiece_bpe"):
    """The pieces of a published SentencePiece model that joins neighbours, as BPE (M2M100)."""


class SentencePiece(NormalizedPieces, kind="sentencepiece"):
    """The pieces of a published unigram model (Kudo, 2018), split as SentencePiece splits text."""

    @staticmethod
    def of_model(
        model: SentencePieceModel, ids: Mapping[str, int], order: Sequence[int]
    ) -> SentencePiece:
        """Return a tokenizer of a model whose pieces have ``ids`` in a published vocabulary.

        ``order`` lists those ids in the order of ours. A piece that has none is unknown. Languages
        such as ``>>fra<<``, which come last, are tags as everywhere: ``<2fra>``.
        """
        names = {i: MARK.sub(r"<2\1>", name) for name, i in ids.items()}
        own = {i: n for n, i in reversed([*enumerate(order)])}  # the first of several
        tokenizer = SentencePiece(SentencePiece.Config())
        tokenizer._restore(
            {
                "pieces": [names[i] for i in order],
                "published": list(order),
                "model": [[text, score, kind] for text, score, kind in model.pieces],
                "ids": [own.get(ids.get(text, -1), UNK) for text, _, _ in model.pieces],
                "charsmap": b64encode(model.charsmap).decode(),
            }
        )
        return tokenizer

    def addressed(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        return super().addressed([MARK.sub(r"<2\1>", line) for line in lines], to)

    def _restore(self, vocabulary: Any) -> None:
        super()._restore(vocabulary)
        model = vocabulary["model"]
        shown = (piece.replace(SPACE, " ") for piece in self.pieces[1:])
        self._bytes = [b"", *map(str.encode, shown)]  # an unknown piece leaves no trace
        self._ids = np.array(vocabulary["ids"])
        if not 0 <= self._ids.min() <= self._ids.max() < len(self.pieces) == len(self.published):
            raise ValueError("the ids of its pieces do not fit")
        # A space never reaches the model, so what ends with one matches no text.
        listed = [(text if kind == NORMAL else text + " ", score) for text, score, kind in model]
        unknown = [kind for _, _, kind in model].index(UNKNOWN)
        self._rust = rust.Tokenizer(models.Unigram(listed, unk_id=unknown, byte_fallback=False))
        self._rust.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never")


_SPACES = re.compile(rf"^ |[ {SPACE}]$|  ")
