"""Pieces of a document: text that people read, and markup; and writing both side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Piece:
    """A piece of text, or of ``markup``, which is no text and is written as it is."""

    text: str
    markup: bool = False


def texts_of(pieces: Iterable[Piece]) -> list[str]:
    """The texts between markup, each as one."""
    runs = groupby((piece for piece in pieces if piece.text), key=lambda piece: piece.markup)
    return ["".join(piece.text for piece in run) for markup, run in runs if not markup]


class Writer:
    """Writes words, markup and protected pieces in turn, with blanks where words need them.

    ``loose``: a protected piece has a blank on both sides, whatever its neighbours are.
    """

    OPENING, CLOSING = "([{«“‘¿¡/-'’\"", ".,;:!?…)]}»”'’\""

    def __init__(self, loose: bool = False) -> None:
        self.pieces: list[Piece] = []
        self.loose = loose
        self._last = ""  # the last character of the text written
        self._due = False  # a protected piece was written, nothing after it yet
        self._after = ""  # what stood right after that piece in the source
        self._tight = False  # whether it is markup that stood there without a blank

    def text(self, text: str) -> None:
        """Text as the model wrote it; after a protected piece, behind a blank if need be."""
        if not text:
            return
        if self._due and not text[0].isspace():
            glued = text[0] in self.CLOSING or text[0] == self._after
            text = text if self._tight or (glued and not self.loose) else " " + text
        self._due = False
        self._add(text)

    def kept(self, pieces: Sequence[Piece], before: str = "", after: str = "") -> None:
        """A protected piece, and the characters that stood right before and after it, if any."""
        bare, last = all(piece.markup for piece in pieces), self._last
        free = not last or last.isspace() or (bare and before)
        if not free and (self.loose or self._due or (last not in self.OPENING and last != before)):
            self._add(" ")
        for piece in pieces:
            if piece.markup:
                self.markup(piece.text)
            elif piece.text:
                self._add(piece.text)
        self._due, self._after, self._tight = True, after, bare and after != ""

    def markup(self, text: str) -> None:
        """Markup, which is no text."""
        self.pieces.append(Piece(text, markup=True))

    def _add(self, text: str) -> None:
        self.pieces.append(Piece(text))
        self._last = text[-1]
