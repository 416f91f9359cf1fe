r"""USFM, the format of Bible translators (Unified Standard Format Markers): verses are the units.

    \id GEN   \c 1   \p   \v 1 In the beginning God \add had\add* created …\f + \ft or: began\f*

Only text changes. Markers of paragraphs and lines within a verse, notes and figures act as words,
markers around words (``\add …\add*``, ``\w …|lemma="…"\w*``) as elements: each is written once.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from foveate.documents.base import Document, DocumentOptions, counted, decoded
from foveate.documents.spans import DocumentError
from foveate.documents.translate import Passage, TextBuilder

_ID = re.compile(r"\s*\\id\s+(?P<book>\w+)")
# What begins a unit: a chapter, a verse, a line that stays, or a heading or other line of its own.
_UNIT = re.compile(
    r"\\(?:(?P<number>c|v)\s+(?P<value>[^\s\\]+)"
    r"|(?P<fixed>id|ide|usfm|sts|rem|restore|cp|m?r|sr|toca\d)(?=\s)[^\n]*"
    r"|(?P<line>h\d?|toc\d?|mte?\d?|m?s\d?|sp|d|qa|cl|i(?!(?:t|or|qt)\s)[a-z]+\d?)(?=\s))\s?"
)
_MARKER = re.compile(
    r"\\(?P<note>f|fe|ef|x|ex|fig|va|vp|rq|ca|pro)(?=\s).*?(?:\\(?P=note)\*|\Z)"  # whole
    r"|\\[a-z]+\d?-[se](?:\s[^\\]*)?\\\*"  # a milestone
    r"|\\\+?(?P<name>[a-z]+\d?)(?:(?P<end>\*)|[^\S\n]|(?=[\s\\]|\Z)|[^\s\\]+)"
    r"|\\[^\s\\]*",  # no marker: stays all the same
    re.DOTALL,
)
_LINE = re.compile(r"p[a-z\d]*|m[a-z\d]?|q[a-z\d]*|l[ih]\w*|nb|b|t[rhc]\w*|cls|pb")
_ENDED = re.compile(r"[.!?…][\"'’”»)\]]*\s*\Z")  # a sentence, after which markers are apart
MARK = "\ue000"  # for the marker of a line within a sentence
NOTES = {"f": "footnotes", "fe": "footnotes", "ef": "footnotes", "fig": "figures"}


def read_usfm(data: bytes, options: DocumentOptions, where: str) -> Document:
    r"""Read a book of USFM. Raises ``DocumentError`` if it does not begin with \id."""
    text = decoded(data, where)
    book = _ID.match(text)
    if book is None:
        raise DocumentError(f"{where}:1 is not USFM: it begins with \\id and a book: \\id GEN")
    if MARK in text:
        raise DocumentError(f"{where} holds U+E000, a character without a meaning: remove it")
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

    return Document(passages, written, counted(left), units=units)


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
    """Add text with its markers; those of lines within sentences are `MARK`, and put in a list.

    A marker whose end is missing acts as a word.
    """
    done, end = 0, 0
    while match := _MARKER.search(text, end):
        end, name = match.end(), match["name"]
        closing = _closing(text, match) if name and not match["end"] else None
        if closing is not None:
            builder.add_text(text[done : match.start()])
            builder.add_open(match.group(), closing.group())
            _read(text[end : closing.start()], builder, lines)
            builder.add_close()
            done = end = closing.end()
            continue
        before = text[done : match.start()]
        blank = before[len(before.rstrip()) :]
        is_line = bool(name and _LINE.fullmatch(name))
        if is_line:  # with the white space behind it
            end = len(text) - len(text[end:].lstrip())
        within = before.strip() and not _ENDED.search(before) and end < len(text)
        if is_line and blank and within:
            builder.add_text(before.rstrip())
            builder.add_object(f" {MARK}{MARK}", blank)
            lines.append(text[match.start() - len(blank) : end])
        else:
            builder.add_text(before)
            builder.add_object(text[match.start() : end])
        done = end
    builder.add_text(text[done:])


def _ordered(text: str, lines: Sequence[str]) -> str:
    """Return a translated unit with the markers of lines within it, in the order of the source."""
    rest = iter(lines)
    return re.sub(rf" ?{MARK}{MARK} *", lambda _: next(rest), text)


def _closing(text: str, match: re.Match[str]) -> re.Match[str] | None:
    r"""Return the end of a marker around words, with the attributes before it: |lemma="…"\w*."""
    plus = r"\+" if match.group().startswith("\\+") else ""
    pattern = rf"(?:\|[^\\|]*)?\\{plus}{re.escape(match['name'])}\*"
    return re.compile(pattern).search(text, match.end())
