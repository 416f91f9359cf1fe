"""ODT documents keep everything but the words."""

import io
import zipfile

from lxml import etree

from document_tools import answered, members, opened, packed, unlinked
from foveate.documents.odt import MIMETYPE

NAMES = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:ooow="http://openoffice.org/2004/writer"'
)
CONTENT = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document-content {NAMES}><office:body><office:text>
<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
<text:h text:style-name="H1">the title</text:h>
<text:p>A <text:span text:style-name="T1">red</text:span> dog
  runs.<text:line-break/>See <text:a xlink:href="http://x.y/z">our page</text:a>.<text:note
><text:note-body>
<text:p>a note</text:p></text:note-body></text:note></text:p>
<text:list><text:list-item><text:p>an item</text:p></text:list-item></text:list>
<table:table><table:table-cell table:formula="ooow:sum 1|2">
<text:p>a<text:tab/>cell &amp; more</text:p></table:table-cell></table:table>
<text:p><office:annotation><text:p>a comment</text:p></office:annotation></text:p><text:p/>
</office:text></office:body></office:document-content>""".encode()
STYLES = f"""<office:document-styles {NAMES}><text:p>the header</text:p></office:document-styles>"""


def odt(content: bytes = CONTENT, kind: str = MIMETYPE) -> bytes:
    own = {"mimetype": kind, "Pictures/a.png": b"\x89PNG\0", "content.xml": content}
    return packed(own | {"styles.xml": STYLES})


def test_words_are_translated_and_all_else_stays() -> None:
    document = opened("odt", odt())
    sentences, data = document.sentences, answered(document, links=unlinked)
    assert {"the title", "A red dog runs.", "a note", "an item", "the header"} <= set(sentences)
    assert not {"gone", "a comment"} & set(sentences)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        first = file.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    files = members(data)
    assert files.items() >= {"mimetype": MIMETYPE.encode(), "Pictures/a.png": b"\x89PNG\0"}.items()
    assert b"THE HEADER" in files["styles.xml"]
    root, old = etree.fromstring(files["content.xml"]), etree.fromstring(CONTENT)
    assert [e.tag for e in root.iter()] == [e.tag for e in old.iter()], "elements and their order"
    assert [dict(e.attrib) for e in root.iter()] == [dict(e.attrib) for e in old.iter()]
    assert root.nsmap == old.nsmap, "prefixes that values use are declared"
    words = " ".join("".join(root.itertext()).split())
    for text in ("THE TITLE", "A NOTE", "AN ITEM", "CELL & MORE", "gone", "a comment"):
        assert text in words
    span = next(e for e in root.iter() if e.tag.endswith("}span"))
    assert (span.text or "").strip() == "RED"


def test_words_with_metadata_are_translated_and_ruby_is_counted() -> None:
    fields = "<text:meta>runs</text:meta> <text:meta-field>fast</text:meta-field>"
    ruby = "<text:ruby><text:ruby-base>x</text:ruby-base></text:ruby>"
    hint = "<text:placeholder>y</text:placeholder>"
    own = f"<text:p>a dog {fields}</text:p><text:p>{ruby}{hint}</text:p>"
    content = f"<office:document-content {NAMES}>{own}</office:document-content>"
    document = opened("odt", odt(content.encode()))
    assert document.sentences[0] == "a dog runs fast"
    assert "words with ruby (1)" in document.note and "placeholders (1)" in document.note


def test_a_document_that_nothing_changes_is_written_as_it_was() -> None:
    once = answered(opened("odt", odt()), str, unlinked)
    assert opened("odt", once).passages
