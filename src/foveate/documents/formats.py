"""DOCX, PO, TMX, SRT: documents read and written."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as XML
from xml.sax.saxutils import escape

from foveate.config import ConfigError
from foveate.documents.documents import Choices, Document, decoded
from foveate.documents.spans import Piece
from foveate.documents.translate import Passage, Run, text_passage

if TYPE_CHECKING:
    from polib import POEntry


MIB = 2**20
MEMBERS = 5_000
UNPACKED = 100 * MIB  # bytes of all members
XML_BYTES = 32 * MIB  # bytes of all members that are XML
MARKS = 2_000_000  # of < and = in these: elements and attributes, each of which takes some memory
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of office documents
CHUNK = 65_536


def bounded(data: bytes, where: str) -> bytes:
    """The same archive, its members as they are in truth, not compressed.

    Raises ``ConfigError`` for what is none, for members above the bounds of this module, and for
    XML with a DTD, for such files need no entities of their own.
    """
    out, names = io.BytesIO(), set[str]()
    size = xml = marks = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            if len(old.infolist()) > MEMBERS:
                raise ConfigError(f"{where} holds more than {MEMBERS:,} files")
            for info in old.infolist():
                if info.filename in names or info.compress_type not in METHODS:
                    raise ConfigError(f"{where}: {info.filename} is there twice, or packed oddly")
                names.add(info.filename)
                member = _read_member(old, info, UNPACKED - size, where)
                size += len(member)
                if _is_xml(member):
                    xml += len(member)
                    marks += member.count(b"<") + member.count(b"=")
                    _refuse_dtd(member, f"{where}: {info.filename}")
                if xml > XML_BYTES or marks > MARKS:
                    raise ConfigError(
                        f"{where} holds more than {XML_BYTES // MIB} MiB of XML, or more than "
                        f"{MARKS:,} elements and attributes; translate it in parts"
                    )
                new.writestr(info.filename, member)
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        ArithmeticError,
    ) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where} is no DOCX file: {error}") from None
    return out.getvalue()


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int, where: str) -> bytes:
    """A member. Raises ``ConfigError`` as soon as it has more bytes than that."""
    found = bytearray()
    with archive.open(info) as file:
        while chunk := file.read(CHUNK):
            found += chunk
            if len(found) > most:
                raise ConfigError(f"{where} holds more than {UNPACKED // MIB} MiB, unpacked")
    return bytes(found)


def _is_xml(data: bytes) -> bool:
    return data[:64].lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")[:1] == b"<"


def _refuse_dtd(data: bytes, where: str) -> None:
    if b"<!DOCTYPE" in data or b"<!DOCTYPE" in data.replace(b"\0", b""):
        raise ConfigError(f"{where} cannot be read: it declares entities of its own")


# -------------------------------------------------------------------------------------------- docx
# DOCX: paragraphs are translated, the formatting of their words goes with the words.

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FORMATTING = 4_000  # characters of what tells the formatting of a run; each new run copies it
SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def read_docx(data: bytes, choices: Choices, where: str) -> Document:
    """The paragraphs of body, tables, headers and footers. All else stays as it is."""
    try:
        import docx
    except ImportError:
        raise ConfigError("DOCX needs python-docx; pip install 'foveate[documents]'") from None
    try:
        file = docx.Document(io.BytesIO(bounded(data, where)))
    except ConfigError:
        raise
    except Exception as error:  # zip, XML and package errors of many kinds
        raise ConfigError(f"{where} is no DOCX file: {error}") from None
    stories = list(_paragraphs(file))
    if any(element.getroottree().docinfo.internalDTD is not None for element in stories):
        raise ConfigError(f"{where} cannot be read: it declares entities of its own")
    paragraphs = [Paragraph(element, choices, where) for element in stories]

    def written(texts: Sequence[str]) -> bytes:
        for paragraph, text in zip(paragraphs, texts, strict=True):
            if paragraph.passage.sentences:
                paragraph.write(text)
        out = io.BytesIO()
        file.save(out)
        return out.getvalue()

    return Document([paragraph.passage for paragraph in paragraphs], written)


def _paragraphs(file: Any) -> Iterator[Any]:
    """Every paragraph with text, each once."""
    stories = [file.element.body]
    for section in file.sections:
        for part in (section.header, section.footer):
            if not part.is_linked_to_previous:
                stories.append(part._element)
    for story in stories:
        for paragraph in story.iter(f"{W}p"):
            if next(paragraph.iter(f"{W}t"), None) is not None:
                yield paragraph


class Paragraph:
    """A paragraph as a passage: its commonest formatting is plain, other formatting an element."""

    def __init__(self, element: Any, choices: Choices, where: str) -> None:
        """Raises ``ConfigError`` for formatting of a run above `FORMATTING`."""
        self.element = element
        if any(len(_key(run)) > FORMATTING for run in element.iter(f"{W}r")):
            raise ConfigError(f"{where}: the formatting of some words is too large to be copied")
        self.kept: list[Any] = []  # objects and hyperlinks, by number
        self.formats: list[Any] = []  # run properties, by number
        self.run = Run(choices.rules, layout=True)
        _split(element)
        self.base = self._commonest()
        self._read(element)
        self.passage = Passage(tuple(self.run.parts()), choices.rules, _written)

    # ---- reading

    def _commonest(self) -> str:
        lengths: dict[str, int] = {}
        for run in self.element.iter(f"{W}r"):
            size = sum(len(t.text or "") for t in run.iter(f"{W}t"))
            lengths[_key(run)] = lengths.get(_key(run), 0) + size
        return max(lengths, key=lambda key: lengths[key], default="")

    def _read(self, parent: Any) -> None:
        """Take in the children: runs of text, hyperlinks, and objects for whatever else."""
        opened: str | None = None
        for child in parent:
            key = _key(child) if _is_text(child) else None
            if opened is not None and key != opened:
                self.run.add_close()
                opened = None
            if child.tag == f"{W}pPr":
                continue
            if key is not None:
                if key != self.base and opened is None:
                    self.formats.append(child.find(f"{W}rPr"))
                    self.run.add_open(f'<f n="{len(self.formats) - 1}">', "</f>")
                    opened = key
                self.run.add_text("".join(t.text or "" for t in child.iter(f"{W}t")))
                continue
            self.kept.append(child)
            if child.tag == f"{W}hyperlink":
                self.run.add_open(f'<k n="{len(self.kept) - 1}">', "</k>")
                self._read(child)
                self.run.add_close()
            else:
                self.run.add_object(f'<k n="{len(self.kept) - 1}"/>')
        if opened is not None:
            self.run.add_close()

    # ---- writing

    def write(self, text: str) -> None:
        """Put the translated text in place of the paragraph's."""
        base = next(
            (r.find(f"{W}rPr") for r in self.element.iter(f"{W}r") if _key(r) == self.base), None
        )
        for child in list(self.element):
            if child.tag != f"{W}pPr":
                self.element.remove(child)
        self._fill(self.element, XML.fromstring(f"<p>{text}</p>"), base)

    def _fill(self, parent: Any, tree: XML.Element, properties: Any) -> None:
        self._say(parent, tree.text, properties)
        for child in tree:
            number = int(child.get("n", "0"))
            if child.tag == "f":
                self._fill(parent, child, self.formats[number])
            else:
                kept = self.kept[number]
                if kept.tag == f"{W}hyperlink":
                    for old in list(kept):
                        kept.remove(old)
                    self._fill(kept, child, properties)
                parent.append(kept)
            self._say(parent, child.tail, properties)

    def _say(self, parent: Any, text: str | None, properties: Any) -> None:
        """A run of text with its formatting."""
        if not text:
            return
        run = parent.makeelement(f"{W}r")
        if properties is not None:
            run.append(deepcopy(properties))
        words = run.makeelement(f"{W}t", {SPACE: "preserve"})
        words.text = text
        run.append(words)
        parent.append(run)


def _split(paragraph: Any) -> None:
    """Give each tab, line break or picture that stands in a run with text a run of its own."""
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


def _is_text(element: Any) -> bool:
    """Whether an element is a run that holds text and nothing else."""
    return element.tag == f"{W}r" and all(
        child.tag in (f"{W}t", f"{W}rPr", f"{W}lastRenderedPageBreak") for child in element
    )


def _key(run: Any) -> str:
    """What tells the formatting of runs apart."""
    properties = run.find(f"{W}rPr")
    each = [] if properties is None else list(properties.iter())[1:]
    return " ".join(f"{e.tag} {sorted(e.attrib.items())}".replace(W, "") for e in each)


def _written(piece: Piece) -> str:
    return piece.text if piece.markup else escape(piece.text)


# -------------------------------------------------------------------------------------- catalogues
# Catalogues of translations: gettext PO, and TMX, the exchange format of translation memories.

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
    _read_segment(segment, run)
    return Passage(tuple(run.parts()), choices.rules, _written)


def _read_segment(element: XML.Element, run: Run) -> None:
    run.add_text(element.text or "")
    for child in element:
        tail, child.tail = child.tail, None
        if child.tag == "hi":
            attributes = "".join(f' {k}="{escape(v, _QUOTES)}"' for k, v in child.attrib.items())
            run.add_open(f"<hi{attributes}>", "</hi>")
            _read_segment(child, run)
            run.add_close()
        else:
            run.add_object(XML.tostring(child, encoding="unicode"))
        child.tail = tail
        run.add_text(tail or "")


_QUOTES = {'"': "&quot;"}


def _add(unit: XML.Element, text: str, to: str) -> None:
    """Put a variant into a unit, in place of one that is there."""
    for old in [v for v in unit.findall("tuv") if same(language(v), to)]:
        unit.remove(old)
    variant = XML.SubElement(unit, "tuv", {LANG: to})
    variant.append(XML.fromstring(f"<seg>{text}</seg>"))
