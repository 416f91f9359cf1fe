"""Common parts of all document formats: options, UTF-8 decoding, archives within limits."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Protocol
from xml.sax.saxutils import escape

from foveate.data.bilingual import declares_entities
from foveate.data.text import SIGNATURES
from foveate.documents.spans import DocumentError, Piece, Rules
from foveate.documents.translate import Passage
from foveate.errors import ConfigError, checked, install, returned, signed

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element  # a typed lxml element


@dataclass(frozen=True)
class DocumentOptions:
    """Options for reading documents.

    In a document in several languages, the ``source`` language (None: the one that the document
    declares) is translated into ``to``; ``again`` includes what has a translation already.
    ``draft`` marks translations as drafts if the format has such a mark.
    """

    rules: Rules = field(default_factory=Rules)
    to: str | None = None
    again: bool = False
    source: str | None = None
    draft: bool = True


@dataclass(frozen=True)
class Document:
    """The passages of a document, and the function that writes it from their translations."""

    passages: list[Passage]
    written: Callable[[Sequence[str]], bytes]
    note: str = ""  # printed when the document is done
    units: Sequence[str] = ()  # the name of each passage; its chapter is before a colon: GEN 1:3

    @property
    def sentences(self) -> list[str]:
        """The texts for the model, of all passages."""
        return [sentence for passage in self.passages for sentence in passage.sentences]

    def answers(self, lines: Iterable[str]) -> list[list[str]]:
        """Return the translations of `sentences` by passage."""
        rest = iter(lines)
        return [list(islice(rest, len(passage.sentences))) for passage in self.passages]

    @property
    def stayed(self) -> list[int]:
        """The numbers, from 1, of the sentences left in the source language."""
        stayed = [n in p.stayed for p in self.passages for n in range(len(p.sentences))]
        return [number for number, left in enumerate(stayed, start=1) if left]


Reader = Callable[[bytes, DocumentOptions, str], Document]


BOM = codecs.BOM_UTF8  # the byte order mark, which some programs put before a text


def content_of(data: bytes) -> str:
    """Return a file's type by its first bytes, as the end of a sentence; "" if they do not tell."""
    names = (what for begin, what in SIGNATURES.items() if data.startswith(begin))
    return next((f": it is {what.partition(':')[0]}; give it its own ending" for what in names), "")


def decoded(data: bytes, where: str) -> str:
    """Return the text of UTF-8 bytes, without a byte order mark.

    Raises ``DocumentError`` with the line that is not UTF-8.
    """
    if what := content_of(data):
        raise DocumentError(f"{where} is not a text{what}")
    data = data.removeprefix(BOM)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"{where}:{line} is not UTF-8; convert it, as with iconv") from None


def with_mark(reader: Reader) -> Reader:
    """Return a reader that restores the byte order mark; what a user's returns is checked."""
    name, plainly = signed(reader), checked(reader, Document)

    @wraps(reader)
    def read(data: bytes, options: DocumentOptions, where: str) -> Document:
        document = plainly(data, options, where)
        if name:
            returned(document.passages, Sequence[Passage], f"{name}: its Document.passages")
            document = replace(document, written=checked(document.written, bytes))
        if not data.startswith(BOM):
            return document
        plain = document.written
        return replace(document, written=lambda texts: BOM + plain(texts).removeprefix(BOM))

    return read


Change = tuple[int, int, str]  # where a stretch of a text begins and ends, and what replaces it


def changed(text: str, changes: Iterable[Change]) -> str:
    """Return a text with changes that do not overlap."""
    done, parts = 0, list[str]()
    for start, end, new in sorted(changes):
        parts += text[done:start], new
        done = end
    return "".join(parts) + text[done:]


def escaped(piece: Piece) -> str:
    """Return a piece in XML syntax."""
    return piece.text if piece.markup else escape(piece.text)


MIB = 2**20
MEMBERS = 5_000
UNPACKED = 100 * MIB  # bytes of all members together
XML_BYTES = 32 * MIB  # bytes of all XML members together
MARKS = 2_000_000  # < and = in XML members: elements and attributes, each of which takes memory
DAMAGED = (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, ArithmeticError)
MADE = (1980, 1, 1, 0, 0, 0)  # the date of each member written
_DTD = re.compile(rb"<!DOCTYPE(?!\s+html[^\[<>]*>)")  # but that of XHTML, which declares nothing
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of office documents


def archive_of(data: bytes, kind: str, where: str) -> dict[str, bytes]:
    """Return the members of an archive, read within the limits of this module.

    Raises ``DocumentError`` for members above the limits, for XML with a DTD, which could declare
    entities, and for data that is not an archive.
    """
    members: dict[str, bytes] = {}
    size = xml = marks = 0
    dtd = False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old:
            if len(old.infolist()) > MEMBERS:
                raise DocumentError(f"{where} holds more than {MEMBERS:,} files")
            for info in old.infolist():
                if info.filename in members or info.compress_type not in METHODS:
                    raise DocumentError(f"{where}: {info.filename} occurs twice or is packed oddly")
                with old.open(info) as file:
                    member = file.read(UNPACKED - size + 1)
                size += len(member)
                if size > UNPACKED:
                    raise DocumentError(f"{where} holds more than {UNPACKED // MIB} MiB, unpacked")
                if member[:64].lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")[:1] == b"<":
                    xml += len(member)
                    marks += member.count(b"<") + member.count(b"=")
                    dtd = bool(_DTD.search(member.replace(b"\0", b"")))
                if dtd:
                    place = f"{where}: {info.filename}"
                    raise DocumentError(f"{place} cannot be read: it declares its own entities")
                if xml > XML_BYTES or marks > MARKS:
                    raise DocumentError(
                        f"{where} holds more than {XML_BYTES // MIB} MiB of XML, or more than "
                        f"{MARKS:,} elements and attributes; translate it in parts"
                    )
                members[info.filename] = member
    except DocumentError:
        raise
    except DAMAGED as error:
        article = "an" if kind[0] in "EO" else "a"
        what = content_of(data) or f": {error}"
        raise DocumentError(f"{where} is not {article} {kind} file{what}") from None
    return members


def parsed_xml(data: bytes, where: str, kind: str) -> Element:
    """Return the root of an XML document, within the limits of libxml2 on its depth.

    Raises ``DocumentError`` for other content, and for entities of its own, which could expand or
    read files.
    """
    try:
        from lxml import etree
    except ImportError:
        raise ConfigError(f"{kind} needs lxml; {install('documents')}") from None
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        root: Element = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        why = " ".join(str(error).split())
        raise DocumentError(f"{where} cannot be read as XML, or is encrypted: {why}") from None
    if declares_entities(root):
        raise DocumentError(f"{where} cannot be read as XML: it declares its own entities")
    return root


class ArchiveParagraph(Protocol):
    """A paragraph of an XML part, whose text `write` replaces."""

    passage: Passage

    def write(self, text: str) -> None: ...


def archive_document(
    members: Mapping[str, bytes],
    roots: Mapping[str, Element],
    paragraphs_of: Callable[[Element], Iterable[ArchiveParagraph]],
    left: Mapping[str, int],
    standalone: bool | None = None,
) -> Document:
    """Return the document of an archive: its parts with translated paragraphs are written anew."""
    paragraphs = {name: list(paragraphs_of(root)) for name, root in roots.items()}

    def written(texts: Sequence[str]) -> bytes:
        from lxml import etree

        each, own = iter(texts), dict(members)
        for name, parts in paragraphs.items():
            translated = [(p, text) for p in parts if (text := next(each)) and p.passage.sentences]
            for paragraph, text in translated:
                paragraph.write(text)
            if translated:
                declared = {"xml_declaration": True, "standalone": standalone}
                own[name] = etree.tostring(roots[name], encoding="UTF-8", **declared)
        return written_archive(own)

    passages = [paragraph.passage for parts in paragraphs.values() for paragraph in parts]
    return Document(passages, written, counted(left))


def written_archive(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of members: its type first, unpacked, as office programs want it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in sorted(members, key=lambda name: name != "mimetype"):
            info = zipfile.ZipInfo(name, MADE)
            plain = name == "mimetype" or name.endswith("/")
            info.compress_type = zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED
            file.writestr(info, members[name])
    return out.getvalue()


def counted(left: Mapping[str, int]) -> str:
    """Return counts of what stays in the source language, as the end of a sentence."""
    names = ", ".join(f"{what} ({n:,})" for what, n in left.items() if n)
    return f"; left in the source language: {names}" if names else ""
