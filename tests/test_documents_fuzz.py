"""Mutated documents of each format are read and written, or refused in one sentence."""

import random
import zipfile

import pytest

from document_tools import answered, packed, unlinked
from foveate.documents.base import DocumentOptions
from foveate.documents.formats import READERS, read_document
from foveate.errors import UserError

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
TEXTS = {
    "text": "A dog {x} sleeps. It eats 3 <b>cats</b>.\r\n\r\nNow.",
    "html": '<!doctype html><p title="x">A <b>dog</b><br>sleeps &amp; eats.<table><tr><td>A cat',
    "tsv": "a dog\tx\r\n\ta cat\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n<i>A dog.</i>\n- A cat.\n\n",
    "po": 'msgid ""\nmsgstr "Plural-Forms: nplurals=2;\\n"\n\n#, c-format\nmsgctxt "x"\n'
    'msgid "%d dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    "tmx": '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>A <hi>dog'
    '</hi> <ph x="1"/>sleeps.</seg></tuv></tu></body></tmx>',
    "usfm": "\\id RUT\n\\c 1\n\\v 1 A \\nd dog\\nd* sleeps,\n\\q1 it \\w eats|x\\w*.\\f + a\\f*",
    "xliff": '<!DOCTYPE xliff SYSTEM "<x>"><xliff xmlns="urn:x" version="1.2"><file><!-- > -->'
    '<trans-unit id="1"><source>A <g id="1">dog</g> <bx id="2"/>sleeps<ex id="2"/>.</source>'
    "<target state='new'/></trans-unit></file></xliff>",
}
TEXTS |= {
    "vtt": "WEBVTT\n\nNOTE x\n\n1\n00:01.000 --> 00:02.000 line:0\n<i>A dog.</i>\n- A cat.\n\n",
    "pdf": "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    "2 0 obj<</Type/Pages/Count 1/Kids[3 0 R]>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R"
    "/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n4 0 obj<</Length 34>>stream\n"
    "BT /F 9 Tf 9 9 Td (A dog.) Tj ET\nendstream endobj\n5 0 obj<</Type/Font/Subtype/Type1"
    "/BaseFont/Times-Roman>>endobj\ntrailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n",
}
PPT = "http://schemas.openxmlformats.org/presentationml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDE = "application/vnd.openxmlformats-officedocument.presentationml.slide+xml"
MEMBERS = {
    "pptx": {
        "[Content_Types].xml": f'<T><O PartName="/ppt/slide.xml" ContentType="{SLIDE}"/></T>',
        "ppt/slide.xml": f'<p:sld xmlns:p="{PPT}" xmlns:a="{DRAWING}"><a:p><a:r><a:rPr b="1"/><a:t>'
        "A dog</a:t></a:r><a:br/><a:r><a:t>sleeps.</a:t></a:r><a:endParaRPr/></a:p></p:sld>",
    },
    "epub": {
        "mimetype": "application/epub+zip",
        "a.opf": '<package><item href="a.xhtml" media-type="application/xhtml+xml"/></package>',
        "a.xhtml": '<?xml version="1.0"?><!DOCTYPE html><html><body><p>A <b>dog</b><br/>sleeps.</p>'
        '<p><a id="x"/>Now.</p></body></html>',
    },
    "docx": {
        "[Content_Types].xml": f'<T><O PartName="/word/document.xml" ContentType="{TYPE}"/></T>',
        "word/document.xml": f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>A dog</w:t><w:br/>'
        "<w:t>sleeps.</w:t></w:r><w:sdt><w:sdtContent><w:r><w:rPr><w:b/></w:rPr><w:t>Now</w:t>"
        "</w:r></w:sdtContent></w:sdt></w:p></w:body></w:document>",
    },
    "odt": {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f'<o:c xmlns:o="{ODF}:office:1.0" xmlns:t="{ODF}:text:1.0"><t:p>A <t:span>'
        'dog</t:span><t:s t:c="3"/>sleeps<t:line-break/>now.</t:p></o:c>',
    },
}
ODD = (b"", b"\0", b"\xff", b"\xe2\x80\xa8", b"<", b">", b"</", b"&", b'"', b"{", b"}", b"[", b"\\")
ODD += (b"\r", b"\n", b"\t", b"%", b"-->", b"msgid ", b"1" * 5_000, b"[" * 2_000)
ODD += ("é\ufeff".encode(),)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Data with one to three stretches replaced by odd bytes, by nothing, or doubled."""
    for _ in range(dice.randint(1, 3)):
        start = dice.randrange(len(data) + 1)
        end = min(len(data), start + dice.choice((0, 1, 1, 4, 20)))
        new = dice.choice((*ODD, data[start:end] * 2, data[end : end + 20]))
        data = data[:start] + new + data[end:]
    return data


def mutation(kind: str, dice: random.Random) -> bytes:
    """A mutated document; of an archive, a member or the whole is mutated."""
    if kind in TEXTS:
        return mutated(TEXTS[kind].encode(), dice)
    members = {name: text.encode() for name, text in MEMBERS[kind].items()}
    if dice.random() < 0.2:
        return mutated(packed(members, zipfile.ZIP_STORED), dice)
    name = dice.choice([*members])
    return packed(members | {name: mutated(members[name], dice)}, zipfile.ZIP_STORED)


@pytest.mark.parametrize("kind", READERS)
def test_mutated_documents_are_written_or_refused(kind: str) -> None:
    dice, written = random.Random(kind), 0
    for number in range(300):
        data = mutation(kind, dice) if number else mutation(kind, random.Random(0))
        options = DocumentOptions(to="fr", again=dice.random() < 0.3)
        try:
            document = read_document(kind, data, options)
        except UserError as error:
            assert "\n" not in str(error)
            continue
        assert isinstance(answered(document, links=unlinked), bytes)
        written += 1
    assert written > 5, "not all are refused"
