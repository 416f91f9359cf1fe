"""Catalogues of translations: gettext PO, and TMX, the exchange format of translation memories."""

from __future__ import annotations

import io
import re
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

DEEPEST = 100  # elements in each other; a TMX needs six, and some for codes
LANG = "{http://www.w3.org/XML/1998/namespace}lang"


# ------------------------------------------------------------------------------ PO


def read_po(data: bytes, choices: Choices, where: str) -> Document:
    """A gettext catalogue: messages without a translation get one, plural forms too.

    The first form is the translation of the singular, all others that of the plural; there are as
    many as the header says. Flags, comments and obsolete messages stay. Raises ``ConfigError``
    naming a line that is none of a PO file, and a message with other forms than these.
    """
    try:
        import polib
    except ImportError:
        raise ConfigError("PO needs polib; pip install 'foveate[documents]'") from None
    text = decoded(data, where).removeprefix("\ufeff")
    _check_lines(text, where)
    if not text.strip():
        return Document([], lambda found: data)
    try:
        # polib opens a text that is the name of a file; behind a line break it is none
        catalogue = polib.pofile("\n" + text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} is no PO file: {error}") from None
    forms = _forms(catalogue.metadata.get("Plural-Forms", ""), where)
    for entry in catalogue:
        _check_forms(entry, forms, where)
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
            many, count = next(answers), forms or len(entry.msgstr_plural) or 2
            entry.msgstr_plural = {n: one if n == 0 and count > 1 else many for n in range(count)}
        out = str(catalogue).rstrip("\n") + "\n"
        return (out.replace("\n", "\r\n") if "\r\n" in text else out).encode()

    return Document(passages, written, f", {len(catalogue) - len(entries):,} messages left")


_LINE = re.compile(
    r"#|(?:msg(?:ctxt|id|id_plural|str|str\[[0-9]\])\s*+)?\"(?:[^\"\\]|\\.)*+\"\s*$", re.DOTALL
)
_COUNT = re.compile(r"nplurals\s*=\s*(\d{1,9})")


def _check_lines(text: str, where: str) -> None:
    """Raise ``ConfigError`` naming a line that polib would mend in silence, or misread."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not _LINE.match(line.strip()):
            raise ConfigError(
                f"{where}:{number} is no line of a PO file: a comment, or a keyword such as msgid, "
                'msgstr or msgstr[0] to msgstr[9], and a text in "…"'
            )


def _forms(header: str, where: str) -> int | None:
    """How many plural forms the header asks for; None where it does not say."""
    said = _COUNT.search(header)
    if said is None:
        return None
    if not 1 <= int(said[1]) <= 9:
        raise ConfigError(f"{where}: nplurals={said[1]} in Plural-Forms: there are 1 to 9")
    return int(said[1])


def _check_forms(entry: POEntry, count: int | None, where: str) -> None:
    """Raise ``ConfigError`` where the plural forms of a message have gaps, or are too many."""
    found = sorted(entry.msgstr_plural)
    most = len(found) if count is None else count
    if found != list(range(len(found))) or len(found) > most:
        named = ", ".join(f"msgstr[{n}]" for n in found)
        raise ConfigError(
            f"{where}:{(entry.linenum or 2) - 1} has {named}; its forms should be msgstr[0] to "
            f"msgstr[{max(0, most - 1)}]"
        )


def _said(entry: POEntry) -> bool:
    """Whether a message has its translation."""
    forms = entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]
    return bool(forms) and all(forms)


# ------------------------------------------------------------------------------ TMX


def read_tmx(data: bytes, choices: Choices, where: str) -> Document:
    """A translation memory: units without the wanted language get a variant in it, made of that in
    ``choices.source``, else in the language of the header, else of the first.

    Raises ``ConfigError`` where no language is named (``--to``), or it is no TMX.
    """
    if choices.to is None:
        raise ConfigError("a TMX holds several languages; name the one to add (--to)")
    root = parse_xml(data, where)
    if root.tag != "tmx":
        raise ConfigError(f"{where} is no TMX: its root is <{root.tag}>")
    header = root.find("header")
    source = "" if header is None else header.get("srclang", "")
    units = [
        (unit, found)
        for unit in root.iter("tu")
        if (found := _open(unit, source, choices)) is not None
    ]
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
    """The root of an XML file. Entities of its own are refused: it neither swells nor reads.

    Raises ``ConfigError`` naming the line, where the reader knows it, also for elements that are
    more than `DEEPEST` in each other.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import DefusedXMLParser, iterparse
    except ImportError:
        raise ConfigError("XML needs defusedxml; pip install 'foveate[documents]'") from None
    depth = 0
    root: XML.Element | None = None
    try:
        # comments and instructions stay where they are
        target = XML.TreeBuilder(insert_comments=True, insert_pis=True)
        parser = DefusedXMLParser(target=target)
        for event, element in iterparse(io.BytesIO(data), ("start", "end"), parser):
            root = element if root is None else root
            depth += 1 if event == "start" else -1
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} elements are in each other")
    except (XML.ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise ConfigError(f"{where} cannot be read as XML: {error}") from None
    if root is None:
        raise ConfigError(f"{where} cannot be read as XML: it holds no element")
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
    own = [v for v in others if same(language(v), choices.source or source)]
    own = own if own or choices.source else others
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
