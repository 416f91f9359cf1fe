"""The kinds of tokenizer: here bytes, characters and words; BPE and unigram from `subword`.

Lives here: the simple kinds, and the names by which the rest of the program takes a tokenizer.
Does not live here: what they all share (`vocabulary`).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from foveate.data.subword import BPE, Unigram
from foveate.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Encoded,
    Span,
    Tokenizer,
    valid,
)
from foveate.data.words import split_words

__all__ = [
    "BOS",
    "BPE",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Byte",
    "Character",
    "Encoded",
    "Span",
    "Symbol",
    "Tokenizer",
    "Unigram",
    "Word",
]


class Byte(Tokenizer):
    """The bytes of UTF-8 (Xue et al., 2022): id = byte + 4; nothing to learn, nothing unknown."""

    class Config(Tokenizer.Config, kind="byte"):
        """Nothing to choose."""

    units = "tokens"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pieces = [*SPECIALS, *(f"<{value:02x}>" for value in range(256))]
        self._bytes = [*map(str.encode, SPECIALS), *(bytes([value]) for value in range(256))]

    def train(self, lines: Iterable[str]) -> None:
        """Do nothing: the pieces are given."""

    def extend(self, lines: Iterable[str], config: Tokenizer.Config) -> None:
        """Do nothing but to take off tags: all bytes are there."""
        self.add_tags([])

    def _encode(self, texts: list[str]) -> list[Encoded]:
        return [Encoded(ids, self.spans(ids)) for ids in self._encode_ids(texts)]

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [[byte + len(SPECIALS) for byte in text.encode()] for text in texts]

    def _vocabulary(self) -> Any:
        return None

    def _restore(self, vocabulary: Any) -> None:
        pass


class Listed(Tokenizer):
    """Units of the text, each an id of its own; what training did not show is ``<unk>``."""

    @abstractmethod
    def _units(self, text: str) -> list[Span]:
        """Where the units of a text stand."""

    @abstractmethod
    def _chosen(self, counts: Counter[str]) -> list[str]:
        """The units that become pieces."""

    def _form(self, unit: str) -> str:
        return unit

    def train(self, lines: Iterable[str]) -> None:
        counts = Counter[str]()
        for line in valid(lines):
            counts.update(self._form(line[start:end]) for start, end in self._units(line))
        self._restore(self._chosen(counts))

    def extend(self, lines: Iterable[str], config: Tokenizer.Config) -> None:
        self.add_tags([])
        further: Tokenizer = config.build()
        further.train(lines)
        new = [piece for piece in further.pieces[len(SPECIALS) :] if piece not in self._ids]
        self._restore(self._vocabulary() + new)

    def _encode(self, texts: list[str]) -> list[Encoded]:
        spans = [self._units(text) for text in texts]
        return [Encoded(*both) for both in zip(self._encode_ids(texts), spans, strict=True)]

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        known, form = self._ids.get, self._form
        return [[known(form(text[a:b]), UNK) for a, b in self._units(text)] for text in texts]

    def _vocabulary(self) -> Any:
        return self.pieces[len(SPECIALS) : len(self.pieces) - len(self.tags)]

    def _restore(self, vocabulary: Any) -> None:
        self.pieces = [*SPECIALS, *vocabulary]
        self._bytes = [piece.encode() for piece in self.pieces]
        self._ids = {piece: i for i, piece in enumerate(vocabulary, start=len(SPECIALS))}


class Character(Listed):
    """Unicode code points; the round trip is exact but for characters unseen in training."""

    class Config(Tokenizer.Config, kind="character"):
        """A character seen fewer than ``min_frequency`` times is unknown.

        What the regular expression ``symbols`` matches is one piece: ``<[^<>]+>`` for ``<N><DAT>``.
        """

        min_frequency: int = Field(default=1, ge=1)
        symbols: str | None = None

    config: Config
    units = "tokens"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        either = "." if config.symbols is None else f"(?:{config.symbols})|."
        self._unit = re.compile(either, re.DOTALL)

    def _units(self, text: str) -> list[Span]:
        return [found.span() for found in self._unit.finditer(text)]

    def _chosen(self, counts: Counter[str]) -> list[str]:
        return most_frequent(counts, None, self.config.min_frequency)


class Word(Listed):
    """Words between white space, punctuation and elided articles apart (`split_words`).

    Decoding sets spaces by the habits of print; which white space stood there is lost.
    """

    class Config(Tokenizer.Config, kind="word"):
        """The ``vocab_size`` most frequent words that were seen ``min_frequency`` times."""

        vocab_size: int = Field(default=30_000, gt=len(SPECIALS))
        min_frequency: int = Field(default=2, ge=1)
        lowercase: bool = False

    config: Config

    def _units(self, text: str) -> list[Span]:
        return split_words(text)

    def _form(self, unit: str) -> str:
        return unit.lower() if self.config.lowercase else unit

    def _chosen(self, counts: Counter[str]) -> list[str]:
        size = self.config.vocab_size - len(SPECIALS)
        return most_frequent(counts, size, self.config.min_frequency)

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        before = None
        for n, word in enumerate(map(bytes.decode, surface)):
            if before and word and word[0] not in ".,;:!?…%)]}»”" and before[-1] not in "([{«“'’":
                surface[n] = b" " + surface[n]
            before = word or before
        return surface


class Symbol(Listed):
    """What stands between blanks: text that was cut into words before, or phones ``HH AH0 L OW1``.

    A ``<unk>`` of the text itself is the unknown one. Decoding puts one blank between them.
    """

    class Config(Tokenizer.Config, kind="symbol"):
        """All symbols seen ``min_frequency`` times, or the ``vocab_size`` most frequent of them."""

        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        min_frequency: int = Field(default=1, ge=1)

    config: Config
    units = "tokens"

    def _units(self, text: str) -> list[Span]:
        return [found.span() for found in re.finditer(r"\S+", text)]

    def _chosen(self, counts: Counter[str]) -> list[str]:
        known = Counter({word: count for word, count in counts.items() if word != SPECIALS[UNK]})
        size = self.config.vocab_size
        chosen = None if size is None else size - len(SPECIALS)
        return most_frequent(known, chosen, self.config.min_frequency)

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        first = next((n for n, word in enumerate(surface) if word), len(surface))
        return [b" " + w if w and n > first else w for n, w in enumerate(surface)]


def most_frequent(counts: Counter[str], size: int | None, min_frequency: int) -> list[str]:
    """At most ``size`` pieces, frequent ones first and equally frequent ones by code point."""
    kept = (piece for piece, count in counts.items() if count >= min_frequency)
    return sorted(kept, key=lambda piece: (-counts[piece], piece))[:size]
