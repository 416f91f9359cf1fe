"""Texts as the lines that a model reads, and back: every line stays where it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foveate.config import ConfigError

Align = Callable[[Sequence[tuple[str, str]]], list[list[tuple[int, int]]]]


@dataclass(frozen=True)
class Passage:
    """A text as ``parts``: sentences at the odd places, what stands between them at the even."""

    parts: list[str]

    @property
    def sentences(self) -> list[str]:
        """What the model reads."""
        return self.parts[1::2]

    def joined(self, answers: Sequence[str], align: Align) -> str:
        """The text with the answers in the places of its sentences."""
        parts = list(self.parts)
        parts[1::2] = answers
        return "".join(parts)


def text_passage(text: str, rules: Any = None) -> Passage:
    """A text cut at its line ends; white space around a line is kept as it is."""
    return Passage(re.split(r"(\S(?:[^\r\n]*\S)?)", text))


def html_passage(html: str, rules: Any = None) -> Passage:
    """HTML as the texts between its tags."""
    return Passage(_between(re.split(r"(<[^>]*>)", html)))


def _between(pieces: Sequence[str]) -> list[str]:
    parts = [""]
    for number, piece in enumerate(pieces):
        if number % 2:
            parts[-1] += piece
        else:
            first, *rest = re.split(r"(\S(?:[^\r\n]*\S)?)", piece)
            parts[-1] += first
            parts += rest
    return parts


# ------------------------------------------------------------------------------ documents


@dataclass(frozen=True)
class Choices:
    """How documents are read; ``to`` is the wanted language, for those that hold several."""

    to: str | None = None


@dataclass(frozen=True)
class Document:
    """The passages of a document; ``written`` makes it again, given the text of each of them."""

    passages: list[Passage]
    written: Callable[[Sequence[str]], bytes]


ENDINGS = {".txt": "text", ".html": "html", ".htm": "html"}


def read_document(kind: str, data: bytes, choices: Choices, where: str = "the input") -> Document:
    """A document of a format. Raises ``ConfigError`` where it is none of the kind."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8; convert it, as with iconv") from None
    passage = html_passage(text) if kind == "html" else text_passage(text)
    return Document([passage], lambda texts: texts[0].encode())
