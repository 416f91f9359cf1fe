"""EPUB, WebVTT and PDF: texts are translated, all else stays, and a bad file is a sentence."""

import io
import zipfile
from xml.etree import ElementTree as XML

import pytest
from ebooklib import epub
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from foveate.documents.base import DocumentOptions
from foveate.documents.formats import read_document
from foveate.documents.spans import DocumentError

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
    file, out = io.BytesIO(), io.BytesIO()
    epub.write_epub(file, own)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, chapter if name.endswith("first.xhtml") else data)
    return out.getvalue()


def shouted(kind: str, data: bytes) -> tuple[list[str], bytes]:
    document = read_document(kind, data, DocumentOptions(), f"a.{kind}")
    each = [
        passage.joined(
            [s.upper() for s in passage.sentences],
            lambda pairs: [[(n, n) for n in range(len(a.split()))] for a, _ in pairs],
        )
        for passage in document.passages
    ]
    return document.sentences, document.written(each)


def test_the_chapters_of_a_book_are_translated_and_stay_xml() -> None:
    sentences, data = shouted("epub", book())
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


def test_an_archive_that_is_no_book_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("mimetype", "application/zip")
    with pytest.raises(DocumentError, match=r"a\.epub is not an EPUB file"):
        shouted("epub", out.getvalue())
    entity = CHAPTER.replace('dtd">', 'dtd" [<!ENTITY a "b">]>')
    with pytest.raises(DocumentError, match=r"first\.xhtml cannot be read: it declares its own"):
        shouted("epub", book(entity))


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
    sentences, data = shouted("vtt", VTT.encode())
    assert len(sentences) == 3
    right = VTT.replace("a dog\nruns", "A\nDOG RUNS").replace("a cat", "A CAT")
    assert data.decode() == right.replace("a bird", "A BIRD")
    with pytest.raises(DocumentError, match=r"a\.vtt:14: write times as 00:01\.000"):
        shouted("vtt", VTT.replace("01:00:03.000", "1.3").encode())
    with pytest.raises(DocumentError, match=r"a\.vtt:1 is not WebVTT: it begins with WEBVTT"):
        shouted("vtt", b"1\n")


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
    sentences, data = shouted("pdf", pdf(text, "The last page."))
    assert sentences[0].startswith("A black dog runs") and "happy today" in sentences[0]
    assert sentences[-2:] == ["A cat sleeps.", "The last page."]
    assert data.decode().strip().split("\n")[-2:] == ["A CAT SLEEPS.", "THE LAST PAGE."]
    with pytest.raises(DocumentError, match=r"a\.pdf has no text: recognise its characters first"):
        shouted("pdf", pdf(""))
    with pytest.raises(DocumentError, match=r"a\.pdf cannot be read as PDF"):
        shouted("pdf", pdf("a dog")[:300])
