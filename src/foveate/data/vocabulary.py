"""What a tokenizer is: a fixed list of pieces, text to their ids and back.

Lives here: the four special pieces, `Tokenizer` with what all kinds share, its file. Does not
live here: the kinds (`tokenizer`, `subword`), who adds ``<s>`` and ``</s>`` (the task), tensors.

Special pieces are names of ids, not text: a user's ``</s>`` is spelled like any other text.
"""

from __future__ import annotations

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from foveate.atomic import replace_file
from foveate.config import BaseConfig, Configurable

UNK, PAD, BOS, EOS = range(4)
SPECIALS = ("<unk>", "<pad>", "<s>", "</s>")
SILENT = frozenset((PAD, BOS, EOS))  # leave no trace in decoded text; an unknown piece shows
LARGEST = 64 * 2**20  # bytes of a file of pieces: read, it takes a dozen times as much
Span = tuple[int, int]  # from the first character to the one after the last


@dataclass(frozen=True, slots=True)
class Encoded:
    """The ids of a text and, for each, the characters of the text that it stands for."""

    ids: list[int]
    offsets: list[Span]


class Tokenizer(Configurable, ABC):
    """Splits a text into pieces of a fixed list: ids (T,) without ``<s>`` and ``</s>``.

    ``pieces[id]`` is the name of an id in that list; `spans` says what it stands for in a text.
    """

    class Config(BaseConfig, family="tokenizer"):
        """How text is split."""

    config: Config
    # What attention views show of such a text unless asked otherwise (`foveate.look.words.Units`).
    units: ClassVar[Literal["tokens", "words"]] = "words"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pieces: list[str] = []
        self._bytes: list[bytes] = []  # what each piece adds to a text, in UTF-8
        self.tags: dict[str, int] = {}  # marks that a text may begin with, and their ids

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four special ones among them."""
        return len(self.pieces)

    @property
    def noisy(self) -> bool:
        """Whether training sees another split of a text in each epoch (`encode_noisy`)."""
        return False

    @abstractmethod
    def train(self, lines: Iterable[str]) -> None:
        """Learn the pieces from text; the same lines give the same pieces."""

    def encode(self, text: str) -> Encoded:
        """Ids of a text and the spans of its characters; spans of pieces never run backwards."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[Encoded]:
        """`encode` each text; raise ValueError for a lone surrogate, which UTF-8 cannot hold."""
        ready = self._ready(texts)
        found = self._encode([self._untagged(text)[1] for text in ready])
        return [self._behind_tag(*both) for both in zip(ready, found, strict=True)]

    def encode_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids alone, the quick road for training data."""
        split = [self._untagged(text) for text in self._ready(texts)]
        found = self._encode_ids([text for _, text in split])
        return (
            [tag + ids for (tag, _), ids in zip(split, found, strict=True)] if self.tags else found
        )

    def encode_noisy(self, texts: Sequence[str], seeds: Sequence[Sequence[int]]) -> list[list[int]]:
        """Another split of each text for another seed, by the kinds that are ``noisy``."""
        return self.encode_ids(texts)

    def add_tags(self, names: Sequence[str]) -> None:
        """Give marks such as ``<2fr>`` ids after all others; only at its start a text has one."""
        size = len(self.pieces) - len(self.tags)
        self.tags = {name: size + n for n, name in enumerate(names)}
        self.pieces = [*self.pieces[:size], *names]
        self._bytes = [*self._bytes[:size], *map(str.encode, names)]

    def extend(self, lines: Iterable[str], config: Config) -> None:
        """Learn further pieces from text, as a tokenizer of ``config`` would; ids there stay.

        Tags are taken off. Raises ``ValueError`` where the kind cannot, or there is no room.
        """
        raise ValueError(
            f"a vocabulary of the kind {self.config.kind} cannot be extended; learn a new one: "
            'start.vocabulary = "replace"'
        )

    def _untagged(self, text: str) -> tuple[list[int], str]:
        """The id of the tag at the start of a text, if there is one, and the text behind it."""
        tag = next((tag for tag in self.tags if text.startswith(tag)), None)
        return ([], text) if tag is None else ([self.tags[tag]], text[len(tag) :].removeprefix(" "))

    def _behind_tag(self, text: str, encoded: Encoded) -> Encoded:
        ids, rest = self._untagged(text)
        if not ids:
            return encoded
        moved = len(text) - len(rest)
        spans = [(start + moved, end + moved) for start, end in encoded.offsets]
        return Encoded(ids + encoded.ids, [(0, len(self.pieces[ids[0]])), *spans])

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of some ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self._surface(ids, skip_special)).decode(errors="replace")

    def spans(self, ids: Sequence[int]) -> list[Span]:
        """For each id its characters in ``decode(ids)``: empty for a special one.

        An id that holds only a part of a character gets the whole character.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        spans, done = [], 0
        for surface in self._surface(ids, skip_special=True):
            start, done = done, done + len(decoder.decode(surface))
            begun = len(surface) > 0 and len(decoder.getstate()[0]) > 0
            spans.append((start, done + begun))
        return spans

    def labels(self, ids: Sequence[int], text: str, spans: Sequence[Span]) -> list[str]:
        """A label for each token of a text: its characters, or its name where it has none.

        A token that completes a character which the token before it began has its bytes as label.
        """
        labels, end = [], 0
        for i, (start, stop) in zip(ids, spans, strict=True):
            own = "" if i in SILENT else text[max(start, end) : stop]
            labels.append(self._label(own) if own else self.name(i))
            end = max(end, stop)
        return labels

    def name(self, i: int) -> str:
        """A token by itself: its text, ``</s>`` of a special one, ``<e6>`` of a lone byte."""
        if i < len(SPECIALS):
            return SPECIALS[i]
        try:
            return self._label(self._bytes[i].decode())
        except UnicodeDecodeError:
            return "".join(f"<{byte:02x}>" for byte in self._bytes[i])

    def _label(self, text: str) -> str:
        return text.strip(" ") or "␣" * len(text)

    def text(self) -> str:
        """Everything that `load` needs, as JSON."""
        tree = {"config": self.config.tree(), "vocabulary": self._vocabulary()}
        if self.tags:
            tree["tags"] = list(self.tags)
        return json.dumps(tree, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write it to a file, which appears whole or not at all."""
        replace_file(Path(path), self.text())

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """Read a tokenizer of any kind; raise ValueError that names a file which is none."""
        content = bounded(Path(path))
        try:
            tree = json.loads(content)
            tokenizer: Tokenizer = Tokenizer.Config.parse(tree["config"]).build()
            tokenizer._restore(tree["vocabulary"])
            tokenizer.add_tags(tree.get("tags", []))
        except BaseException as error:
            if not is_failure(error):
                raise
            message = f"{path}: no tokenizer that can be read ({error!r}); train it again"
            raise ValueError(message) from error
        return tokenizer

    # ---- what a kind defines

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[Encoded]: ...

    @abstractmethod
    def _encode_ids(self, texts: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _vocabulary(self) -> Any:
        """Plain values from which `_restore` makes an equal tokenizer."""

    @abstractmethod
    def _restore(self, vocabulary: Any) -> None: ...

    def _surface(self, ids: Sequence[int], skip_special: bool) -> list[bytes]:
        """What each id adds to the text."""
        silent = SILENT if skip_special else ()
        return [b"" if i in silent else self._bytes[i] for i in ids]

    def _ready(self, texts: Iterable[str]) -> list[str]:
        if not self.pieces:
            raise RuntimeError(f"this {self.config.kind} tokenizer has no pieces; train it first")
        return list(valid(texts))


def bounded(path: Path) -> bytes:
    """The content of a file of pieces. Raises ``ValueError`` where it is too long to be one."""
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(f"{path} has {size:,} bytes: no file of pieces has more than {LARGEST:,}")
    return path.read_bytes()


def is_failure(error: BaseException) -> bool:
    """Whether a library refused its input: Rust's raise bare Exceptions, and panic outside them."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def valid(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; raise ValueError at a lone surrogate, which UTF-8 cannot hold."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text {number}, character {error.start + 1}: a lone surrogate, which is half a "
                "character; decode the input with errors='replace'"
            ) from None
        yield text
