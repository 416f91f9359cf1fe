"""Tokenizers: words, characters, bytes, BPE and unigram, their vocabularies, and BPE-dropout."""

from __future__ import annotations

import codecs
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import tokenizers as rust
from pydantic import Field
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from foveate.config import BaseConfig, Configurable, Tree
from foveate.data.words import split_blanks, split_words
from foveate.errors import UserError
from foveate.files import read_bytes, replace_file

if TYPE_CHECKING:
    from foveate.data.text import TextFormat

UNK, PAD, BOS, EOS = range(4)
SPECIALS = ("<unk>", "<pad>", "<s>", "</s>")
SILENT = frozenset((PAD, BOS, EOS))  # leave no trace in decoded text, unlike an unknown piece
TAG = re.compile(r"<2[^<>\s]+>")  # at the start of a text: the language to translate to
LARGEST = 64 * 2**20  # most bytes of a file of pieces; in memory it takes a dozen times as much
Span = tuple[int, int]  # from the first character to the one after the last


@dataclass(frozen=True, slots=True)
class Encoded:
    """The ids of a text and, for each, the characters that it represents."""

    ids: list[int]
    offsets: list[Span]


class Tokenizer(Configurable, ABC):
    """Splits a text into pieces of a fixed list: ids (T,) without ``<s>`` and ``</s>``.

    ``pieces[id]`` is the name of an id in that list; `spans` returns its characters in a text.
    """

    class Config(BaseConfig, family="tokenizer"):
        """The kind of tokenizer."""

    config: Config
    # The default units of such a text in attention views (`foveate.look.records.Units`).
    units: ClassVar[Literal["tokens", "words"]] = "words"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pieces: list[str] = []
        self._bytes: list[bytes] = []  # the text of each piece, in UTF-8
        self.tags: dict[str, int] = {}  # marks that a text may begin with, and their ids

    @property
    def vocab_size(self) -> int:
        """Number of ids, including the four special ones."""
        return len(self.pieces)

    noisy = False  # whether training sees another split of a text in each epoch (`encode_noisy`)
    text_ends = EOS, PAD
    """The ids around a text of a language model: by default it begins after the end of a line, and
    nothing ends it."""
    start = SPECIALS[BOS]  # what `BOS` is called on an axis
    line_end = "⏎"  # the sign of `EOS` on an axis, which ends a line
    startless = False  # whether a text that is continued begins with its own first token
    paired = False  # whether it has the pieces of the other side, in the same order
    certain = 0  # the first id of those with which outputs must begin, such as a language; 0: none

    def opening(self, source: str) -> list[int]:
        """Return the ids with which the targets of a source must begin."""
        return []

    def begun(
        self, sources: Iterable[object], prefixes: Sequence[list[int]] = ()
    ) -> list[list[int]]:
        """Return the ids with which the targets of sources begin, none if all are free.

        These are the opening of each, and its prefix, which may already begin with it.
        """
        openings = [self.opening(str(source)) for source in sources] if self.certain else []
        if not any(openings):
            return list(prefixes)
        pairs = zip(openings, prefixes or [[]] * len(openings), strict=True)
        return [[*o, *p[len(o) if p[: len(o)] == o else 0 :]] for o, p in pairs]

    @abstractmethod
    def train(self, lines: Iterable[str]) -> None:
        """Learn the pieces from text; the same lines give the same pieces."""

    def encode(self, text: str) -> Encoded:
        """Return ids of a text and the spans of its characters; spans never run backwards."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[Encoded]:
        """Apply `encode` to each text; raise `UserError` for a lone surrogate, invalid in UTF-8."""
        ready = self._ready(texts)
        encoded = self._encode([self._untagged(text)[1] for text in ready])
        return [self._behind_tag(*both) for both in zip(ready, encoded, strict=True)]

    def encode_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Return only the ids, which is faster than `encode_batch`."""
        split = [self._untagged(text) for text in self._ready(texts)]
        encoded = self._encode_ids([text for _, text in split])
        return [tag + ids for (tag, _), ids in zip(split, encoded, strict=True)]

    def encode_noisy(self, texts: Sequence[str], seeds: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return another split of each text for another seed, if the kind is ``noisy``."""
        return self.encode_ids(texts)

    def add_tags(self, names: Sequence[str]) -> None:
        """Give tags such as ``<2fr>`` ids after all others; only the start of a text has one."""
        size = len(self.pieces) - len(self.tags)
        self.tags = {name: size + n for n, name in enumerate(names)}
        self.pieces = [*self.pieces[:size], *names]
        self._bytes = [*self._bytes[:size], *map(str.encode, names)]

    def extend(self, lines: Iterable[str], config: Config) -> None:
        """Learn further pieces from text, like a tokenizer of ``config``; existing ids stay.

        Tags are removed. Raises `UserError` if the kind cannot be extended, or without room.
        """
        raise UserError(
            f"a vocabulary of the kind {self.config.kind} cannot be extended; learn a new one: "
            'start.vocabulary = "replace"'
        )

    def addressed(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        """Put the tag of a language before lines, such as ``<2fr>`` for "fr".

        Raises `UserError` for an unknown tag, or for a line without a tag if one is needed.
        """
        known = (
            ", ".join(tag[2:-1] for tag in self.tags) or "none, this run has one pair of languages"
        )
        if to is not None:
            if not self.knows(f"<2{to}>"):
                raise UserError(f"cannot translate to {to!r}; the languages are: {known}")
            return [tagged(line, f"<2{to}>") for line in lines]
        plain = (line for line in lines if line.strip() and not self.tag_of(line))
        if self.tags and next(plain, None) is not None:
            raise UserError(f"this run translates to several languages; choose one (to): {known}")
        return list(lines)

    def knows(self, tag: str) -> bool:
        """Return whether there is a tag."""
        return tag in self.tags

    def tag_of(self, text: str) -> str:
        """Return the tag at the start of a text, "" without one."""
        match = TAG.match(text) if self.tags else None
        return match[0] if match is not None and self.knows(match[0]) else ""

    def bare(self, text: str) -> str:
        """Return a text without its tag."""
        return bare(text, [self.tag_of(text)])

    def beginnings(self, prefix: str | Sequence[str], count: int) -> list[list[int]]:
        """Return the ids with which ``count`` outputs begin: one text for all, or one each.

        White space at its end is left out: a word that follows brings its own. Raises `UserError`
        if there are not as many as lines, or if one contains what no output can.
        """
        texts = [prefix] * count if isinstance(prefix, str) else list(prefix)
        if len(texts) != count:
            raise UserError(f"{len(texts)} prefixes for {count} lines; give one for each, or one")
        prefixes = self.encode_ids([text.rstrip() for text in texts])
        for text, ids in zip(texts, prefixes, strict=True):
            if UNK in ids:
                raise UserError(
                    f"the prefix {text!r} contains characters that are not in the target vocabulary"
                )
        return prefixes

    def encode_lines(self, text: str) -> list[int]:
        """Return the ids of a text of any number of lines, with an end between each two."""
        lines = text.split("\n") if self.text_ends[0] == EOS else [text]
        return [i for line in self.encode_ids(lines) for i in (EOS, *line)][1:]

    def decode_lines(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, in which an end is that of a line."""
        lines = (line for _, line in lines_of(ids))
        return "".join("\n" if line == [EOS] else self.decode(line) for line in lines)

    def added(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """Return the text that some ids add after others."""
        return self.decode_lines([*before, *ids])[len(self.decode_lines(before)) :]

    def written(self, target: str | Sequence[int], source: str) -> tuple[str, Encoded]:
        """Return the text of a source's target, given as text or ids, with its ids and offsets."""
        if isinstance(target, str):
            encoded, opening = self.encode(target), self.opening(source)
            spans = [(0, 0)] * len(opening)
            return target, Encoded(opening + encoded.ids, spans + encoded.offsets)
        return self.decode(target), Encoded(list(target), self.spans(target))

    def _untagged(self, text: str) -> tuple[list[int], str]:
        """Return the id of the tag at the start of a text, if any, and the text after it."""
        tag = self.tag_of(text)
        return ([self.tags[tag]], text[len(tag) :].removeprefix(" ")) if tag else ([], text)

    def _behind_tag(self, text: str, encoded: Encoded) -> Encoded:
        ids, rest = self._untagged(text)
        if not ids:
            return encoded
        moved = len(text) - len(rest)
        spans = [(start + moved, end + moved) for start, end in encoded.offsets]
        return Encoded(ids + encoded.ids, [(0, len(text[:moved].rstrip())), *spans])

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of some ids; invalid UTF-8 becomes U+FFFD."""
        return b"".join(self._surface(ids, skip_special)).decode(errors="replace")

    def spans(self, ids: Sequence[int]) -> list[Span]:
        """Return for each id its characters in ``decode(ids)``: empty for a special one.

        An id that holds only a part of a character gets the whole character.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        spans, done = [], 0
        for surface in self._surface(ids, skip_special=True):
            start, done = done, done + len(decoder.decode(surface))
            begun = len(surface) > 0 and len(decoder.getstate()[0]) > 0
            spans.append((start, done + begun))
        return spans

    @property
    def surfaces(self) -> list[bytes]:
        """The text that each id adds after others, in UTF-8; empty for start, end and padding."""
        return Tokenizer._surface(self, range(self.vocab_size), skip_special=True)

    def labels(self, ids: Sequence[int], text: str, spans: Sequence[Span]) -> list[str]:
        """Return a label for each token of a text: its characters, or its name if it has none.

        A token that completes a character begun by the token before it is labelled by its bytes.
        """
        labels, end = [], 0
        for i, (start, stop) in zip(ids, spans, strict=True):
            own = "" if i in SILENT else text[max(start, end) : stop]
            labels.append(self._label(own) if own else self.name(i))
            end = max(end, stop)
        return labels

    def name(self, i: int) -> str:
        """Return a token by itself: its text, ``</s>`` for special ones, ``<e6>`` for bytes."""
        if i == BOS:
            return self.start
        if i < len(SPECIALS) or not self._bytes[i]:
            return self.pieces[i]
        try:
            return self._label(self._bytes[i].decode())
        except UnicodeDecodeError:
            return "".join(f"<{byte:02x}>" for byte in self._bytes[i])

    def _label(self, text: str) -> str:
        return text.strip(" ") or "␣" * len(text)

    def text(self) -> str:
        """Return everything that `load` needs, as JSON."""
        tree = {"config": self.config.tree(), "vocabulary": self._vocabulary()}
        if self.tags:
            tree["tags"] = list(self.tags)
        return json.dumps(tree, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write it to a file, which appears whole or not at all."""
        replace_file(Path(path), self.text())

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """Read a tokenizer of any kind; raise `UserError` for a file that is not one."""
        return Tokenizer.of(bounded(Path(path)), str(path))

    @staticmethod
    def of(content: str | bytes | Tree, path: str) -> Tokenizer:
        """Return the tokenizer of a `text`, parsed or not; raise `UserError` for an invalid one."""
        try:
            tree = content if isinstance(content, dict) else json.loads(content)
            tokenizer: Tokenizer = Tokenizer.Config.parse(tree["config"]).build()
            tokenizer._restore(tree["vocabulary"])
            tokenizer.add_tags(tree.get("tags", []))
        except BaseException as error:
            if not is_failure(error):
                raise
            message = f"{path}: the tokenizer cannot be read ({error!r}); train it again"
            raise UserError(message) from error
        return tokenizer

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[Encoded]: ...

    @abstractmethod
    def _encode_ids(self, texts: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _vocabulary(self) -> object:
        """Return plain values from which `_restore` makes an equal tokenizer."""

    @abstractmethod
    def _restore(self, vocabulary: Any) -> None: ...

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        """Return what each id adds to the text."""
        silent = SILENT if skip_special else ()
        return [b"" if i in silent else self._bytes[i] for i in ids]

    def _ready(self, texts: Iterable[str]) -> list[str]:
        if not self.pieces:
            raise RuntimeError(f"this {self.config.kind} tokenizer has no pieces; train it first")
        return list(valid(texts))


def tagged(text: str, tag: str | None) -> str:
    """Return a text after its tag; unchanged without a tag or a text."""
    return text if tag is None or not text.strip() else f"{tag} {text}"


def bare(text: str, tags: Iterable[str]) -> str:
    """Return a text without the tag that it begins with."""
    tag = next((tag for tag in tags if text.startswith(tag)), "")
    return text.removeprefix(tag).removeprefix(" ") if tag else text


def bounded(path: Path) -> bytes:
    """Return the content of a file of pieces. Raises ``OSError`` if it is missing or too long."""
    return read_bytes(path, LARGEST)


def is_failure(error: BaseException) -> bool:
    """Return whether a library rejected its input; Rust's raise bare Exceptions, or panic."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def valid(texts: Iterable[str]) -> Iterator[str]:
    """Yield the same texts; raise `UserError` at a lone surrogate, which UTF-8 cannot hold."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"text {number}, character {error.start + 1}: a lone surrogate, which is half a "
                "character; decode the input with errors='replace'"
            ) from None
        yield text


Pair = tuple[int, int]
Merges = dict[Pair, tuple[int, int]]  # two ids → the rank of their merge, and the merged id


def split(
    letters: Sequence[int], merges: Merges, dropout: float, chance: Iterator[float]
) -> list[int]:
    """Return the ids of a chunk by repeatedly applying the earliest-learned available merge.

    Each possible merge is skipped with probability ``dropout``, drawn anew in each round; the chunk
    is done when none is left. With 0 it is the plain split.
    """
    ids = list(letters)
    while True:
        possible = [
            (*merges[pair], place)
            for place, pair in enumerate(pairwise(ids))
            if pair in merges and (dropout == 0 or next(chance) >= dropout)
        ]
        if not possible:
            return ids
        _, merged, place = min(possible)
        ids[place : place + 2] = [merged]


def uniform(seed: Sequence[int]) -> Iterator[float]:
    """Yield endless numbers in [0, 1), a function of the seed."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.random(64).tolist()


# Chunks that pieces may not straddle: a word with the space before it, an elided article (l', qu'),
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


class SpacedPieces(Tokenizer):
    """Pieces that bring the space before a word; the first of a text brings none."""

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        first = next((n for n, text in enumerate(surface) if text), None)
        if first is not None:
            surface[first] = surface[first].removeprefix(b" ")
        return surface

    def _label(self, text: str) -> str:
        return text.replace(" ", "▁")  # like SentencePiece's space before a word


class Subword(SpacedPieces):
    """Pieces of words, over the 256 bytes: no text is unknown and ``decode(encode(x)) == x``.

    A space is put before the text and removed after decoding, so that a word has the same pieces at
    the start of a sentence as inside it. Bytes are written as 256 printable characters (Radford et
    al., 2019): `pieces` shows a space as ``Ġ``. Chunks that pieces never straddle keep ``<``, ``s``
    and ``>`` apart, so no text can produce a special piece.
    """

    class Config(Tokenizer.Config):
        """``lowercase`` gives up the exact round trip for fewer forms of a word."""

        vocab_size: int = Field(default=8000, ge=len(SPECIALS) + 256)
        """Tokens in all, special tokens and bytes included."""
        lowercase: bool = False  # whether texts are put into small letters first

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
        if [ids[piece] for piece in self.pieces] != list(range(wrapped.get_vocab_size())):
            raise ValueError(f"the ids of its pieces are not 0 to {wrapped.get_vocab_size() - 1:,}")
        byte = {letter: bytes([value]) for value, letter in enumerate(byte_letters())}
        spelled = [b"".join(map(byte.__getitem__, piece)) for piece in self.pieces[len(SPECIALS) :]]
        self._bytes = [*map(str.encode, SPECIALS), *spelled]

    def _encode(self, texts: list[str]) -> list[Encoded]:
        encodings = self._rust.encode_batch(texts, add_special_tokens=False)
        encoded = [Encoded(encoding.ids, encoding.offsets) for encoding in encodings]
        for encoding in encoded:
            if encoding.ids and self._bytes[encoding.ids[0]] == b" ":  # the space that we prepended
                encoding.offsets[0] = (0, 0)
        return encoded

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [
            encoding.ids
            for encoding in self._rust.encode_batch_fast(texts, add_special_tokens=False)
        ]

    def _vocabulary(self) -> object:
        return json.loads(self._rust.to_str())  # like Hugging Face's tokenizer.json

    def _restore(self, vocabulary: Any) -> None:
        self._use(_read(json.dumps(vocabulary)))


# Tokenizers of equal vocabularies are one object: the words that it caches are never freed.
_read = lru_cache(maxsize=16)(rust.Tokenizer.from_str)


class BPE(Subword):
    """Byte pair encoding (Sennrich et al., 2016): again and again the most frequent pair is one."""

    class Config(Subword.Config, kind="bpe"):
        """A pair seen fewer than ``min_frequency`` times is not merged.

        In training a merge is passed over with probability ``dropout`` (Provilkov et al., 2020).
        """

        min_frequency: int = Field(default=2, ge=1)  # how often a pair must occur to be merged
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Probability that a merge is left out in training (BPE dropout)."""

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
            raise UserError(
                f"the vocabulary has {self.vocab_size:,} {self.config.kind} pieces already: set "
                'task.tokenizer = { kind = "bpe", vocab_size = … } to more, or '
                'start.vocabulary = "same" or "replace"'
            )
        further = BPE(config)
        further.train(lines)
        old, new = (json.loads(tokenizer._rust.to_str())["model"] for tokenizer in (self, further))
        pieces, merges = dict(old["vocab"]), [(a, b) for a, b in old["merges"]]
        for a, b in new["merges"]:
            if len(pieces) < config.vocab_size and a + b not in pieces and {a, b} <= pieces.keys():
                pieces[a + b] = len(pieces)
                merges.append((a, b))
        self.config = config
        self._use(self._wrap(models.BPE(vocab=pieces, merges=merges)))

    def _use(self, wrapped: rust.Tokenizer) -> None:
        super()._use(wrapped)
        self.noisy = self.config.dropout > 0
        self._merges: Merges = {}  # filled when splits are drawn
        self._chunks: dict[str, list[list[int]]] = {}

    def encode_noisy(self, texts: Sequence[str], seeds: Sequence[Sequence[int]]) -> list[list[int]]:
        pairs = zip([self._untagged(text) for text in self._ready(texts)], seeds, strict=True)
        return [tag + self._drawn(text, uniform(seed)) for (tag, text), seed in pairs]

    def _drawn(self, text: str, chance: Iterator[float]) -> list[int]:
        """Return ids of a text; the chunks of some texts are cached, as epochs repeat them."""
        if not self._merges:
            learnt = json.loads(self._rust.to_str())["model"]
            ids, ranked = learnt["vocab"], enumerate(learnt["merges"])
            self._letters = {letter: ids[letter] for letter in byte_letters()}
            self._merges = {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in ranked}
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


_END = "\x01"  # no byte is written like this


def _marked(counts: Counter[str]) -> Iterator[str]:
    """Yield every chunk as often as it was seen, once with a mark after it.

    The trainer takes as first candidates what repeats among *distinct* chunks with different
    characters after it, so a whole word would never be one, however frequent. The mark is such a
    character; no candidate contains it.
    """
    yield _END
    for chunk, count in counts.items():
        yield from repeat(chunk, count - 1)
        yield chunk + _END if count > 1 else chunk


def byte_letters() -> list[str]:
    """Return the printable character for each of the 256 bytes: itself, or one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class Byte(Tokenizer, kind="byte"):
    """The bytes of UTF-8 (Xue et al., 2022): id = byte + 4; nothing to learn, nothing unknown."""

    units = "tokens"

    def __init__(self, config: Tokenizer.Config) -> None:
        super().__init__(config)
        self.pieces = [*SPECIALS, *(f"<{value:02x}>" for value in range(256))]
        self._bytes = [*map(str.encode, SPECIALS), *(bytes([value]) for value in range(256))]

    def train(self, lines: Iterable[str]) -> None:
        """Do nothing: the pieces are given."""

    def extend(self, lines: Iterable[str], config: Tokenizer.Config) -> None:
        """Only remove tags: all bytes are present."""
        self.add_tags([])

    def _encode(self, texts: list[str]) -> list[Encoded]:
        return [Encoded(ids, self.spans(ids)) for ids in self._encode_ids(texts)]

    def _encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [[byte + len(SPECIALS) for byte in text.encode()] for text in texts]

    def _vocabulary(self) -> object:
        return None

    def _restore(self, vocabulary: Any) -> None:
        pass


class Listed(Tokenizer):
    """Units of the text, each with an id of its own; units unseen in training are ``<unk>``."""

    @abstractmethod
    def _units(self, text: str) -> list[Span]:
        """Return the positions of the units of a text."""

    def _chosen(self, counts: Counter[str]) -> list[str]:
        """Return the units that become pieces, most frequent first, ties by code point."""
        config = vars(self.config)
        frequent = (unit for unit, count in counts.items() if count >= config["min_frequency"])
        size = config.get("vocab_size")
        most = None if size is None else size - len(SPECIALS)
        return sorted(frequent, key=lambda unit: (-counts[unit], unit))[:most]

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

    def _vocabulary(self) -> list[str]:
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

        min_frequency: int = Field(default=1, ge=1)  # rarer characters become <unk>
        symbols: str | None = None
        """regular expression of what is one symbol, such as <N>."""

    units = "tokens"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        either = "." if config.symbols is None else f"(?:{config.symbols})|."
        self._unit = re.compile(either, re.DOTALL)

    def _units(self, text: str) -> list[Span]:
        return [match.span() for match in self._unit.finditer(text)]


class WordTokenizer(Listed):
    """Words between white space, punctuation and elided articles apart (`split_words`).

    Decoding sets spaces by typographic rules; the original white space is lost.
    """

    class Config(Tokenizer.Config, kind="word"):
        """The ``vocab_size`` most frequent words that were seen ``min_frequency`` times."""

        vocab_size: int = Field(default=30_000, gt=len(SPECIALS))
        """Tokens at most; the most frequent words are kept."""
        min_frequency: int = Field(default=2, ge=1)  # rarer words become <unk>
        lowercase: bool = False  # whether texts are put into small letters first

    config: Config

    def _units(self, text: str) -> list[Span]:
        return split_words(text)

    def _form(self, unit: str) -> str:
        return unit.lower() if self.config.lowercase else unit

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        before = None
        for n, word in enumerate(map(bytes.decode, surface)):
            if before and word and word[0] not in ".,;:!?…%)]}»”" and before[-1] not in "([{«“'’":
                surface[n] = b" " + surface[n]
            before = word or before
        return surface


class Symbol(Listed):
    """Splits at blanks: text that was cut into words before, or phones ``HH AH0 L OW1``.

    A ``<unk>`` in the text itself is the unknown one. Decoding puts one space between them.
    """

    class Config(Tokenizer.Config, kind="symbol"):
        """All symbols seen ``min_frequency`` times, or the ``vocab_size`` most frequent of them."""

        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Tokens at most; all where absent."""
        min_frequency: int = Field(default=1, ge=1)  # rarer symbols become <unk>

    units = "tokens"

    def _units(self, text: str) -> list[Span]:
        return split_blanks(text)

    def _chosen(self, counts: Counter[str]) -> list[str]:
        del counts[SPECIALS[UNK]]
        return super()._chosen(counts)

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        surface = super()._surface(ids, skip_special)
        first = next((n for n, word in enumerate(surface) if word), len(surface))
        return [b" " + w if w and n > first else w for n, w in enumerate(surface)]


def lines_of(ids: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The runs of ids between starts of texts and ends of lines, and these, each with its place."""
    start = 0
    for place, i in enumerate([*ids, EOS]):
        if i in (BOS, EOS):
            if place > start:
                yield start, list(ids[start:place])
            if place < len(ids):
                yield place, [i]
            start = place + 1


@dataclass(frozen=True)
class TextSides:
    """Turns source lines into what a model reads, with a tokenizer for each side.

    ``format`` is the layout of raw lines of the data, which may be given in place of sources;
    of a source at most ``max_length`` tokens are read.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    format: TextFormat.Config | None
    max_length: int

    @property
    def languages(self) -> list[str]:
        """The languages of the tags, such as "fr" of ``<2fr>``."""
        return [tag[2:-1] for tag in self.source_tokenizer.tags]

    def sources(self, lines: Sequence[str]) -> Sequence[str]:
        """Return what the model reads of lines: of raw ones of the data's format, their sources."""
        return lines if self.format is None else self.format.sources(lines)

    def addressed(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        """Put the tag of a language before the sources of lines, such as ``<2fr>`` for "fr".

        Raises `UserError` if a line is neither raw nor a source, if the tag is unknown, or if a
        line needs one and has none.
        """
        return self.source_tokenizer.addressed(self.sources(lines), to)

    def read_ids(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of lines, none for an empty one."""
        encoded = self.source_tokenizer.encode_ids(self.addressed(lines))
        return [ids if line.strip() else [] for ids, line in zip(encoded, lines, strict=True)]

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of sources and of their targets."""
        sources, targets = [list(side) for side in zip(*pairs, strict=True)] or ([], [])
        writes = self.target_tokenizer
        ids = zip(map(writes.opening, sources), writes.encode_ids(targets), strict=True)
        return self.source_tokenizer.encode_ids(sources), [begun + own for begun, own in ids]
