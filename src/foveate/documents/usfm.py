r"""USFM, the format of Bible translators (Unified Standard Format Markers): verses are the units.

    \id GEN   \c 1   \p   \v 1 In the beginning God \add had\add* created …\f + \ft or: began\f*

Only text changes. Markers around words (``\add …\add*``, ``\w …|lemma="…"\w*``) are elements, notes
and figures act as words, and markers of lines within a verse keep their order.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from foveate.documents.base import Document, DocumentOptions, counted, decoded
from foveate.documents.spans import DocumentError
from foveate.documents.translate import Passage, TextBuilder, nested

_ID = re.compile(r"\s*\\id\s+(?P<book>\w+)")
# What begins a unit: a chapter, a verse, a line that stays, or a heading or other line of its own.
_UNIT = re.compile(
    r"\\(?:(?P<number>c|v)\s+(?P<value>[^\s\\]+)"
    r"|(?P<fixed>id|ide|usfm|sts|rem|restore|cp|m?r|sr|toca\d)(?=\s)[^\n]*"
    r"|(?P<line>h\d?|toc\d?|mte?\d?|m?s\d?|sp|d|qa|cl|i(?!(?:t|or|qt)\s)[a-z]+\d?)(?=\s))\s?"
)
_LINE = r"p(?:[bchior]|m[cor]?)?|mi?|nb|b|q[cdmr]?|l[fhi]|lim|t[chr]|t[ch][cr]|cls|sd"
_MARKER = re.compile(
    rf"(?P<lines>(?<!\s)\s*+(?:\\(?:{_LINE})\d?(?:-\d)?(?=[\s\\]|\Z)\s*+)+)"
    r"|\\(?P<note>f|fe|ef|x|ex|fig|va|vp|rq|ca|pro)(?=\s).*?(?:\\(?P=note)\*|\Z)"  # whole
    r"|\\[a-z]+\d?-[se](?:\s[^\\]*)?\\\*"  # a milestone
    r"|(?:\|[^\\|]*)?\\(?P<closes>\+?[a-z]+\d?)\*"  # with attributes before it
    r"|\\(?P<opens>\+?[a-z]+\d?)(?:[^\S\n]|(?=[\s\\]|\Z)|[^\s\\]+)"
    r"|\\[^\s\\]*|//",  # no marker, which stays all the same, or a line break
    re.DOTALL,
)
MARK = "\ue000"  # for markers of lines
NOTES = {"f": "footnotes", "fe": "footnotes", "ef": "footnotes", "fig": "figures"}


def read_usfm(data: bytes, options: DocumentOptions, where: str) -> Document:
    r"""Read a book of USFM. Raises ``DocumentError`` if it does not begin with \id."""
    text = decoded(data, where)
    book = _ID.match(text)
    if book is None:
        raise DocumentError(
            f"{where}:1 is not USFM: it should begin with \\id and a book: \\id GEN"
        )
    if MARK in text:
        raise DocumentError(f"{where} holds the private character U+E000: remove it")
    passages, heads, units = list[Passage](), list[tuple[str, list[str]]](), list[str]()
    for head, name, body in _units(text, book["book"]):
        builder, lines = TextBuilder(options.rules, layout=False), list[str]()
        _read(body, builder, lines)
        passages.append(Passage(tuple(builder.parts()), options.rules))
        heads.append((head, lines))
        units.append(name)
    left = Counter(NOTES.get(m["note"], "references") for m in _MARKER.finditer(text) if m["note"])

    def written(texts: Sequence[str]) -> bytes:
        each = zip(heads, texts, strict=True)
        return "".join(head + _ordered(text, lines) for (head, lines), text in each).encode()

    return Document(passages, written, counted(left), units)


def _units(text: str, book: str) -> Iterator[tuple[str, str, str]]:
    """Yield the units: the marker that begins each, its name such as GEN 1:3, and its text."""
    chapter, starts = "0", list(_UNIT.finditer(text))
    yield text[: starts[0].start()], book, ""
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        chapter = match["value"] if match["number"] == "c" else chapter
        name = match["value"] if match["number"] == "v" else f"\\{match['line'] or 'c'}"
        body = text[match.end() : following.start() if following else len(text)]
        yield match.group(), f"{book} {chapter}:{name}", body


def _read(text: str, builder: TextBuilder, lines: list[str]) -> None:
    """Add text with its markers; those of lines are `MARK`, and put in a list."""
    markers, done = list(_MARKER.finditer(text)), 0
    ends = nested([(marker["opens"] or "", marker["closes"] or "") for marker in markers])
    closing = set(ends.values())
    for number, marker in enumerate(markers):
        builder.add_text(text[done : marker.start()])
        done = marker.end()
        if number in ends:
            builder.add_open(marker.group(), markers[ends[number]].group())
        elif number in closing:
            builder.add_close()
        elif marker["lines"]:
            lines.append(marker.group())
            builder.add_text(" ")
            builder.add_object(MARK)
        else:
            builder.add_object(marker.group())
    builder.add_text(text[done:])


def _ordered(text: str, lines: Sequence[str]) -> str:
    """Return a translated unit with the markers of its lines, in the order of the source."""
    rest = iter(lines)
    return re.sub(rf"\s*{MARK}\s*", lambda _: next(rest, ""), text)
