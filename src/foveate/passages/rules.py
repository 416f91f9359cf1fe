"""What must come out of a translation exactly as it went in: patterns of protected spans."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from foveate.config import ConfigError
from foveate.data.vocabulary import Span

# The model does not see these; each is put back where its neighbours are aligned. Possessive
# quantifiers (++) and looks behind keep the time linear in any text.
HIDDEN = (
    r"(?:https?|ftp)://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]|\bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"')]*)?",
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",  # e-mail
    r"</?[A-Za-z][^<>\n]*>",  # a tag in plain text
    r"\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}|\{[^{}\s]*\}",  # {{x}}, ${x}, {x}
    r"%\(\w+\)[-#0 +]*+\d*+(?:\.\d+)?[diouxXeEfFgGcrsa]"
    r"|%(?:\d++\$)?[-#0+]*+\d*+(?:\.\d+)?[dsfiuxXc]\b",
)
# The model sees these, for words around them depend on them ("1 dog", "2 dogs").
SHOWN = (r"(?<!\w)\d+(?:[.,:/]\d+)*(?!\w)",)


@dataclass(frozen=True)
class Rules:
    """Which spans of a text are protected: ``hidden`` from the model, or ``shown`` and checked.

    ``own`` are further hidden patterns, regular expressions of Python; they come first. Raises
    ``ConfigError`` for one that is none.
    """

    own: tuple[str, ...] = ()
    hidden: tuple[str, ...] = HIDDEN
    shown: tuple[str, ...] = SHOWN

    def __post_init__(self) -> None:
        for pattern in (*self.own, *self.hidden, *self.shown):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}") from None

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], bool]]:
        hidden = [(re.compile(p), True) for p in (*self.own, *self.hidden)]
        return hidden + [(re.compile(p), False) for p in self.shown]

    def spans(self, text: str) -> list[tuple[Span, bool]]:
        """Where protected spans stand, in order and disjoint, and whether each is hidden.

        Of spans that overlap the one that begins first counts, then that of the earlier pattern.
        """
        found = sorted(
            (m.start(), order, m.end(), hidden)
            for order, (pattern, hidden) in enumerate(self._patterns)
            for m in pattern.finditer(text)
            if m.end() > m.start()
        )
        kept: list[tuple[Span, bool]] = []
        for start, _, end, hidden in found:
            if not kept or start >= kept[-1][0][1]:
                kept.append(((start, end), hidden))
        return kept

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """How often each protected span stands in some texts."""
        return Counter(t[a:b] for t in texts for (a, b), _ in self.spans(t))
