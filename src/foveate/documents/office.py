"""DOCX and PPTX documents of Word and PowerPoint; only the text of some parts changes."""

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

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
DC = "{http://purl.org/dc/elements/1.1/}"
TYPES = "[Content_Types].xml"

# Contents of an archive, by the ends of its parts' content types. The paragraphs of these parts are
# translated, with their tables, text boxes, hyperlinks, insertions and content controls.
TRANSLATED = re.compile(
    r"\.wordprocessingml\.(?:header|footer|footnotes|endnotes)\+xml$|\.main\+xml$"
    r"|\.presentationml\.(?:slide|notesSlide)\+xml$"
)
BODIES = {"DOCX": (f"{W}document", "Word"), "PPTX": (f"{P}sld", "PowerPoint")}
# Texts in these parts stay, and are counted: a name for them, and their elements.
LEFT = {
    "wordprocessingml.comments+xml": ("comments", (f"{W}comment",)),
    "presentationml.comments+xml": ("comments", (f"{P}text",)),
    "drawingml.diagramData+xml": ("texts in diagrams", (f"{A}t",)),
    "drawingml.chart+xml": ("texts in charts", (f"{A}t",)),
    "core-properties+xml": (
        "document properties",
        (f"{DC}title", f"{DC}subject", f"{DC}description"),
    ),
}
# In translated parts: elements whose descr and title attributes stay, and are counted.
DESCRIBED = (f"{DRAWING}docPr", f"{P}cNvPr")
# In paragraphs: elements that stand for characters, between sentences or within words. All other
# elements stay, such as pictures, notes, fields, formulas and deleted text.
BREAKS = {f"{W}br": "\n", f"{W}cr": "\n", f"{W}tab": "\t", f"{W}ptab": "\t", f"{A}br": "\n"}
HYPHENS = {f"{W}noBreakHyphen": "-", f"{W}softHyphen": ""}
DROPPED = (f"{W}proofErr",)  # marks of the spell checker

FORMATTING = 4_000  # characters of a run's formatting, which each new run copies
_AROUND = "hyperlink ins moveTo smartTag customXml bdo dir fldSimple"
AROUND = tuple(f"{W}{name}" for name in _AROUND.split())
# Properties of a paragraph, or of an element around words; those of its end stay behind its text.
LAST = f"{A}endParaRPr"
_PROPERTIES = tuple(f"{W}{name}" for name in ("pPr", "smartTagPr", "customXmlPr", "fldData"))
PROPERTIES = (*_PROPERTIES, f"{A}pPr", LAST)
PROOFING = {"lang", "altLang", "dirty", "err", "noProof", "smtClean", "bmk"}  # of runs of slides
PRESERVED = {"{http://www.w3.org/XML/1998/namespace}space": "preserve"}


def read_docx(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read the paragraphs of body, tables, text boxes, headers, footers and notes of a DOCX."""
    return _archive(data, options, where, "DOCX")


def read_pptx(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read the paragraphs of the slides of a PPTX, with their tables, and of their notes."""
    return _archive(data, options, where, "PPTX")


def _archive(data: bytes, options: DocumentOptions, where: str, form: str) -> Document:
    """Read an archive of an office program.

    All but its paragraphs stays; comments and the like are counted. Raises ``DocumentError`` for
    another archive.
    """
    members, (body, program) = archive_of(data, form, where), BODIES[form]
    if TYPES not in members:
        raise DocumentError(f"{where} is not a {form} file: the archive has no {TYPES}")
    declared = parsed_xml(members[TYPES], f"{where}: {TYPES}", form)
    named = ((str(e.get("PartName")).lstrip("/"), str(e.get("ContentType"))) for e in declared)
    types = {name: kind for name, kind in named if name in members}
    chosen = [name for name, kind in types.items() if TRANSLATED.search(kind)]
    roots = {name: parsed_xml(members[name], f"{where}: {name}", form) for name in chosen}
    if not any(root.tag == body for root in roots.values()):
        usual = f"{where} is not a {form} file of the usual kind"
        raise DocumentError(f"{usual}: save it again in {program}")
    left = Counter(name for root in roots.values() for name in _described(root))
    for name, kind in types.items():
        for ending, (what, tags) in LEFT.items():
            if kind.endswith(ending):
                root = parsed_xml(members[name], f"{where}: {name}", form)
                texts = ("".join(each.itertext()) for each in root.iter(*tags))
                left[what] += sum(bool(text.strip()) for text in texts)

    def paragraphs(root: Element) -> Iterator[Paragraph]:
        """Yield every paragraph with text once."""
        space = A if form == "PPTX" else W
        with_text = (
            p for p in root.iter(f"{space}p") if next(p.iter(f"{space}t"), None) is not None
        )
        return (Paragraph(element, options, where) for element in with_text)

    return archive_document(members, roots, paragraphs, left, standalone=True)


def _described(root: Element) -> Iterator[str]:
    """Yield the names of the attributes and elements that are counted."""
    yield from ("words with ruby" for _ in root.iter(f"{W}ruby"))
    for element in root.iter(*DESCRIBED):
        yield from ("alternative texts" for name in ("descr", "title") if element.get(name))


class Paragraph:
    """A paragraph as a passage: its most frequent formatting is plain, any other is an element."""

    def __init__(self, element: Element, options: DocumentOptions, where: str) -> None:
        """Raise ``DocumentError`` if a run's formatting is larger than `FORMATTING`."""
        self.element, self.space = element, _space(element)
        if any(len(_key(run)) > FORMATTING for run in element.iter(f"{self.space}r")):
            raise DocumentError(f"{where}: the formatting of some words is too large to be copied")
        self.objects: list[Element] = []  # including elements around words, by number
        self.formats: list[Element] = []  # run properties, by number
        self.breaks: list[Element] = []  # breaks and tabs, in order
        self.text = TextBuilder(options.rules, layout=True)
        _split(element)
        lengths = Counter[str]()
        for run in filter(_is_text, element.iter(f"{self.space}r")):
            lengths[_key(run)] += sum(len(t.text or "") for t in run.iter(f"{self.space}t"))
        self.base = max(lengths, key=lengths.__getitem__, default="")
        self._read(element)
        self.passage = Passage(tuple(self.text.parts()), options.rules, escaped)

    def _read(self, parent: Element) -> None:
        """Add the children: runs of text, elements around words, and all others as objects."""
        opened: str | None = None
        for child in parent:
            key = _key(child) if _is_text(child) else None
            if opened is not None and key != opened:
                self.text.add_close()
                opened = None
            if child.tag in PROPERTIES or child.tag in DROPPED:
                continue
            parts = [part for part in child if part.tag != f"{W}rPr"]
            mark = parts[0] if child.tag == f"{W}r" and len(parts) == 1 else child
            if mark.tag in BREAKS:
                self.breaks.append(child)
                self.text.add_break(BREAKS[mark.tag])
                continue
            if key is not None:
                if key != self.base and opened is None:
                    self.formats.append(child.find(f"{self.space}rPr"))
                    self.text.add_open(f'<f n="{len(self.formats) - 1}">', "</f>")
                    opened = key
                self.text.add_text(_text(child))
                continue
            self.objects.append(child)
            if (holder := _holder(child)) is not None:
                self.text.add_open(f'<k n="{len(self.objects) - 1}">', "</k>")
                self._read(holder)
                self.text.add_close()
            else:
                self.text.add_object(f'<k n="{len(self.objects) - 1}"/>')
        if opened is not None:
            self.text.add_close()

    def write(self, text: str) -> None:
        """Replace the paragraph's text by its translation."""
        runs = (run for run in self.element.iter(f"{self.space}r") if _key(run) == self.base)
        base = next((run.find(f"{self.space}rPr") for run in runs), None)
        ends = [child for child in self.element if child.tag == LAST]
        self.element[:] = [child for child in self.element if child.tag == f"{self.space}pPr"]
        self._left, self._used = iter(self.breaks), set[int]()
        self._fill(self.element, XML.fromstring(f"<p>{text}</p>"), base)
        self.element.extend(ends)

    def _fill(self, parent: Element, tree: XML.Element, properties: Element | None) -> None:
        self._append(parent, tree.text, properties)
        for child in tree:
            number = int(child.get("n", "0"))
            if child.tag == "f":
                self._fill(parent, child, self.formats[number])
            else:
                item = self.objects[number]
                item = deepcopy(item) if number in self._used else item  # there is a break inside
                self._used.add(number)
                if (holder := _holder(item)) is not None:
                    holder[:] = [each for each in holder if each.tag in PROPERTIES]
                    self._fill(holder, child, properties)
                parent.append(item)
            self._append(parent, child.tail, properties)

    def _append(self, parent: Element, text: str | None, properties: Element | None) -> None:
        """Append runs of text with formatting, and the breaks in the text."""
        for part in re.split(r"([\n\t])", text or ""):
            if part in ("\n", "\t"):
                parent.append(next(self._left))
            elif part:
                run = parent.makeelement(f"{self.space}r")
                if properties is not None:
                    run.append(deepcopy(properties))
                words = run.makeelement(f"{self.space}t", PRESERVED if self.space == W else {})
                words.text = part
                run.append(words)
                parent.append(run)


def _split(paragraph: Element) -> None:
    """Give each tab, line break or picture in a run with text its own run."""
    for hyphen in list(paragraph.iter(*HYPHENS)):
        hyphen.text, hyphen.tag = HYPHENS[hyphen.tag], f"{W}t"
    for run in list(paragraph.iter(f"{W}r")):
        parts = [child for child in run if child.tag != f"{W}rPr"]
        if len(parts) < 2 or _is_text(run) or run.getparent() is None:
            continue
        properties, place = run.find(f"{W}rPr"), run
        for part in parts[1:]:
            alone = run.makeelement(f"{W}r", dict(run.attrib))
            if properties is not None:
                alone.append(deepcopy(properties))
            alone.append(part)
            place.addnext(alone)
            place = alone


def _holder(element: Element) -> Element | None:
    """Return the element inside a wrapping element that has its words; None for any other."""
    if element.tag == f"{W}sdt":
        return element.find(f"{W}sdtContent")
    return element if element.tag in AROUND else None


def _space(element: Element) -> str:
    """Return the namespace of an element."""
    return str(element.tag)[: str(element.tag).rfind("}") + 1]


def _is_text(element: Element) -> bool:
    """Return whether an element is a visible run with nothing but text."""
    space = _space(element)
    known = (f"{space}t", f"{space}rPr", f"{W}lastRenderedPageBreak")
    is_text = element.tag in (f"{W}r", f"{A}r") and all(child.tag in known for child in element)
    hidden = element.find(f"{W}rPr/{W}vanish") if is_text else None
    return is_text and (hidden is None or hidden.get(f"{W}val", "1") in ("0", "false", "off"))


def _text(run: Element) -> str:
    """Return the text of a run, with line breaks and tabs of the file as spaces."""
    return re.sub(r"[\n\t\r]", " ", "".join(t.text or "" for t in run.iter(f"{_space(run)}t")))


def _key(run: Element) -> str:
    """Return a run's formatting as a string, equal for runs with equal formatting."""
    properties = run.find(f"{_space(run)}rPr")
    if properties is None:
        return ""
    own = sorted(each for each in properties.attrib.items() if each[0] not in PROOFING)
    inner = (
        f"{e.tag} {sorted(e.attrib.items())}".replace(W, "") for e in list(properties.iter())[1:]
    )
    return " ".join([*(f"{name}={value}" for name, value in own), *inner])
