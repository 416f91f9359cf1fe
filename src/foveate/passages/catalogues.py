"""Catalogues of translations: gettext PO, and TMX, the exchange format of translation memories."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as XML
from xml.sax.saxutils import escape

from foveate.config import ConfigError
from foveate.passages.documents import Choices, Document, decoded
from foveate.passages.passage import Passage, text_passage
from foveate.passages.pieces import Piece
from foveate.passages.run import Run

if TYPE_CHECKING:
    from polib import POEntry

DEEPEST = 100  # elements in each other
LANG = "{http://www.w3.org/XML/1998/namespace}lang"


# ------------------------------------------------------------------------------ PO


def read_po(data: bytes, choices: Choices, where: str) -> Document:
    """A gettext catalogue: messages without a translation get one, plural forms too.

    The first form is the translation of the singular, all others that of the plural. Flags,
    comments and obsolete messages stay.
    """
    try:
        import polib
    except ImportError:
        raise ConfigError("PO needs polib; pip install 'foveate[documents]'") from None
    try:
        # polib opens a text that is the name of a file; behind a line break it is none
        catalogue = polib.pofile("\n" + decoded(data, where))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} is no PO file: {error}") from None
    entries = [e for e in catalogue if not e.obsolete and (choices.again or not _said(e))]
    texts = [text for e in entries for text in (e.msgid, e.msgid_plural) if text]
    passages = [text_passage(text, choices.rules) for text in texts]

    def written(found: Sequence[str]) -> bytes:
        answers = iter(found)
        for entry in entries:
            one = next(answers) if entry.msgid else ""
            if not entry.msgid_plural:
                entry.msgstr = one
                continue
            many = next(answers)
            forms = sorted(entry.msgstr_plural) or [0, 1]
            entry.msgstr_plural = {n: one if n == 0 and len(forms) > 1 else many for n in forms}
        return (str(catalogue).rstrip("\n") + "\n").encode()

    return Document(passages, written, f", {len(catalogue) - len(entries):,} messages left")


def _said(entry: POEntry) -> bool:
    """Whether a message has its translation."""
    forms = entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]
    return bool(forms) and all(forms)


# ------------------------------------------------------------------------------ TMX


def read_tmx(data: bytes, choices: Choices, where: str) -> Document:
    """A translation memory: units without the wanted language get a variant in it.

    Raises ``ConfigError`` where no language is named (``--to``), or it is no TMX.
    """
    if choices.to is None:
        raise ConfigError("a TMX holds several languages; name the one to add (--to)")
    root = parse_xml(data, where)
    if root.tag != "tmx":
        raise ConfigError(f"{where} is no TMX: its root is <{root.tag}>")
    header = root.find("header")
    source = "" if header is None else header.get("srclang", "")
    units = [(unit, found) for unit in root.iter("tu") if (found := _open(unit, source, choices))]
    passages = [_segment(segment, choices) for _, segment in units]

    def written(texts: Sequence[str]) -> bytes:
        for (unit, _), text in zip(units, texts, strict=True):
            _add(unit, text, choices.to or "")
        out = io.BytesIO()
        XML.ElementTree(root).write(out, encoding="utf-8", xml_declaration=True)
        return out.getvalue() + b"\n"

    left = sum(1 for _ in root.iter("tu")) - len(units)
    return Document(passages, written, f", {left:,} units left")


def parse_xml(data: bytes, where: str) -> XML.Element:
    """The root of an XML file. Entities of its own are refused: it neither swells nor reads."""
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import fromstring
    except ImportError:
        raise ConfigError("XML needs defusedxml; pip install 'foveate[documents]'") from None
    try:
        root: XML.Element = fromstring(data)
    except (XML.ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise ConfigError(f"{where} cannot be read as XML: {error}") from None
    level, depth = [root], 0
    while level:
        level, depth = [child for element in level for child in element], depth + 1
        if depth > DEEPEST:
            raise ConfigError(f"{where} has elements in each other, more than {DEEPEST} deep")
    return root


def language(variant: XML.Element) -> str:
    """The language of a variant."""
    return (variant.get(LANG) or variant.get("lang") or "").lower()


def same(one: str, other: str) -> bool:
    """Whether languages are the same but for a region: en and en-US."""
    return one.lower().split("-")[0] == other.lower().split("-")[0]


def _open(unit: XML.Element, source: str, choices: Choices) -> XML.Element | None:
    """The segment that a unit wants translated, if any."""
    there = [v for v in unit.findall("tuv") if same(language(v), choices.to or "")]
    if there and not choices.again:
        return None
    others = [v for v in unit.findall("tuv") if v not in there]
    own = [v for v in others if same(language(v), source)] or others
    return own[0].find("seg") if own else None


def _segment(segment: XML.Element, choices: Choices) -> Passage:
    """The text of a segment: ``hi`` goes with its words, codes such as ``ph`` stand like words."""
    run = Run(choices.rules, layout=True)
    _read(segment, run)
    return Passage(tuple(run.parts()), choices.rules, _written)


def _read(element: XML.Element, run: Run) -> None:
    run.add_text(element.text or "")
    for child in element:
        tail, child.tail = child.tail, None
        if child.tag == "hi":
            attributes = "".join(f' {k}="{escape(v, _QUOTES)}"' for k, v in child.attrib.items())
            run.add_open(f"<hi{attributes}>", "</hi>")
            _read(child, run)
            run.add_close()
        else:
            run.add_object(XML.tostring(child, encoding="unicode"))
        child.tail = tail
        run.add_text(tail or "")


_QUOTES = {'"': "&quot;"}


def _written(piece: Piece) -> str:
    return piece.text if piece.markup else escape(piece.text)


def _add(unit: XML.Element, text: str, to: str) -> None:
    """Put a variant into a unit, in place of one that is there."""
    for old in [v for v in unit.findall("tuv") if same(language(v), to)]:
        unit.remove(old)
    variant = XML.SubElement(unit, "tuv", {LANG: to})
    variant.append(XML.fromstring(f"<seg>{text}</seg>"))
