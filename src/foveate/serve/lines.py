"""Texts as the lines that a model reads, and back: every line stays where it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
