"""Document formats: text, HTML, tables, subtitles, office documents, books, PO, TMX, XLIFF, USFM.

A reader splits a document into passages to translate, and a function that writes the document again
with the translation of each passage. Everything else in the document stays unchanged. A reader is
registered by `document_format`, also one in a user's file (``foveate --import``).
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from logging.handlers import BufferingHandler
from pathlib import Path

from foveate.data.text import MAC
from foveate.documents.base import (
    BOM,
    Document,
    DocumentOptions,
    Reader,
    counted,
    decoded,
    with_mark,
)
from foveate.documents.html import html_passage, left_in, read_epub
from foveate.documents.odt import read_odt
from foveate.documents.office import read_docx, read_pptx
from foveate.documents.po import read_po
from foveate.documents.spans import DocumentError
from foveate.documents.translate import text_passage
from foveate.documents.usfm import read_usfm
from foveate.documents.xliff import read_tmx, read_xliff
from foveate.errors import ConfigError, install


def read_document(
    kind: str, data: bytes, options: DocumentOptions, where: str = "the input"
) -> Document:
    """Read a document in a format. Raises `DocumentError` at ``where`` for other formats."""
    if kind not in READERS:
        raise ConfigError(f"no format {kind!r}; there are: {', '.join(READERS)}")
    return READERS[kind](data, options, where)


READERS: dict[str, Reader] = {}  # by the name of the format
ENDINGS: dict[str, str] = {}  # the name of the format, by the ending of a file's name
BY_LINES: dict[str, Reader] = {}  # of formats in which every line is a passage of its own


def document_format(name: str, *endings: str, by_lines: bool = False) -> Callable[[Reader], Reader]:
    """Register a reader of documents: a function (bytes, options, name of the file) → `Document`.

    ``endings`` are those of file names, such as ".srt"; with ``by_lines`` each line is a passage,
    and a file may be divided between any two. Raises ``ConfigError`` if another reader has the name
    or an ending.
    """

    def register(reader: Reader) -> Reader:
        for ending in endings:
            if not ending.startswith(".") or ending != ending.lower():
                raise ConfigError(f"{ending!r}: write an ending in small letters, such as '.srt'")
            if ENDINGS.get(ending, name) != name:
                raise ConfigError(f"{ending} is the ending of the format {ENDINGS[ending]!r}")
        if name in READERS and READERS[name].__module__ != reader.__module__:
            raise ConfigError(f"there is a format {name!r} already: give yours another name")
        READERS[name] = with_mark(reader)
        ENDINGS.update(dict.fromkeys(endings, name))
        if by_lines:
            BY_LINES[name] = READERS[name]
        return reader

    return register


def format_of(path: Path, name: str | None = None) -> str:
    """Return the format of a name or a file extension. Raises ``ConfigError`` if it is unknown."""
    if name is not None:
        return ENDINGS.get(f".{name.lower().lstrip('.')}", name)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = f"{', '.join(READERS)}, or --import one of yours"
        raise ConfigError(f"{path}: the extension shows no format; give --format ({known})")
    return ENDINGS[ending]


@document_format("text", ".txt")
def read_whole(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read a plain text. Raises ``DocumentError`` for subtitles."""
    for mark, other in ((b"WEBVTT", "give --format vtt"), (b"[Script Info]", "convert it to .srt")):
        if data[:40].removeprefix(BOM).startswith(mark):
            raise DocumentError(f"{where} holds subtitles of another format: {other}")
    passage = text_passage(decoded(data, where), options.rules)
    return Document([passage], lambda texts: texts[0].encode())


@document_format("html", ".html", ".htm")
def read_html(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read an HTML document or fragment; what stays untranslated is counted."""
    html = decoded(data, where)
    passage = html_passage(html, options.rules)
    return Document([passage], lambda texts: texts[0].encode(), counted(left_in(html)))


PDF_SECONDS = 300.0  # of processor time, after which no further page is read
TEXT_ALONE = "only the text of a PDF is written"


@document_format("pdf", ".pdf")
def read_pdf(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read the text of a PDF, whose layout is lost: the translation is a plain text.

    Lines are joined to paragraphs, which end with a page, an empty line, or a short last line.
    Raises ``DocumentError`` for a file that cannot be read, is encrypted, takes longer than
    `PDF_SECONDS`, or has no text, such as a scan.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError
    except ImportError:
        raise ConfigError(f"PDF needs pypdf; {install('documents')}") from None
    logger, warned = logging.getLogger("pypdf"), BufferingHandler(1_000)
    logger.addHandler(warned)
    pages, end = list[str](), time.process_time() + PDF_SECONDS
    try:
        for page in PdfReader(io.BytesIO(data)).pages:
            pages.append(page.extract_text())
            if time.process_time() > end:
                raise RuntimeError(f"it takes more than {PDF_SECONDS:g} seconds: divide it")
    except (FileNotDecryptedError, DependencyError):
        remedy = "save it without a password first, as by qpdf --decrypt"
        raise DocumentError(f"{where} is encrypted: {remedy}") from None
    except Exception as error:  # whatever a damaged file leads its parser to
        why = " ".join(str(error).split())
        raise DocumentError(f"{where} cannot be read as PDF: {why}") from None
    finally:
        logger.removeHandler(warned)
    lines = [line.strip() for page in pages for line in [*page.split("\n"), ""]]
    if not any(lines):
        raise DocumentError(f"{where} has no text: recognise its characters first, as by ocrmypdf")
    wide = 0.8 * sorted(map(len, lines))[len(lines) * 9 // 10]
    paragraphs = [""]
    for line in lines:
        broken = re.search(r"\w-$", line) is not None
        paragraphs[-1] += line[:-1] if broken else f"{line} "
        if paragraphs[-1].strip() and (not line or (len(line) < wide and line[-1] in ".!?:…")):
            paragraphs.append("")
    passages = [text_passage(text.strip(), options.rules) for text in paragraphs]
    empty = sum(not page.strip() for page in pages)
    notes = [TEXT_ALONE] + [f"pages without text: {empty:,}"] * bool(empty)
    notes += dict.fromkeys(record.getMessage() for record in warned.buffer[:3])
    return Document(passages, lambda texts: "\n".join(texts).encode(), f"; {'; '.join(notes)}")


def output_name(name: str, kind: str) -> str:
    """Return the name of a document's translation in a folder; that of a PDF is a text."""
    return f"{name}.txt" if kind == "pdf" and not name.endswith(".txt") else name


def check_output(path: Path, kind: str) -> None:
    """Raise ``ConfigError`` for a translation that is named like a PDF, but is a text."""
    if kind == "pdf" and path.suffix.lower() == ".pdf":
        raise ConfigError(f"{path}: {TEXT_ALONE}: name a .txt file")


def _rows(data: bytes, where: str) -> list[tuple[str, str]]:
    """Return the lines of a document, each with its line end, which is LF or CRLF.

    Raises ``DocumentError`` if they end in CR alone.
    """
    text = decoded(data, where)
    if "\r" in text.rstrip() and "\n" not in text:
        raise DocumentError(f"{where} has CR line ends; {MAC}")
    return re.findall(r"(?!\Z)([^\n]*?)(\r?\n|\Z)", text)


def read_lines(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read a plain text with one passage per line."""
    return _by_rows(data, options, where, tsv=False)


BY_LINES["text"] = with_mark(read_lines)


@document_format("tsv", ".tsv", by_lines=True)
def read_tsv(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read rows of columns between tabs; the first column's translation becomes a new last one."""
    return _by_rows(data, options, where, tsv=True)


def _by_rows(data: bytes, options: DocumentOptions, where: str, tsv: bool) -> Document:
    """Return lines as passages, which are replaced, or of which the first column is translated."""
    rows = _rows(data, where)

    def written(texts: Sequence[str]) -> bytes:
        done = zip(rows, texts, strict=True)
        return "".join(
            (f"{row}\t" if tsv else "") + text + end for (row, end), text in done
        ).encode()

    sources = (row.partition("\t")[0] if tsv else row for row, _ in rows)
    return Document([text_passage(source, options.rules) for source in sources], written)


_TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_VTT_TIMES = re.compile(r"\s*(?:\d+:)?\d\d:\d\d\.\d{3}\s+-->\s+(?:\d+:)?\d\d:\d\d\.\d{3}")


@document_format("srt", ".srt")
def read_srt(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read subtitles: numbers and times stay; the lines of one subtitle are translated together.

    A line that begins with a dash is one speaker's and stays separate; text after an empty line
    still belongs to the subtitle. Raises ``DocumentError`` with the line of times that cannot be
    read, or if it has no times at all.
    """
    rows = _rows(data, where)
    _check_times([row for row, _ in rows], where)
    groups = list(_cues([row for row, _ in rows], _TIMES, apart=False))
    if not groups and any(row.strip() for row, _ in rows):
        raise DocumentError(f"{where} holds no subtitles: no line such as 00:00:01,000 --> …")
    return _subtitles(rows, groups, options)


@document_format("vtt", ".vtt")
def read_vtt(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read subtitles in WebVTT: as `read_srt`; settings, names, notes and styles stay.

    Raises ``DocumentError`` without the first line WEBVTT, and with the line of unreadable times.
    """
    rows = _rows(data, where)
    if not rows or not rows[0][0].startswith("WEBVTT"):
        raise DocumentError(f"{where}:1 is not WebVTT: it begins with WEBVTT")
    for number, (row, _) in enumerate(rows, start=1):
        if "-->" in row and not _VTT_TIMES.match(row):
            raise DocumentError(f"{where}:{number}: write times as 00:01.000 --> 00:02.500")
    return _subtitles(rows, list(_cues([row for row, _ in rows], _VTT_TIMES, apart=True)), options)


def _subtitles(
    rows: Sequence[tuple[str, str]], groups: Sequence[list[int]], options: DocumentOptions
) -> Document:
    """Return subtitles, of which each group of lines is translated together."""
    passages = [
        text_passage(" ".join(rows[n][0].strip() for n in group), options.rules) for group in groups
    ]

    def written(texts: Sequence[str]) -> bytes:
        lines = [row for row, _ in rows]
        for group, text in zip(groups, texts, strict=True):
            for n, line in zip(group, _spread(text, len(group)), strict=True):
                lines[n] = line
        return "".join(line + end for line, (_, end) in zip(lines, rows, strict=True)).encode()

    return Document(passages, written)


def _check_times(rows: Sequence[str], where: str) -> None:
    """Raise ``DocumentError`` with the line of times that cannot be read.

    Times are on the first line, after an empty line, or after a subtitle's number; elsewhere the
    same characters are speech.
    """
    before, last = "", ""
    for number, row in enumerate(rows, start=1):
        is_first = not last.strip() or (last.strip().isdecimal() and not before.strip())
        speech = not last.strip() and re.search(r"[^\W\d_]{2}", row)  # words, and no number before
        looks = "->" in row and re.search(r"\d:\d", row) and not _TIMES.match(row)
        if looks and is_first and not speech:
            raise DocumentError(
                f"{where}:{number} holds times that cannot be read: write "
                "00:00:01,000 --> 00:00:02,500"
            )
        before, last = last, row


def _cues(rows: Sequence[str], form: re.Pattern[str], apart: bool) -> Iterator[list[int]]:
    """Yield the line numbers of the texts that belong together, after times of a form.

    With ``apart``, an empty line ends the texts; others may begin with notes.
    """
    started, group = False, list[int]()
    for n, (row, following) in enumerate(pairwise([*rows, "", ""])):
        times = bool(form.match(row))
        number = row.strip().isdecimal() and bool(form.match(following))
        if group and (times or number or not row.strip() or row.lstrip().startswith("-")):
            yield group
            group = []
        started = times or (started and not (apart and not row.strip()))
        if started and row.strip() and not times and not number:
            group.append(n)


def _spread(text: str, count: int) -> list[str]:
    """Split a text into ``count`` lines of similar length; none is cut inside a word."""
    words, lines = text.split(" "), []
    for left in range(count, 0, -1):
        share, line = len(" ".join(words)) / left, ""
        while words and (left == 1 or not line or len(line) + len(words[0]) / 2 < share):
            line = f"{line} {words.pop(0)}" if line else words.pop(0)
        lines.append(line)
    return lines


document_format("docx", ".docx")(read_docx)
document_format("pptx", ".pptx")(read_pptx)
document_format("odt", ".odt")(read_odt)
document_format("epub", ".epub")(read_epub)
document_format("po", ".po", ".pot")(read_po)
document_format("tmx", ".tmx")(read_tmx)
document_format("usfm", ".usfm", ".sfm")(read_usfm)
document_format("xliff", ".xlf", ".xliff")(read_xliff)
