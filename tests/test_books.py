"""EPUB, WebVTT and PDF: texts are translated, all else stays, and a bad file is a sentence."""

import io
import zipfile
import zlib
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
from ebooklib import epub
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from pypdf import PdfWriter

import foveate.documents.formats as formats
from document_tools import answered, members, opened, packed, shouted
from foveate.config import PACKAGED
from foveate.documents.spans import DocumentError
from small_runs import Call

CHAPTER = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" xml:lang="en">
<head><title>one</title><link href="a.css" rel="stylesheet"/></head>
<body epub:type="bodymatter"><h1 id="t">a title</h1><p><a id="page1"/>a <b>black</b> dog<br/>runs
<img src="a.png" alt=""/></p><p/><hr/><p>fish &amp; chips&nbsp;!</p>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path d="M0"/></svg></body></html>"""


def book(chapter: str = CHAPTER) -> bytes:
    """A book of one chapter, with the contents page that ebooklib makes, and a raw chapter."""
    own = epub.EpubBook()
    own.set_identifier("x")
    own.set_title("A book")
    page = epub.EpubHtml(title="First", file_name="first.xhtml", content="<p>One cat sleeps.</p>")
    own.add_item(page)
    own.toc, own.spine = [page], ["nav", page]
    own.add_item(epub.EpubNcx())
    own.add_item(epub.EpubNav())
    file = io.BytesIO()
    epub.write_epub(file, own)
    return packed(members(file.getvalue()) | {"EPUB/first.xhtml": chapter.encode()})


def test_the_chapters_of_a_book_are_translated_and_stay_xml() -> None:
    document = opened("epub", book())
    sentences, data = document.sentences, answered(document)
    assert "a title" in sentences and "fish & chips !" in sentences and "First" in sentences
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.namelist()[0] == "mimetype" and file.testzip() is None
        for name in file.namelist():
            if name.endswith("xhtml"):
                XML.fromstring(file.read(name))
        text = file.read("EPUB/first.xhtml").decode()
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html')
    for part in (
        '<h1 id="t">A TITLE</h1>',
        '<a id="page1"></a>A <b>BLACK</b> DOG<br/>RUNS',
        '<img src="a.png" alt=""/>',
        "<p></p><hr/><p>FISH &amp; CHIPS !</p>",
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path d="M0"></path></svg>',
        'epub:type="bodymatter"',
    ):
        assert part in text, part
    assert epub.read_epub(io.BytesIO(data)).get_metadata("DC", "title")[0][0] == "A book"


def test_a_book_that_declares_entities_is_refused() -> None:
    entity = CHAPTER.replace('dtd">', 'dtd" [<!ENTITY a "b">]>')
    with pytest.raises(DocumentError, match=r"first\.xhtml cannot be read: it declares its own"):
        opened("epub", book(entity))


VTT = """WEBVTT - a film

STYLE
::cue { color: red }

NOTE a dog
is not translated

intro
00:01.000 --> 00:02.500 align:start
<v Ann>a dog
runs

01:00:03.000 --> 01:00:04.000
- a cat
- a bird
"""


def test_subtitles_of_the_web_keep_settings_names_and_notes() -> None:
    document = opened("vtt", VTT.encode())
    sentences, data = document.sentences, answered(document)
    assert len(sentences) == 3
    right = VTT.replace("a dog\nruns", "A\nDOG RUNS").replace("a cat", "A CAT")
    assert data.decode() == right.replace("a bird", "A BIRD")
    with pytest.raises(DocumentError, match=r"a\.vtt:14: write times as 00:01\.000"):
        opened("vtt", VTT.replace("01:00:03.000", "1.3").encode())
    with pytest.raises(DocumentError, match=r"a\.vtt:1 is not WebVTT: it begins with WEBVTT"):
        opened("vtt", b"1\n")


def pdf(*pages: str) -> bytes:
    file = io.BytesIO()
    with PdfPages(file) as out:
        for page in pages:
            figure = Figure()
            for n, line in enumerate(page.split("\n")):
                figure.text(0.1, 0.9 - n * 0.05, line)
            out.savefig(figure)
    return file.getvalue()


def test_the_text_of_a_pdf_is_read_by_paragraphs() -> None:
    text = (
        "A black dog runs over the grass and is very hap-\n"
        "py today, as it often is here in the sun\nat noon.\nA cat sleeps."
    )
    document = opened("pdf", pdf(text, "The last page."))
    sentences, data = document.sentences, answered(document)
    assert sentences[0].startswith("A black dog runs") and "happy today" in sentences[0]
    assert sentences[-2:] == ["A cat sleeps.", "The last page."]
    assert data.decode().strip().split("\n")[-2:] == ["A CAT SLEEPS.", "THE LAST PAGE."]


ZEROS = zlib.compress(bytes(80_000_000), 9)
BOMB = b"""%%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Count 1/Kids[3 0 R]>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R>>endobj
4 0 obj<</Filter/FlateDecode/Length %d>>stream\n%b\nendstream endobj
trailer<</Root 1 0 R>>\nstartxref\n0\n%%%%EOF\n"""


def locked(data: bytes) -> bytes:
    file, writer = io.BytesIO(), PdfWriter(io.BytesIO(data), full=True)
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(file)
    return file.getvalue()


def test_a_hostile_pdf_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    page = pdf("a dog")
    for data, message in (
        (pdf(""), "has no text: recognise its characters first"),
        (page[:300], "cannot be read as PDF"),
        (page.replace(b"[ 11 0 R", b"[  2 0 R"), "cannot be read as PDF: Detected cyclic"),
        (locked(page), "is encrypted: save it without a password first"),
        (BOMB % (len(ZEROS), ZEROS), "has no text"),
    ):
        with pytest.raises(DocumentError, match=rf"a\.pdf {message}"):
            shouted("pdf", data)
    monkeypatch.setattr(formats, "PDF_SECONDS", -1)
    with pytest.raises(DocumentError, match=r"a\.pdf cannot be read as PDF: it takes more than"):
        shouted("pdf", page)


def test_of_a_pdf_in_a_folder_the_text_is_written(call: Call, tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    for name, data in {"a.pdf": pdf("A dog runs."), "b.PDF": locked(pdf("x"))}.items():
        (folder / name).write_bytes(data)
    translate = "translate", PACKAGED / "en-fr", "--processes", 1, "--in", folder, "--out"
    done = call(*translate, tmp_path / "out")
    assert done.code == 2 and "1 not translated: b.PDF is encrypted" in done.err
    assert "a.pdf.txt; only the text of a PDF is written\n" in done.err
    text = call("translate", PACKAGED / "en-fr", text=b"A dog runs.").out
    assert (tmp_path / "out" / "a.pdf.txt").read_text("utf-8").strip() == text.strip()
    (folder / "a.pdf.txt").write_text("A dog.\n", "utf-8")
    assert "a.pdf.txt: rename one" in call(*translate, tmp_path / "other").err
    alone = call("translate", PACKAGED / "en-fr", "--in", folder / "a.pdf", "--out", "a.pdf")
    assert "a.pdf: only the text of a PDF is written: name a .txt file" in alone.err
