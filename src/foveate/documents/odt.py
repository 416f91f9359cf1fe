"""ODT documents, as LibreOffice writes them: paragraphs and headings of text, headers, footers.

Only the text in ``content.xml`` and ``styles.xml`` changes. lxml reads these files, since it
preserves the prefixes of names, which attributes such as formulas use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING
from xml.etree import ElementTree as XML

from foveate.documents.base import (
    Document,
    DocumentOptions,
    archive_document,
    archive_of,
    escaped,
    parsed_xml,
)
from foveate.documents.spans import DocumentError
from foveate.documents.translate import Passage, TextBuilder

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element  # a typed lxml element

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")
# Elements around words; all others act as words.
INLINE = tuple(f"{TEXT}{name}" for name in ("span", "a", "meta", "meta-field"))
# These stay: deleted text, and comments, which are counted, as are the elements of LEFT.
HIDDEN = (f"{TEXT}tracked-changes", f"{OFFICE}annotation")
SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
LEFT = {
    f"{OFFICE}annotation": "comments",
    f"{TEXT}ruby": "words with ruby",
    f"{TEXT}placeholder": "placeholders",
    f"{SVG}title": "alternative texts",
    f"{SVG}desc": "alternative texts",
}
PROPERTIES = re.compile(rb"<dc:(?:title|subject|description)>[^<]*\w")  # in meta.xml
MIMETYPE = "application/vnd.oasis.opendocument.text"
PARTS = ("content.xml", "styles.xml")
BREAK, TAB, BLANKS = f"{TEXT}line-break", f"{TEXT}tab", f"{TEXT}s"  # written as characters
MOST_BLANKS = 1_000  # in one element
_BLANK = re.compile(r"[ \t\r\n]+")  # one space in ODF
_LAYOUT = re.compile(r"(\n|\t|  +)")


def read_odt(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read paragraphs and headings, also in tables, lists, notes and frames; all else stays."""
    members = archive_of(data, "ODT", where)
    kind = members.get("mimetype", b"").decode("ascii", "replace").strip()
    if not kind.startswith(MIMETYPE) or PARTS[0] not in members:
        what = " ".join(kind[:80].split()) or "of another kind"
        raise DocumentError(f"{where} is not an ODT file: the archive is {what}")
    parts = (name for name in PARTS if name in members)
    roots = {name: parsed_xml(members[name], f"{where}: {name}", "ODT") for name in parts}
    left = Counter(LEFT[str(e.tag)] for root in roots.values() for e in root.iter(*LEFT))
    left["document properties"] = len(PROPERTIES.findall(members.get("meta.xml", b"")))

    def paragraphs(root: Element) -> Iterator[OdtParagraph]:
        """Yield every visible paragraph and heading."""
        for element in root.iter(*PARAGRAPHS):
            if not any(parent.tag in HIDDEN for parent in element.iterancestors()):
                yield OdtParagraph(element, options)

    return archive_document(members, roots, paragraphs, left)


class OdtParagraph:
    """A paragraph as a passage: spans and links surround words, other elements are objects."""

    def __init__(self, element: Element, options: DocumentOptions) -> None:
        self.element = element
        self.inner: list[Element] = []  # by number
        text = TextBuilder(options.rules, layout=True)
        self._read(element, text)
        self.passage = Passage(tuple(text.parts()), options.rules, escaped)

    def _read(self, parent: Element, text: TextBuilder) -> None:
        text.add_text(_BLANK.sub(" ", parent.text or ""))
        for child in parent:
            self.inner.append(child)
            number = len(self.inner) - 1
            if child.tag in (BREAK, TAB):
                text.add_break(_characters(child))
            elif child.tag == BLANKS:
                text.add_text(_characters(child))
            elif child.tag in INLINE:
                text.add_open(f'<k n="{number}">', "</k>")
                self._read(child, text)
                text.add_close()
            else:
                text.add_object(f'<k n="{number}"/>')
            text.add_text(_BLANK.sub(" ", child.tail or ""))

    def write(self, text: str) -> None:
        """Replace the paragraph's text by its translation."""
        self._used = set[int]()
        self._fill(self.element, XML.fromstring(f"<p>{text}</p>"))

    def _fill(self, element: Element, tree: XML.Element) -> None:
        element[:], element.text = [], None
        _append(element, tree.text)
        for part in tree:
            number = int(part.get("n", "0"))
            child = deepcopy(self.inner[number]) if number in self._used else self.inner[number]
            self._used.add(number)  # an element around a line break occurs twice
            if child.tag in INLINE:
                self._fill(child, part)
            child.tail = None
            element.append(child)
            _append(element, part.tail)


def _characters(element: Element) -> str:
    """Return the characters of a line break, a tab or spaces."""
    if element.tag == BLANKS:
        count = element.get(f"{TEXT}c") or "1"
        return " " * min(MOST_BLANKS, int(count) if count.isdecimal() else 1)
    return "\n" if element.tag == BREAK else "\t"


def _append(element: Element, text: str | None) -> None:
    """Append a text, with elements for line breaks, tabs, and spaces after the first."""
    for piece in _LAYOUT.split(text or ""):
        words, child = piece, None
        if piece in ("\n", "\t"):
            words, child = "", element.makeelement(BREAK if piece == "\n" else TAB)
        elif piece.startswith("  ") and not piece.strip():
            words, child = " ", element.makeelement(BLANKS, {f"{TEXT}c": str(len(piece) - 1)})
        if words and len(element):
            element[-1].tail = (element[-1].tail or "") + words
        elif words:
            element.text = (element.text or "") + words
        if child is not None:
            element.append(child)
