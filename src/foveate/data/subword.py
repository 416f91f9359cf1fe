"""Pieces of words over the 256 bytes, learnt by byte pair encoding or as a unigram model.

Lives here: what is put to Hugging Face's `tokenizers` and what is mended of it. Does not live
here: the other kinds of tokenizer (`tokenizer`).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import tokenizers as rust
from pydantic import Field
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from foveate.data.bpe_dropout import merges_of, split, uniform
from foveate.data.vocabulary import SILENT, SPECIALS, UNK, Encoded, Tokenizer, valid

# What a piece may not straddle: a word with the space before it, an elided article (l', qu'),
# a contraction ('s, 't), a number, a run of punctuation, a run of white space.
_ELIDED = "[cdjlmnstCDJLMNST]|[Qq]u|[Jj]usqu|[Ll]orsqu|[Pp]uisqu|[Qq]uoiqu|[Qq]uelqu"
_CHUNK = "|".join(
    (
        rf" ?(?:{_ELIDED})['’](?=\p{{L}})",
        r" ?[\p{L}\p{M}]+",
        r"(?<=\p{L})['’][\p{L}\p{M}]+",
        r" ?\p{N}+",
        r" ?[^\s\p{L}\p{M}\p{N}]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

REMEMBERED = 100_000  # texts whose chunks BPE-dropout keeps in memory


class Subword(Tokenizer):
    """Pieces of words, over the 256 bytes: no text is unknown and ``decode(encode(x)) == x``.

    A space is put before the text and taken away after decoding, so that a word has the same
    pieces at the start of a sentence as inside it. Bytes are written as 256 printable
    characters (Radford et al., 2019): `pieces` shows a space as ``Ġ``. Chunks that pieces never
    straddle keep ``<``, ``s`` and ``>`` apart, so no text reaches a special piece.
    """

    class Config(Tokenizer.Config):
        """``lowercase`` gives up the exact round trip for fewer forms of a word."""

        vocab_size: int = Field(default=8000, ge=len(SPECIALS) + 256)
        lowercase: bool = False

    config: Config

    @abstractmethod
    def _learn(self, lines: Iterator[str]) -> models.Model:
        """Learn a model whose first four pieces are the special ones."""

    def train(self, lines: Iterable[str]) -> None:
        self._use(self._wrap(self._learn(valid(lines))))

    def _wrap(self, model: models.Model) -> rust.Tokenizer:
        wrapped = rust.Tokenizer(model)
        lower = [normalizers.Lowercase()] if self.config.lowercase else []
        wrapped.normalizer = normalizers.Sequence([normalizers.Prepend(" "), *lower])
        chunks = pre_tokenizers.Split(rust.Regex(_CHUNK), "isolated")
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        wrapped.pre_tokenizer = pre_tokenizers.Sequence([chunks, letters])
        wrapped.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        return wrapped

    def _use(self, wrapped: rust.Tokenizer) -> None:
        self._rust = wrapped
        ids = wrapped.get_vocab(with_added_tokens=False)
        self.pieces = sorted(ids, key=ids.__getitem__)
        byte = {letter: bytes([value]) for value, letter in enumerate(byte_letters())}
        spelled = [b"".join(map(byte.__getitem__, piece)) for piece in self.pieces[len(SPECIALS) :]]
        self._bytes = [*map(str.encode, SPECIALS), *spelled]

    def _encode(self, texts: list[str]) -> list[Encoded]:
        found = self._rust.encode_batch(texts, add_special_tokens=False)
        encoded = [Encoded(one.ids, one.offsets) for one in found]
        for one in encoded:
            if one.ids and self._bytes[one.ids[0]] == b" ":  # the space that we put there
                one.offsets[0] = (0, 0)
        return encoded

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [one.ids for one in self._rust.encode_batch_fast(texts, add_special_tokens=False)]

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        first = next((n for n, i in enumerate(ids) if i not in SILENT), None)
        if first is not None:
            surface[first] = surface[first].removeprefix(b" ")
        return surface

    def _label(self, text: str) -> str:
        return text.replace(" ", "▁")  # as SentencePiece writes the blank before a word

    def _vocabulary(self) -> Any:
        return json.loads(self._rust.to_str())  # as Hugging Face's tokenizer.json

    def _restore(self, vocabulary: Any) -> None:
        self._use(_read(json.dumps(vocabulary)))


@lru_cache(maxsize=16)
def _read(vocabulary: str) -> rust.Tokenizer:
    """One for all who read the same vocabulary: what it remembers of words is never freed."""
    return rust.Tokenizer.from_str(vocabulary)


class BPE(Subword):
    """Byte pair encoding (Sennrich et al., 2016): again and again the most frequent pair is one."""

    class Config(Subword.Config, kind="bpe"):
        """A pair seen fewer than ``min_frequency`` times is not merged.

        In training a merge is passed over with probability ``dropout`` (Provilkov et al., 2020).
        """

        min_frequency: int = Field(default=2, ge=1)
        dropout: float = Field(default=0.0, ge=0, lt=1)

    config: Config

    def _learn(self, lines: Iterator[str]) -> models.Model:
        learner = self._wrap(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=self.config.vocab_size - len(SPECIALS),
            min_frequency=self.config.min_frequency,
            initial_alphabet=byte_letters(),
            show_progress=False,
        )
        learner.train_from_iterator(lines, trainer)
        learnt = json.loads(learner.to_str())["model"]
        vocabulary = {piece: i for i, piece in enumerate(SPECIALS)}
        vocabulary |= {piece: i + len(SPECIALS) for piece, i in learnt["vocab"].items()}
        return models.BPE(vocab=vocabulary, merges=[(a, b) for a, b in learnt["merges"]])

    def extend(self, lines: Iterable[str], config: Tokenizer.Config) -> None:
        """Learn merges of new text as well, and put those of new pieces after the old ones."""
        self.add_tags([])
        room = getattr(config, "vocab_size", 0) - self.vocab_size
        if not isinstance(config, BPE.Config) or room <= 0:
            raise ValueError(
                f"the vocabulary has {self.vocab_size:,} {self.config.kind} pieces already: set "
                'task.tokenizer = { kind = "bpe", vocab_size = … } to more, or '
                'start.vocabulary = "same" or "replace"'
            )
        further = BPE(config)
        further.train(lines)
        old, new = (json.loads(one._rust.to_str())["model"] for one in (self, further))
        pieces, merges = dict(old["vocab"]), [(a, b) for a, b in old["merges"]]
        for a, b in new["merges"]:
            if len(pieces) < config.vocab_size and a + b not in pieces and {a, b} <= pieces.keys():
                pieces[a + b] = len(pieces)
                merges.append((a, b))
        self.config = config
        self._use(self._wrap(models.BPE(vocab=pieces, merges=merges)))

    def _use(self, wrapped: rust.Tokenizer) -> None:
        super()._use(wrapped)
        learnt = json.loads(wrapped.to_str())["model"]
        self._letters = {letter: learnt["vocab"][letter] for letter in byte_letters()}
        self._merges = merges_of(learnt["vocab"], learnt["merges"])
        self._chunks: dict[str, list[list[int]]] = {}

    @property
    def noisy(self) -> bool:
        return self.config.dropout > 0

    def encode_noisy(self, texts: Sequence[str], seeds: Sequence[Sequence[int]]) -> list[list[int]]:
        split = [self._untagged(text) for text in self._ready(texts)]
        pairs = zip(split, seeds, strict=True)
        return [tag + self._drawn(text, uniform(seed)) for (tag, text), seed in pairs]

    def _drawn(self, text: str, chance: Iterator[float]) -> list[int]:
        """Ids of a text; the chunks of some texts are remembered, for epochs come again."""
        if text not in self._chunks:
            if len(self._chunks) >= REMEMBERED:
                self._chunks.clear()
            cut = self._rust.pre_tokenizer.pre_tokenize_str(
                self._rust.normalizer.normalize_str(text)
            )
            self._chunks[text] = [[self._letters[letter] for letter in chunk] for chunk, _ in cut]
        dropout = self.config.dropout
        parts = (split(chunk, self._merges, dropout, chance) for chunk in self._chunks[text])
        return list(chain.from_iterable(parts))


class Unigram(Subword):
    """The most likely split under independent pieces (Kudo, 2018): argmax Σ log p(piece)."""

    class Config(Subword.Config, kind="unigram"):
        """Pieces are dropped from a large list until ``vocab_size`` are left."""

    config: Config

    def _learn(self, lines: Iterator[str]) -> models.Model:
        learner = rust.Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=self.config.vocab_size - len(SPECIALS) + len(_END),
            special_tokens=[],
            initial_alphabet=byte_letters(),
            show_progress=False,
        )
        learner.train_from_iterator(_marked(self._chunks(lines)), trainer)
        scores = dict(json.loads(learner.to_str())["model"]["vocab"])
        del scores[_END]
        # Unseen bytes are scored 1e-4 apart in an order that chance decides, and sums of floats
        # depend on threads: give those bytes one score and round the others.
        floor = min(scores.values())
        for letter in byte_letters():
            if scores[letter] < floor + 256e-4:
                scores[letter] = floor
        rounded = sorted((-round(score, 6), piece) for piece, score in scores.items())
        listed = [(piece, 0.0) for piece in SPECIALS] + [(p, -cost) for cost, p in rounded]
        return models.Unigram(listed, unk_id=UNK)

    def _chunks(self, lines: Iterator[str]) -> Counter[str]:
        splitter = self._wrap(models.Unigram())
        counts = Counter[str]()
        for line in map(splitter.normalizer.normalize_str, lines):
            counts.update(chunk for chunk, _ in splitter.pre_tokenizer.pre_tokenize_str(line))
        return counts


_END = "\x01"  # no byte is written so


def _marked(counts: Counter[str]) -> Iterator[str]:
    """Every chunk as often as it was seen, once with a mark after it.

    The trainer takes as first candidates what repeats among *distinct* chunks with different
    characters after it, so a whole word would be none, however frequent. The mark is such a
    character; no candidate holds it.
    """
    yield _END
    for chunk, count in counts.items():
        yield from repeat(chunk, count - 1)
        yield chunk + _END if count > 1 else chunk


def byte_letters() -> list[str]:
    """The printable character for each of the 256 bytes: itself, or else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
