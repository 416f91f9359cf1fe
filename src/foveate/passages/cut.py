"""Where a text is cut into sentences: after marks that end one, and at white space of layout.

A rule of our own: the libraries that are kept bring models or lists for many languages, and a cut
too few costs little, for a translation of two sentences is one still.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from foveate.data.vocabulary import Span

LAYOUT = re.compile(r"[^\S\n]*[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]\s*|\s{2,}")
_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'’”»)\]]*+(?P<blank>\s++)(?=[\"'‘“«(\[¿¡]*+(?P<next>[^\W_]))"
    r"|[。！？]+[」』”）]*(?P<none>\s*)"
)
_WORD_BEFORE = re.compile(r"(\w+(?:\.\w+)*)\.$")
_SHORT = """al approx bzw ca cf col d.h dr e.g etc fig gen i.e inc jr ltd m mlle mme mr mrs ms no nr
    p pp prof rep sen sr st str u.a usw vol vs z.b"""
_ABBREVIATIONS = frozenset(_SHORT.split())
NEAR = 40  # characters in which an abbreviation is looked for


def blanks(text: str, protected: Sequence[Span], layout: bool = True) -> list[Span]:
    """The white space between the sentences of a text, in order; empty where there is none.

    ``protected`` spans are never cut. With ``layout`` line breaks, tabs and two or more blanks
    end a sentence too.
    """
    found = [m.span() for m in LAYOUT.finditer(text)] if layout else []
    for match in _END.finditer(text):
        group = "blank" if match["blank"] is not None else "none"
        end = match.start() + 1
        before = text[max(0, end - NEAR) : end]
        if not (match["next"] or "").islower() and not _abbreviated(before):
            found.append(match.span(group))
    kept: list[Span] = []
    spans = iter([*sorted(protected), (len(text) + 1, len(text) + 1)])
    span = next(spans)
    for start, end in sorted(found):
        while span[1] <= start:
            span = next(spans)
        if span[0] >= end and (not kept or start >= kept[-1][1]):
            kept.append((start, end))
    return kept


def _abbreviated(before: str) -> bool:
    """Whether the point at the end of a text is that of an abbreviation or an initial."""
    found = _WORD_BEFORE.search(before)
    if found is None:
        return False
    word = found[1]
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word.isupper())
