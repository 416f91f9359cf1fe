"""EPUB books: their chapters are XHTML, of which only the text changes."""

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import unquote

from foveate.documents.base import (
    Document,
    DocumentOptions,
    archive_of,
    counted,
    decoded,
    parsed_xml,
    written_archive,
)
from foveate.documents.html import VOID, html_passage, left_in
from foveate.documents.spans import DocumentError

MIMETYPE = b"application/epub+zip"
XHTML = "application/xhtml+xml"
_PROLOG = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?")
_TAG = re.compile(r"<([\w:.-]+)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*?)\s*/?>")
_CLOSED = re.compile(_TAG.pattern.replace("/?", "/"))


def read_epub(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read the chapters and the contents page of an EPUB; all else stays.

    Raises ``DocumentError`` for another archive, and for a book that is encrypted.
    """
    members = archive_of(data, "EPUB", where)
    if members.get("mimetype", b"").strip() != MIMETYPE:
        raise DocumentError(f"{where} is not an EPUB file: the archive does not say {MIMETYPE!r}")
    if "META-INF/rights.xml" in members:
        raise DocumentError(f"{where} is encrypted: remove its copy protection, if you may")
    chapters: dict[str, tuple[str, str]] = {}  # the XML declaration and the rest, by name
    for package in [name for name in members if name.endswith(".opf")]:
        for item in parsed_xml(members[package], f"{where}: {package}", "EPUB").iter("{*}item"):
            name = posixpath.join(posixpath.dirname(package), unquote(item.get("href") or ""))
            if item.get("media-type") == XHTML and name in members:
                text = decoded(members[name], f"{where}: {name}")
                end = prolog.end() if (prolog := _PROLOG.match(text)) else 0
                chapters[name] = text[:end], _CLOSED.sub(_opened, text[end:])
    passages = [html_passage(html, options.rules) for _, html in chapters.values()]
    left = sum((left_in(html) for _, html in chapters.values()), Counter[str]())

    def written(texts: Sequence[str]) -> bytes:
        each = zip(chapters.items(), texts, strict=True)
        own = {name: (prolog + _as_xml(text)).encode() for (name, (prolog, _)), text in each}
        return written_archive({**members, **own})

    return Document(passages, written, counted(left))


def _opened(tag: re.Match[str]) -> str:
    """Return an empty element of XML as HTML, in which only `VOID` elements end by themselves."""
    name, attributes = tag.groups()
    return tag[0] if name in VOID else f"<{name}{attributes}></{name}>"


def _as_xml(html: str) -> str:
    """Return HTML with all elements closed, and without entities that XML does not know."""
    closed = _TAG.sub(lambda t: f"<{t[1]}{t[2]}/>" if t[1] in VOID else t[0], html)
    return closed.replace("&nbsp;", "\xa0")
