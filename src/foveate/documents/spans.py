"""Spans of text that a translation must preserve: URLs, numbers, placeholders, markup."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from foveate.data.tokenizer import Span
from foveate.errors import ConfigError, UserError


class DocumentError(UserError):
    """A document that cannot be read: gives its line or part, and never a path on this machine."""


@dataclass(frozen=True)
class Piece:
    """A piece of text, or of ``markup``, which is written unchanged."""

    text: str
    markup: bool = False


def texts_of(pieces: Iterable[Piece]) -> list[str]:
    """Return the texts between markup, each as one string."""
    runs: list[list[str]] = [[]]
    for piece in pieces:
        if not piece.markup:
            runs[-1].append(piece.text)
        elif piece.text:
            runs.append([])
    return list(filter(None, map("".join, runs)))


OPENING, CLOSING = "([{«“‘¿¡/-'’\"", ".,;:!?…)]}»”'’\""


# Marks in plain text: tags, subtitle codes, emphasis. They are placed beside words like markup.
MARK = re.compile(r"</?[A-Za-z\d][^<>\n]*>|<%.*%>|\{[\\%][^{}\n]*\}|\\[nrt]|\*\*")


class PieceWriter:
    """Writes words, markup and protected pieces, with spaces where words need them.

    ``loose`` puts a space on both sides of a protected piece, whatever its neighbours are.
    """

    def __init__(self, loose: bool = False) -> None:
        self.pieces: list[Piece] = []
        self.loose = loose
        self._last = ""  # the last character of the text written
        self._due = False  # a protected piece was written, nothing after it yet
        self._after = ""  # what came right after that piece in the source
        self._tight = False  # whether that piece is markup, without a space after it in the source
        self._blank = False  # whether it is markup after a space, where no second one is needed

    def text(self, text: str) -> None:
        """Write text of the model; after a protected piece, with a space before it if needed."""
        if self._due and self._tight and self._blank:
            text = text.lstrip()  # the space is before the markup, as in the source
        if not text:
            return
        if self._due and not text[0].isspace():
            glued = text[0] in CLOSING or text[0] == self._after
            text = text if self._tight or (glued and not self.loose) else " " + text
        self._due = False
        self._add(text)

    def protected(self, pieces: Sequence[Piece], before: str = "", after: str = "") -> None:
        """Write a protected piece between its neighbouring characters in the source, if any."""
        bare, last = all(p.markup or MARK.fullmatch(p.text) for p in pieces), self._last
        glued = before.isalnum() and last.isalnum() and not self.loose  # as in m<sup>2</sup>
        free = (not self._due and (not last or last.isspace())) or (bare and before) or glued
        apart = last != before and (self._due or last not in OPENING)
        if not free and (self.loose or apart):
            self._add(" ")
        self._blank = bare and (not self._last or self._last.isspace())
        for piece in pieces:
            if piece.markup:
                self.markup(piece.text)
            elif piece.text:
                self._add(piece.text)
        self._due, self._after, self._tight = True, after, bare and after != ""

    def separate(self) -> None:
        """Write the space that followed a protected piece, before an element begins."""
        if self._due and not self._after:
            self._due = False
            self._add(" ")

    def markup(self, text: str) -> None:
        """Write markup, without spaces around it."""
        self.pieces.append(Piece(text, markup=True))

    def _add(self, text: str) -> None:
        self.pieces.append(Piece(text))
        self._last = text[-1]


# The model does not see these spans; each is inserted beside the words aligned with its neighbours.
# Possessive quantifiers (++) and lookbehinds make the time linear in any text. They apply to
# characters only: Python before 3.11.5 matches possessive groups wrongly.
HIDDEN = (
    r"(?:https?|ftp)://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]|\bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"')]*)?",
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",  # e-mail
    r"</?[A-Za-z][^<>\n]*>",  # a tag in plain text
    r"\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}|%?\{[^{}\s]*\}",  # {{x}}, ${x}, {x}, %{x}
    # {1, number}, {n, plural, …}
    r"\{\s*\w+\s*,[^{}]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*\}[^{}]*+)*\}",
    r"\{\\[^{}\n]*\}",  # {\an8} in subtitles
    r"\{%(?:[^%\n]|%(?!\})){0,300}%\}|<%(?:[^%]|%(?!>)){0,300}%>",  # {% if x %}, <%= x %>
    r"</?\d+/?>|\\[nrt]|(?<![\w@$\\])[$@][A-Za-z_]\w*",  # <0> of React, \n as two characters, $x
    r"(?<!\S):[a-z_]++(?!:)",  # :x of Laravel
    r"%\(\w+\)[-#0 +]*+\d*+(?:\.\d+)?[diouxXeEfFgGcrsa]|%<\w+>[-#0 +]*+\d*+(?:\.\d+)?[a-zA-Z]"
    r"|%(?:\d++\$)?[-#0+]*+(?:\d++|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlLqjzt])?"
    r"[diouxXeEfFgGaAcsp]\b|%(?:\d++\$)?@|%%|%L?(?:\d{1,2}(?!\d)%?|n\b)",
)
# The model sees these, since the words around them depend on them ("1 dog", "2 dogs").
SHOWN = (r"(?<!\w)\d+(?:[.,:/]\d+)*(?!\w)",)
# Spans whose order counts, since each takes the next value: %s, not %1$s, %(x)s, %%, %1 or {x}.
_IN_ORDER = re.compile(
    r"%(?!$|[%({|]|<(?!PRI)|\d+[$%]|L?\d{1,2}$|L?n$)|~(?![~%\n]$)|\{(?:[!:].*)?\}$"
)
_MAYBE = re.compile(r"www\.|[:@<{%$\\\d]")  # a text without any of these has no such span


@dataclass(frozen=True)
class Rules:
    """The protected spans of texts: hidden from the model, or visible to it and checked.

    ``own`` are additional hidden patterns, Python regular expressions, which take precedence.
    Raises ``ConfigError`` for an invalid pattern.
    """

    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in self.own:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], bool]]:
        hidden = [(re.compile(p), True) for p in (*self.own, *HIDDEN)]
        return hidden + [(re.compile(p), False) for p in SHOWN]

    def spans(self, text: str) -> list[tuple[Span, bool]]:
        """Return the protected spans, in order and disjoint, and whether each is hidden.

        Of overlapping spans, the first one counts, then that of the earlier pattern.
        """
        if not self.own and not _MAYBE.search(text):
            return []
        spans: list[tuple[Span, bool]] = []
        following = [self._after(pattern, text, 0) for pattern, _ in self._patterns]
        while (start := min(match[0] for match in following)) < len(text):
            chosen = next(n for n, match in enumerate(following) if match[0] == start)
            end = following[chosen][1]
            spans.append(((start, end), self._patterns[chosen][1]))
            for n, (pattern, _) in enumerate(self._patterns):
                if following[n][0] < end:
                    following[n] = self._after(pattern, text, end)
        return spans

    @staticmethod
    def _after(pattern: re.Pattern[str], text: str, place: int) -> Span:
        """Return the first non-empty match from a position, else an empty span after the text."""
        matches = (m.span() for m in pattern.finditer(text, place) if m.end() > m.start())
        return next(matches, (len(text), len(text)))

    def count(self, texts: Iterable[str]) -> list[str]:
        """Return all spans, sorted, with those that are ordered at each index."""
        spans = [t[a:b] for t in texts for (a, b), _ in self.spans(t)]
        ordered = [span for span in spans if _IN_ORDER.match(span)]
        return sorted([*spans, *(f"{n} {span}" for n, span in enumerate(ordered))])
