"""DOCX documents: each thing that they can hold is translated, stays, or is counted."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from document_tools import answered, members, opened, packed, unlinked
from foveate.documents.office import BREAKS, DESCRIBED, HYPHENS, LEFT, W
from foveate.documents.spans import DocumentError

NAMES = (
    f'xmlns:w="{W[1:-1]}" xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/'
    'wordprocessingDrawing" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"'
)
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
DRAWN = "application/vnd.openxmlformats-officedocument.drawingml"
CORE = "application/vnd.openxmlformats-package.core-properties+xml"
MAIN = f"{WORD}.document.main+xml"


def docx(body: str, **parts: tuple[str, str]) -> bytes:
    """A document of a body and parts, each of its content type and its XML."""
    all_parts = {"word_document": (MAIN, f"<w:document><w:body>{body}</w:body></w:document>")}
    files, types = dict[str, str](), ""
    for name, (kind, xml) in (all_parts | parts).items():
        path = name.replace("_", "/") + ".xml"
        types += f'<Override PartName="/{path}" ContentType="{kind}"/>'
        files[path] = re.sub(r"^<[\w:]+", rf"\g<0> {NAMES}", xml)
    return packed(files | {"[Content_Types].xml": f"<Types>{types}</Types>"})


def run(text: str, more: str = "") -> str:
    return f"<w:r>{more}<w:t xml:space='preserve'>{text}</w:t></w:r>"


def read(data: bytes) -> tuple[list[list[str]], dict[str, str], str]:
    """The sentences, the members of the document in capitals, and the note."""
    document = opened("docx", data)
    files = members(answered(document, links=unlinked)).items()
    parts = {name: content.decode() for name, content in files}
    return [p.sentences for p in document.passages], parts, document.note


P = f"<w:p>{run('a dog')}</w:p>"
SHOWN = "<w:rPr><w:vanish w:val='0'/></w:rPr>"
TRANSLATED = {
    "a table": f"<w:tbl><w:tr><w:tc>{P}</w:tc></w:tr></w:tbl>",
    "a text box": f"<w:p><w:r><w:pict><w:txbxContent>{P}</w:txbxContent></w:pict></w:r></w:p>",
    "a content control": f"<w:sdt><w:sdtContent>{P}</w:sdtContent></w:sdt>",
    "an insertion": f"<w:p><w:ins>{run('a dog')}</w:ins></w:p>",
    "a moved text": f"<w:p><w:moveTo>{run('a dog')}</w:moveTo></w:p>",
    "a hyperlink": f"<w:p><w:hyperlink>{run('a dog')}</w:hyperlink></w:p>",
    "a smart tag": f"<w:p><w:smartTag>{run('a dog')}</w:smartTag></w:p>",
    "a custom XML element": f"<w:p><w:customXml>{run('a dog')}</w:customXml></w:p>",
    "a simple field": f"<w:p><w:fldSimple><w:fldData/>{run('a dog')}</w:fldSimple></w:p>",
    "words from right to left": f"<w:p><w:bdo w:val='rtl'>{run('a dog')}</w:bdo></w:p>",
    "words in a direction": f"<w:p><w:dir w:val='ltr'>{run('a dog')}</w:dir></w:p>",
    "words that are not hidden": f"<w:p>{run('a dog', SHOWN)}</w:p>",
    "the result of a field": "<w:p><w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>"
    f"DATE</w:instrText></w:r><w:r><w:fldChar w:fldCharType='separate'/></w:r>{run('a dog')}</w:p>",
    "words beside a spelling mark": f"<w:p><w:proofErr w:type='x'/>{run('a dog')}</w:p>",
    "a soft hyphen": "<w:p><w:r><w:t>a d</w:t><w:softHyphen/><w:t>og</w:t></w:r></w:p>",
}
STAYS = {
    "hidden text": run("gone and much longer", "<w:rPr><w:vanish/></w:rPr>"),
    "deleted text": "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
    "a field's instruction": "<w:r><w:instrText>gone</w:instrText></w:r>",
    "a reference": "<w:r><w:footnoteReference w:id='2'/></w:r>",
    "a bookmark": "<w:bookmarkStart w:id='1' w:name='gone'/>",
    "a symbol": "<w:r><w:sym w:font='x' w:char='F020'/></w:r>",
    "a comment's range": "<w:commentRangeStart w:id='1'/>",
}


@pytest.mark.parametrize("name", TRANSLATED)
def test_what_is_translated_in_the_body(name: str) -> None:
    sentences, files, note = read(docx(TRANSLATED[name]))
    assert ["a dog"] in sentences and "A DOG" in files["word/document.xml"] and not note


@pytest.mark.parametrize("part", ["header", "footer", "footnotes", "endnotes"])
def test_what_is_translated_in_other_parts(part: str) -> None:
    xml = f"<w:{part}><w:footnote>{P}</w:footnote></w:{part}>"
    sentences, files, _ = read(docx(P, word_other=(f"{WORD}.{part}+xml", xml)))
    assert sentences == [["a dog"], ["a dog"]] and "A DOG" in files["word/other.xml"]


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_in_a_paragraph(name: str) -> None:
    sentences, files, _ = read(docx(f"<w:p>{run('the')}{STAYS[name]}{run(' dog')}</w:p>"))
    tags = re.findall(r"<(w:\w+)", STAYS[name])
    assert sentences == [["the dog"]] and all(tag in files["word/document.xml"] for tag in tags)
    assert ("gone" in STAYS[name]) <= ("gone" in files["word/document.xml"])
    if name == "hidden text":  # it does not hide others
        xml = read(docx(f"<w:p>{run('a dog')}{STAYS[name]}</w:p>"))[1]["word/document.xml"]
        assert re.search(r"<w:r><w:t[^>]*>A DOG</w:t></w:r>", xml) and xml.count("vanish") == 1


COUNTED = {
    "comments": (f"{WORD}.comments+xml", f"<w:comments><w:comment>{P}</w:comment></w:comments>"),
    "texts in diagrams": (f"{DRAWN}.diagramData+xml", "<a:x><a:t>a dog</a:t></a:x>"),
    "texts in charts": (f"{DRAWN}.chart+xml", "<c:chart><a:t>a dog</a:t></c:chart>"),
    "document properties": (CORE, "<dc:x><dc:title>a dog</dc:title><dc:subject/></dc:x>"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted(name: str) -> None:
    _, files, note = read(docx(P, word_other=COUNTED[name]))
    assert note == f"; left in the source language: {name} (1)"
    assert "a dog" in files["word/other.xml"], "and stays as it is"
    assert any(COUNTED[name][0].endswith(ending) for ending in LEFT)


def test_all_that_is_counted_has_a_test() -> None:
    assert {what for what, _ in LEFT.values()} == COUNTED.keys() and len(DESCRIBED) == 2
    ruby = f"<w:p>{run('a dog')}<w:r><w:ruby>{run('x')}</w:ruby></w:r></w:p>"
    assert read(docx(ruby))[2] == "; left in the source language: words with ruby (1)"
    picture = "<w:p><w:r><w:drawing><wp:docPr descr='a dog' title='x'/></w:drawing></w:r></w:p>"
    assert read(docx(P + picture))[2] == "; left in the source language: alternative texts (2)"


BREAKS_OF_WORD = [tag for tag in BREAKS if tag.startswith(W)]
BREAK = [f"<w:{tag.removeprefix(W)}/>" for tag in BREAKS_OF_WORD] + ["<w:br w:type='page'/>"]


BROKEN = st.sampled_from(BREAK).map(lambda tag: f"<w:r>{tag}</w:r>")
WORDS = st.tuples(st.sampled_from(["a dog ", "The cat.", " runs"]), st.booleans()).map(
    lambda pair: run(pair[0], "<w:rPr><w:b/></w:rPr>" if pair[1] else "")
)
LINKED = BROKEN.map(lambda part: f"<w:hyperlink>{run('a')}{part}{run('b')}</w:hyperlink>")


@settings(max_examples=60, deadline=None)
@given(st.lists(BROKEN | WORDS | LINKED, min_size=1, max_size=6))
def test_breaks_end_sentences_and_stay_in_their_order(parts: list[str]) -> None:
    sentences, files, _ = read(docx(f"<w:p>{run('x y')}{''.join(parts)}</w:p>"))
    tags = rf"<(w:(?:{'|'.join(tag.removeprefix(W) for tag in BREAKS_OF_WORD)})\b[^>]*?)/?>"
    was = [tag.replace("'", '"') for tag in re.findall(tags, "".join(parts))]
    assert re.findall(tags, files["word/document.xml"]) == was
    for text in sentences[0]:
        assert "\n" not in text and "\t" not in text


@pytest.mark.parametrize("tag", [*BREAKS_OF_WORD, *HYPHENS])
@pytest.mark.parametrize("alone", [True, False])
def test_no_character_glues_words(tag: str, alone: bool) -> None:
    name = f"<w:{tag.removeprefix(W)}/>"
    between = f"</w:t></w:r><w:r>{name}</w:r><w:r><w:t>" if alone else f"</w:t>{name}<w:t>"
    [sentences], _, _ = read(docx(f"<w:p><w:r><w:t>The dog{between}The cat</w:t></w:r></w:p>"))
    hyphen = f"The dog{HYPHENS.get(tag)}The cat"
    assert sentences == ([hyphen] if tag in HYPHENS else ["The dog", "The cat"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (docx("", word_document=(MAIN, "<x:document xmlns:x='http://x.org/ooxml'/>")), "usual"),
        (docx("", word_document=(MAIN, "<w:document>")), "word/document.xml cannot be read as XML"),
        (docx("", word_document=("text/xml", "<w:document/>")), "of the usual kind"),
    ],
)
def test_other_archives_are_named(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(data)
