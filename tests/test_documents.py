"""Documents keep their structure; those that were made to harm end in a clear error."""

import codecs
import io
import re
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree as XML

import docx
import html5lib
import polib
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree
from typer.testing import CliRunner

from foveate.cli import app
from foveate.data.words import split_words
from foveate.documents import base
from foveate.documents import html as html_module
from foveate.documents.base import archive_of
from foveate.documents.formats import (
    BY_LINES,
    DocumentOptions,
    format_of,
    read_document,
)
from foveate.documents.html import check, html_passage, without_repeats
from foveate.documents.memory import (
    Glossary,
    PhraseIndex,
    TranslationMemory,
    holds,
    whole_words,
    without_appended,
)
from foveate.documents.spans import DocumentError
from foveate.documents.translate import LONGEST, Pair, Passage, joined_all, text_passage
from foveate.errors import ConfigError
from foveate.run import Run
from small_runs import invoked


# ---- Documents keep their structure; memories and glossaries are read; the verb does them all
def diagonal(pairs: Sequence[Pair]) -> list[list[tuple[int, int]]]:
    counts = [min(len(split_words(a)), len(split_words(b))) for a, b in pairs]
    return [[(i, i) for i in range(n)] for n in counts]


def shouted(kind: str, data: bytes | str, **choices: object) -> bytes:
    """A document whose translation is in capitals."""
    data = data.encode() if isinstance(data, str) else data
    document = read_document(kind, data, DocumentOptions(**choices))  # type: ignore[arg-type]
    answers = [[line.upper() for line in p.sentences] for p in document.passages]
    return document.written(joined_all(document.passages, answers, diagonal))


def docx_bytes(file: docx.document.Document) -> bytes:
    data = io.BytesIO()
    file.save(data)
    return data.getvalue()


def test_rows() -> None:
    assert shouted("tsv", "a dog\tx\r\n\r\nno tab") == b"a dog\tx\tA DOG\r\n\t\r\nno tab\tNO TAB"
    with pytest.raises(DocumentError, match="the input:2 is not UTF-8"):
        shouted("tsv", b"a\n\xff\n")


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("ab \t\r\n")))
def test_output_has_as_many_rows_as_input(text: str) -> None:
    assume("\n" in text or "\r" not in text.rstrip())  # lines that end in CR are refused
    result = shouted("tsv", text).decode()
    assert result.count("\n") == text.count("\n")
    assert len(shouted("text", text)) >= len(text.strip())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "B. ", "3", "{x}", "  ", "\t", "\n", "\r\n", "\r"])))
def test_a_text_by_lines_is_the_same_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    assume("\n" in text or "\r" not in text.rstrip())
    document = BY_LINES["text"](text.encode(), DocumentOptions(), "here")
    answers = [[line.upper() for line in p.sentences] for p in document.passages]
    done = document.written(joined_all(document.passages, answers, diagonal))
    assert done == shouted("text", text)
    assert len(document.passages) == len(re.findall(r"[^\n]*\n|[^\n]+\Z", text))


SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
a black dog
runs on the <i>beach</i>.

2
00:00:03,000 --> 00:00:04,000
- who?
- the man.

"""


def test_subtitles() -> None:
    result = shouted("srt", SUBTITLES).decode().splitlines()
    assert result[:2] == SUBTITLES.splitlines()[:2]
    assert (result[2][:11], "<i>" in result[3], "</i>" in result[3]) == ("A BLACK DOG", True, True)
    assert result[4:7] == ["", "2", "00:00:03,000 --> 00:00:04,000"]
    assert result[7:] == ["- WHO?", "- THE MAN.", ""]
    with pytest.raises(DocumentError, match="holds no subtitles"):
        shouted("srt", "a dog\n")
    for kind in ("srt", "tsv"):
        with pytest.raises(DocumentError, match="has CR line ends; convert it: tr"):
            shouted(kind, SUBTITLES.replace("\n", "\r"))
    for text in ("WEBVTT\n\na dog\n", "\ufeff[Script Info]\n"):
        with pytest.raises(DocumentError, match=r"another format: (give|convert)"):
            shouted("text", text)


CATALOGUE = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=n > 1;\n"

#. for the door
#, python-format
msgctxt "door"
msgid "%d dog runs.\n"
msgid_plural "%d dogs run.\n"
msgstr[0] ""
msgstr[1] ""

msgid "done"
msgstr "fait"

#~ msgid "old"
#~ msgstr ""
"""


def test_catalogues() -> None:
    result = polib.pofile(shouted("po", CATALOGUE).decode())
    assert result[0].msgstr_plural == {0: "%d DOG RUNS.\n", 1: "%d DOGS RUN.\n"}
    assert (result[0].comment, result[0].msgctxt) == ("for the door", "door")
    assert result[0].flags == ["fuzzy", "python-format"]
    assert result[1].msgstr == "fait"
    assert result[2].obsolete and result[2].msgstr == ""
    again = polib.pofile(shouted("po", CATALOGUE, again=True).decode())
    assert again[1].msgstr == "DONE"
    for bad in ("a dog", __file__):  # the name of a file is no catalogue and is not opened
        with pytest.raises(DocumentError, match="PO file"):
            shouted("po", bad)


UNITS = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en-US" segtype="sentence"/><body>
<tu tuid="1"><note>n</note><tuv xml:lang="en-US"><seg>a <hi x="1">black</hi> dog &amp; <ph
x="2">{b}</ph> cat</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="fr"><seg>deux</seg></tuv></tu>
</body></tmx>"""


@pytest.mark.parametrize(
    ("kind", "text", "done"),
    [
        ("text", "a dog. a cat.\n", "A DOG. A CAT.\n"),
        ("html", "<p>a dog</p>", "<p>A DOG</p>"),
        ("tsv", "a dog\n", "a dog\tA DOG\n"),
        (
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\nnow\n",
            "1\n00:00:01,000 --> 00:00:02,000\nNOW\n",
        ),
    ],
)
def test_a_byte_order_mark_is_no_text(kind: str, text: str, done: str) -> None:
    data = codecs.BOM_UTF8 + text.encode()
    document = read_document(kind, data, DocumentOptions())
    assert not any("\ufeff" in line for p in document.passages for line in p.sentences)
    assert shouted(kind, data) == codecs.BOM_UTF8 + done.encode()
    assert shouted(kind, text) == done.encode()
    if kind in BY_LINES:
        document = BY_LINES[kind](data, DocumentOptions(), "the input")
        assert not any("\ufeff" in line for p in document.passages for line in p.sentences)


def test_memories_get_a_variant() -> None:
    units = list(XML.fromstring(shouted("tmx", UNITS, to="fr")).iter("tu"))
    assert [len(unit.findall("tuv")) for unit in units] == [2, 2]
    segment = units[0].findall("tuv")[1].find("seg")
    assert segment is not None
    assert "".join(segment.itertext()) == "A BLACK DOG & {b} CAT"
    assert [child.tag for child in segment] == ["hi", "ph"]
    assert segment[0].text == "BLACK"
    with pytest.raises(ConfigError, match="name the one to add"):
        shouted("tmx", UNITS)
    head = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    declared = head + UNITS[UNITS.index("<tmx") :]
    assert '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx ' in shouted("tmx", declared, to="fr").decode()


def test_a_variant_without_text_is_no_translation(tmp_path: Path) -> None:
    path = tmp_path / "m.tmx"
    path.write_text(UNITS.replace("deux", " "), "utf-8")
    assert TranslationMemory.read(path, "fr").find("two") is None
    unit = list(etree.fromstring(shouted("tmx", path.read_bytes(), to="fr")).iter("tu"))[1]
    assert unit.xpath("tuv/seg/text()") == ["two", "TWO"]
    emptied = UNITS.replace("two", "").replace("deux", "")
    unit = list(etree.fromstring(shouted("tmx", emptied, to="fr")).iter("tu"))[1]
    assert [segment.text for segment in unit.iter("seg")] == [None, None]
    path = tmp_path / "m.tsv"
    path.write_text("a dog runs\t\n\tun chat\na cat\tun chat\n", "utf-8")
    assert TranslationMemory.read(path, least=1).pairs == {"a cat": "un chat"}


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE t [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><tmx>&b;</tmx>',
        '<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx>&a;</tmx>',
        "<tmx>",
        "",
    ],
)
def test_hostile_xml_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="cannot be read as XML"):
        shouted("tmx", text, to="fr")


def test_word_documents() -> None:
    file = docx.Document()
    file.add_heading("my dog", 1)
    paragraph = file.add_paragraph("a ")
    paragraph.add_run("black").bold = True
    paragraph.add_run(" dog runs\tand ")
    paragraph.add_run("jumps").italic = True
    paragraph.add_run(". see https://x.org {{n}}.")
    file.add_table(1, 1).cell(0, 0).text = "in a cell"
    file.sections[0].header.paragraphs[0].text = "at the top"
    file.add_paragraph("")
    result = docx.Document(io.BytesIO(shouted("docx", docx_bytes(file))))
    heading, body, empty = result.paragraphs
    assert (heading.text, heading.style and heading.style.name) == ("MY DOG", "Heading 1")
    assert "https://x.org {{n}}" in body.text and "\t" in body.text and empty.text == ""
    assert [run.text for run in body.runs if run.bold] == ["BLACK"]
    assert [run.text for run in body.runs if run.italic] == ["JUMPS"]
    assert result.tables[0].cell(0, 0).text == "IN A CELL"
    assert result.sections[0].header.paragraphs[0].text == "AT THE TOP"
    for bad in (b"", b"PK", packed({"x": b"y"})):
        with pytest.raises(DocumentError, match="is not a DOCX file"):
            shouted("docx", bad)


def test_words_in_other_elements_and_headers_of_other_pages() -> None:
    file = docx.Document()
    run = "<w:r><w:t>in here</w:t></w:r>"
    inner = [
        f"<w:ins w:id='1' w:author='a'>{run}</w:ins>",
        f"<w:sdt><w:sdtPr><w:id w:val='2'/></w:sdtPr><w:sdtContent>{run}</w:sdtContent></w:sdt>",
        f"<w:smartTag w:element='b'><w:smartTagPr/>{run}</w:smartTag>",
    ]
    for xml in inner:
        paragraph = file.add_paragraph("before ")
        paragraph._p.append(parse_xml(f"<w:p {nsdecls('w')}>{xml}</w:p>")[0])
        paragraph.add_run(" after.")
    section = file.sections[0]
    parts = "first_page_header", "first_page_footer", "even_page_header", "even_page_footer"
    for name in parts:
        getattr(section, name).paragraphs[0].text = "on some pages"
    result = docx.Document(io.BytesIO(shouted("docx", docx_bytes(file))))
    for paragraph, xml in zip(result.paragraphs, inner, strict=True):
        assert "".join(t.text for t in paragraph._p.iter(qn("w:t"))) == "BEFORE IN HERE AFTER."
        tags = re.findall(r"<(w:\w+)", xml)
        element = next(paragraph._p.iter(qn(tags[0])))
        assert [child.tag for child in element.iter()] == [qn(tag) for tag in tags]
        assert "IN HERE" in [t.text for t in element.iter(qn("w:t"))]
    for name in parts:
        assert getattr(result.sections[0], name).paragraphs[0].text == "ON SOME PAGES"


def test_formats_by_their_endings() -> None:
    assert format_of(Path("a.HTM")) == "html"
    assert format_of(Path("a.pot")) == "po"
    assert format_of(Path(), ".txt") == "text", "as the message of an unknown ending names it"
    assert (format_of(Path(), "txt"), format_of(Path(), "tsv")) == ("text", "tsv")
    with pytest.raises(ConfigError, match=r"a\.pdf: the extension shows no format"):
        format_of(Path("a.pdf"))
    with pytest.raises(ConfigError, match="no format 'doc'; there are: text, html, pdf"):
        shouted("doc", "")


def test_glossaries(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# ours\ndog\tchien|chiens\nHot dog\thot-dog\n\n", "utf-8")
    terms = Glossary.read(path)
    assert terms.variants("A hot  dog, a Dog, a dog.") == [("hot-dog",), ("chien", "chiens")]
    assert terms.variants("hotdogs") == []
    unspaced = Glossary({"トム": ("Tom",), "死": ("die",), "GPU": ("GPU",), "a": ("b",)})
    assert unspaced.variants("彼はトムでGPUが死だa") == [("Tom",), ("GPU",), ("die",), ("b",)]
    assert unspaced.variants("GPUs は ab") == []
    assert holds("Les Chiens.", ("chien", "chiens")) and not holds("chienne", ("chien",))
    assert holds("彼はトムだ", ("トム",))
    path.write_text("\ufeffdog\tchien\n", "utf-8")
    assert list(Glossary.read(path).terms) == ["dog"]
    folded = Glossary({"Straße": ("street",), "İzmir": ("Izmir",)})
    assert folded.variants("Die Straße") == folded.variants("DIE STRASSE") == [("street",)]
    assert folded.variants("in İzmir") == [("Izmir",)] and folded.variants("Straßen") == []
    path.write_text("dog chien\n", "utf-8")
    with pytest.raises(ConfigError, match=r"terms.tsv:1 is not an entry"):
        Glossary.read(path)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab_-é死ト ", min_size=1, max_size=4), max_size=8),
    st.text("abAB_-éÉ死ト. \n", max_size=25),
)
def test_phrases_are_found_as_their_pattern_says(phrases: list[str], text: str) -> None:
    text = " ".join(text.casefold().split())
    wanted = sorted({" ".join(p.split()) for p in phrases if p.strip()}, key=len, reverse=True)
    expected, place = [], 0
    while place < len(text):
        matches = (re.compile(whole_words([phrase])).match(text, place) for phrase in wanted)
        match = next(filter(None, matches), None)
        expected += [] if match is None else [match.group()]
        place = max(place + 1, 0 if match is None else match.end())
    assert list(PhraseIndex(phrases).terms_in(text)) == expected
    together = re.compile(whole_words(wanted)) if wanted else re.compile("(?!)")
    assert (together.search(text) is None) == (not expected)


def test_terms_cost_their_text_and_not_their_number() -> None:
    """A term once compiled two look-arounds over 65,536 characters for each of its variants."""
    terms = {f"w{n} x{n % 50}": tuple(f"v{n} {k}" for k in range(9)) for n in range(20_000)}
    line = " ".join(f"w{n} x{n % 50}" for n in range(2_000))
    soon(lambda: [holds(line, variants) for variants in Glossary(terms).variants(line)])
    soon(lambda: re.compile(whole_words(list(terms)[:1000])).search("w7 x7 死 é"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dog\t" + "|".join(map(str, range(101))), "terms.tsv:2 has 101 variants: a term has at"),
        ("dog\t" + "x" * 257, "terms.tsv:2 has a term or variant of 257 characters: at most 256"),
        ("d" * 257 + "\tx", "terms.tsv:2 has a term or variant of 257 characters: at most 256"),
        ("dog", "terms.tsv:2 is not an entry"),
        ("\tchien", "terms.tsv:2 is not an entry"),
    ],
)
def test_entries_that_cannot_be_used_are_named_by_their_line(tmp_path, line, message) -> None:
    (tmp_path / "terms.tsv").write_text(f"a\x85b\tc\u2028d\x0c\r\n{line}\n", "utf-8")
    with pytest.raises(ConfigError, match=message):
        Glossary.read(tmp_path / "terms.tsv")


ODD = "\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e\r"  # at which str.splitlines splits, beside LF


@pytest.mark.parametrize("odd", ODD)
def test_only_line_feeds_end_lines(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(f"a{odd}b\tc{odd}d\r\ne\tf".encode())
    assert list(Glossary.read(path).terms) == [" ".join(f"a{odd}b".split()), "e"]
    assert len(TranslationMemory.read(path).pairs) == 2
    for kind in ("tsv", "srt", "text"):
        text = f"1\n{TIMES}a{odd}b\r\nc\n" if kind == "srt" else f"a{odd}b\r\nc\n"
        result = shouted(kind, text).decode()
        assert result.count("\n") == text.count("\n") and result.count(odd) >= text.count(odd)


@pytest.mark.parametrize(
    ("source", "text", "result"),
    [
        ("The cat sleeps.", "Le chat dort. minet", "Le chat dort."),
        ("The cat sleeps.", "« Le chat dort. » Minet, minet.", "« Le chat dort. »"),
        ("The cat sleeps.", "Le chat dort. Un minet", "Le chat dort. Un minet"),
        ("The cat sleeps.", "Le minet dort.", "Le minet dort."),
        ("Come in. Cat", "Entre. Minet", "Entre. Minet"),
        ("Come in. The cat", "Entre. Le chat! gros minet", "Entre. Le chat!"),
        ("A cat", "Un chat… minet", "Un chat…"),
    ],
)
def test_terms_behind_the_last_sentence_are_missing(source, text, result) -> None:
    terms = [("minet", "minets"), ("gros",)]
    assert without_appended(text, source, terms) == result
    assert holds(result, terms[0]) == ("minet" in result.lower())


def test_memories(tmp_path: Path) -> None:
    path = tmp_path / "m.tsv"
    path.write_text("the dog runs\tle chien\n", "utf-8")
    exact, near = TranslationMemory.read(path), TranslationMemory.read(path, least=80)
    assert exact.find(" the  dog runs") == ("le chien", 100.0)
    assert exact.find("the dogs runs") is None and exact.find("") is None
    result = near.find("the dogs runs")
    assert result is not None and 80 < result.score < 100
    assert near.find("something else altogether") is None
    lines = "the dog has 3 legs\tle chien a 3 pattes\nso has {x} 4\tainsi {x} 4\n"
    path.write_text(lines, "utf-8")
    near = TranslationMemory.read(path, least=60)
    assert near.find("the dog has 4 legs") is None, "another number is another translation"
    assert near.find("the cat has 3 legs") and near.find("so have {x} 4")
    assert near.find("so has {y} 4") is None
    path.write_text("\ufeffa dog\tun chien\n", "utf-8")
    assert TranslationMemory.read(path).pairs == {"a dog": "un chien"}
    path = tmp_path / "m.tmx"
    path.write_text(UNITS, "utf-8")
    assert TranslationMemory.read(path, "fr").find("two") == ("deux", 100.0)
    assert TranslationMemory.read(path, "de").find("two") is None
    assert TranslationMemory.read(path).find("two") == ("deux", 100.0)
    assert TranslationMemory.read(path, "en-GB").find("deux") == ("two", 100.0)
    path.write_text(UNITS.replace("two", "a <ph>{b}</ph> dog").replace("deux", "un chien"), "utf-8")
    assert TranslationMemory.read(path, "fr").pairs == {"a dog": "un chien"}


@pytest.fixture(scope="module")
def folder(longer_run: Run) -> Path:
    return longer_run.path


def test_the_verb(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<p>the <b>dog</b> runs. https://x.org</p>", "utf-8")
    verb = ["translate", str(folder)]
    done = invoked(*verb, "--in", page, "--out", tmp_path / "b.html")
    result = (tmp_path / "b.html").read_text("utf-8")
    assert result.startswith("<p>") and "https://x.org</p>" in result and result.count("<b>") == 1
    assert "1 sentence translated" in done.stderr
    (tmp_path / "m.tsv").write_text("a cat sleeps\tdepuis la mémoire\n", "utf-8")
    (tmp_path / "g.tsv").write_text("dog\tchat\n", "utf-8")
    memory = ["--memory", str(tmp_path / "m.tsv"), "--glossary", str(tmp_path / "g.tsv")]
    done = CliRunner().invoke(app, [*verb, *memory], input="the dog runs\n\na cat sleeps\n")
    lines = done.stdout.split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[2] == "depuis la mémoire"
    assert holds(lines[0], ("chat",))
    assert "1 from the memory" in done.stderr and "1 of 1 terms present" in done.stderr
    done = CliRunner().invoke(app, [*verb, *memory, "--in", str(page)])
    assert holds(done.stdout, ("chat",)) and "1 of 1 terms present" in done.stderr


def test_a_memory_is_filled_by_a_run_that_says_its_languages(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "en-fr")
    (tmp_path / "a.tmx").write_text(UNITS, "utf-8")
    done = invoked("translate", tmp_path / "en-fr", "--in", tmp_path / "a.tmx")
    units = list(XML.fromstring(done.stdout).iter("tu"))
    assert [len(unit.findall("tuv")) for unit in units] == [2, 2]


# ---- Documents that were made to harm end in a clear error or a correct document, and soon
SIZE = 10_000  # characters; where time is quadratic they take minutes
SOON = 5.0  # seconds of processor time


TEXTS = {
    "a word": "a" * SIZE,
    "points": "x " + "." * SIZE,
    "zeros": "x %" + "0" * SIZE + "q",
    "numbers": "x " + "1 " * (SIZE // 2),
    "tags": "x " + "<b> " * (SIZE // 4),
    "mails": "x " + "a." * (SIZE // 2),
    "sentences": "A. " * (SIZE // 3),
    "addresses": "x " + "http://a.b " * (SIZE // 11),
    "blanks": "x" + " " * SIZE + "x",
}
GROWING: dict[str, Callable[[int], str]] = {  # pages whose time the parser multiplies by itself
    "attributes": lambda n: "<p " + " ".join(f"a{i}=x" for i in range(n)) + ">x</p>",
    "attributes behind a quoted >": lambda n: "<p q='>' " + " ".join(map("a{}".format, range(n))),
    "options": lambda n: "<select>" + "<option>x" * n,
    "groups": lambda n: "<select>" + "<optgroup><option>x" * n,
    "attributes of the body": lambda n: "".join(f"<body a{i}=x>" for i in range(n)),
}
PAGES = {
    "elements": "<p>" + "<b>a</b> " * (SIZE // 9),
    "sentences in elements": "<p>x " + "<b>A. b</b> " * (SIZE // 12),
    "one long element": "<p>x <b>" + "1 a. " * (SIZE // 5) + "</b> y",
    "pictures": "<p>x " + "<img>" * (SIZE // 5) + " y",
    "elements that stay open": "<p>" + "".join(f"<b a={i}>" for i in range(900)) + "</p><p>x" * 900,
}


def soon(work: Callable[[], object]) -> None:
    began = time.process_time()
    work()
    assert time.process_time() - began < SOON


def back(passage: Passage) -> str:
    return passage.joined(passage.sentences, diagonal)


@pytest.mark.parametrize("name", TEXTS)
def test_texts_take_time_linear_in_their_length(name: str) -> None:
    def work() -> None:
        passage = text_passage(TEXTS[name])
        assert all(len(sentence) <= 2 * LONGEST for sentence in passage.sentences)
        assert "".join(back(passage).split()) == "".join(TEXTS[name].split())

    soon(work)


@pytest.mark.parametrize("name", PAGES)
def test_pages_take_time_linear_in_their_length(name: str) -> None:
    soon(lambda: back(html_passage(PAGES[name])))


@pytest.mark.parametrize("name", GROWING)
def test_twice_the_page_takes_twice_the_time_or_is_refused(name: str) -> None:
    seconds = []
    for size in (64, 50_000, 100_000):
        began = time.process_time()
        try:
            back(html_passage(GROWING[name](size)))
        except DocumentError as error:
            assert size > 64 and "more than" in str(error)
        seconds.append(time.process_time() - began)
    assert seconds[2] < max(3 * seconds[1], 1.0)  # four times, and minutes


def test_a_long_sentence_is_cut_at_white_space_and_nothing_is_lost() -> None:
    text = "a dog " * 1000
    passage = text_passage(text)
    assert len(passage.sentences) > 1
    assert all(len(sentence) <= LONGEST for sentence in passage.sentences)
    assert back(passage) == text


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * SIZE,
        "<ul><li>" * SIZE,
        "<div><object></div></object>" * SIZE,
        "<div><textarea></div></textarea>" * SIZE,
        "<div><!--</div>-->" * SIZE,
        "<svg><div>" + "<path/>" * SIZE,
        "<DIV\n>" * SIZE,
    ],
)
def test_what_is_too_deep_is_refused_before_it_is_read(html: str) -> None:
    def work() -> None:
        with pytest.raises(DocumentError, match=r"line \d+ of the HTML is in more than 2,000"):
            html_passage(html)

    soon(work)


def test_what_is_no_element_stays_in_the_one_that_it_is_in() -> None:
    html = "<p>A <b>black <?x ?> dog</b> runs.</p><?x ?>"
    assert back(html_passage(html)) == html


def test_what_is_deep_but_closed_or_closes_itself_is_read() -> None:
    html = "<div>" * 1500 + "<b>a dog</b>" + "</div>" * 1500
    assert back(html_passage(html)) == html
    closed = ("<p>a", "<li>a", "<br>", "<div><b>a</b></div>", "<svg><path/></svg>", "<!--<i>-->")
    for fine in closed:
        check(fine * 3000)
    with pytest.raises(DocumentError, match="more than 1,000,000 tags"):
        check("<" * 1_000_001)


def test_elements_without_repeats_read_the_same(monkeypatch) -> None:
    html = '<p>A <b class="x">dog <i>\ue000 runs</i></b>, <code><u>z</u></code>.</p>' * 200
    marked, mark = without_repeats(html)
    assert mark == "\ue000\ue000" and mark in marked
    result = back(html_passage(html))
    html5lib.HTMLParser(strict=True).parseFragment(result)
    monkeypatch.setattr(html_module, "REPEATED", 10**9)
    assert back(html_passage(html)) == result and without_repeats(html) == (html, "")


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()


@pytest.fixture(scope="module")
def document() -> bytes:
    file = docx.Document()
    file.add_paragraph("a dog")
    return docx_bytes(file)


def lying(document: bytes) -> bytes:
    """An archive whose picture says that it has one byte, and has 60 MiB; its sum is right."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = bytes(2**20)
    stream = b"".join(packer.compress(chunk) for _ in range(60)) + packer.flush()
    data = bytearray(packed(members(document) | {"word/media/x.png": b"\0" * 10_000}))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as file:
        info = file.getinfo("word/media/x.png")
        start = info.header_offset + 30 + len(info.filename)
        end = start + info.compress_size
        central = data.index(b"PK\1\2")
    output = struct.pack("<III", zlib.crc32(b"\0"), len(stream), 1)
    grown = len(stream) - info.compress_size
    place = data.index(b"word/media/x.png", central) - 46
    struct.pack_into("<12s", data, info.header_offset + 14, output)
    struct.pack_into("<12s", data, place + 16, output)
    directory = data.rindex(b"PK\5\6")
    struct.pack_into("<I", data, directory + 16, central + grown)
    return bytes(data[:start]) + stream + bytes(data[end:])


def test_what_an_archive_says_of_its_sizes_is_not_believed(document: bytes) -> None:
    bomb = lying(document)
    with zipfile.ZipFile(io.BytesIO(bomb)) as file:
        assert file.getinfo("word/media/x.png").file_size == 1

    def work() -> None:
        result = archive_of(bomb, "DOCX", "a.docx")
        assert result["word/media/x.png"] == b"\0" and len(result) == len(members(document)) + 1

    soon(work)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"word/media/a.png": bytes(3 * 2**20)}, "holds more than 2 MiB, unpacked"),
        ({f"x/{n}": b"" for n in range(5001)}, "holds more than 5,000 files"),
        ({"word/a.xml": b"<a>" + bytes(2**20)}, "more than 1 MiB of XML"),
        ({"word/a.xml": b"<a/>" * 90_001}, "more than 90,000 elements"),
    ],
)
def test_archives_that_swell_are_refused(document, more, message, monkeypatch) -> None:
    for name, most in {"UNPACKED": 2 * 2**20, "XML_BYTES": 2**20, "MARKS": 90_000}.items():
        monkeypatch.setattr(base, name, most)
    assert archive_of(document, "DOCX", "a.docx")
    bomb = packed(members(document) | more)
    with pytest.raises(DocumentError, match=message):
        shouted("docx", bomb)


def test_an_archive_in_an_archive_stays_as_it_is(document: bytes) -> None:
    inner = packed({"x": bytes(2**20)})
    files = members(document)
    types = files["[Content_Types].xml"].replace(
        b"<Override", b'<Default Extension="zip" ContentType="application/zip"/><Override', 1
    )
    rel = b'<Relationship Id="rZ" Type="http://x/package" Target="embeddings/a.zip"/></Rel'
    rels = files["word/_rels/document.xml.rels"].replace(b"</Rel", rel, 1)
    files |= {"[Content_Types].xml": types, "word/_rels/document.xml.rels": rels}
    result = members(shouted("docx", packed(files | {"word/embeddings/a.zip": inner})))
    assert result["word/embeddings/a.zip"] == inner


@pytest.mark.parametrize(
    ("dtd", "body"),
    [
        ('<!ENTITY a "aa"><!ENTITY b "&a;&a;">', "&b;"),
        ('<!ENTITY a SYSTEM "file:///etc/passwd">', "&a;"),
        ("", "a"),
    ],
)
def test_word_documents_may_not_declare_entities(document: bytes, dtd: str, body: str) -> None:
    files = members(document)
    text = files["word/document.xml"].decode().replace("a dog", body)
    head, _, rest = text.partition("?>")
    text = f"{head}?><!DOCTYPE w:document [{dtd}]>{rest}"
    for encoded in (text.encode(), text.replace("UTF-8", "UTF-16").encode("utf-16")):
        with pytest.raises(DocumentError, match="it declares its own entities"):
            shouted("docx", packed(files | {"word/document.xml": encoded}))


def test_formatting_that_would_be_copied_for_ever_is_refused(document: bytes) -> None:
    files = members(document)
    run = b'<w:r><w:rPr><w:rStyle w:val="' + b"x" * 10_000 + b'"/></w:rPr>'
    text = files["word/document.xml"].replace(b"<w:r>", run + b"<w:br/>" * 1000)
    with pytest.raises(DocumentError, match="formatting of some words is too large"):
        shouted("docx", packed(files | {"word/document.xml": text}))


@pytest.mark.parametrize("cut", [10, 1000, -30])
def test_broken_archives_are_named(document: bytes, cut: int) -> None:
    broken = bytearray(document)
    broken[200:220] = bytes(20)
    odd = packed(members(document), zipfile.ZIP_BZIP2)
    for bad in (document[:cut], bytes(broken), odd):
        with pytest.raises(DocumentError, match="the input"):
            shouted("docx", bad)


HEAD = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=%s; plural=0;\\n"\n\n'
DOGS = 'msgid "a dog"\nmsgid_plural "dogs"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD % 2 + DOGS + 'msgstr[0] ""\nmsgstr[7] ""\n',
            r"the input:5 has msgstr\[0\], msgstr\[7\]",
        ),
        (HEAD % 1 + DOGS + 'msgstr[0] ""\nmsgstr[1] ""\n', r"should be msgstr\[0\] to msgstr\[0\]"),
        (HEAD % 2 + DOGS + 'msgstr[12] ""\n', r"the input:5 has msgstr\[12\]"),
        (HEAD % 2 + DOGS + 'msgstr ""\n', "the input:5 has msgstr: its forms should be msgstr"),
        (HEAD % 2 + 'msgid "a"\nmsgstr[0] ""\n', r"the input:5 has msgstr\[0\]"),
        (HEAD % 2 + 'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "the input:5 is a message without"),
        (HEAD % 2 + 'msgid "a"\n', "the input:5 is a message without msgid or msgstr"),
        (HEAD % 2 + 'msgid "a"\nmsgstr ""\nmsgstr ""\n', "the input:7 is not a line of a PO"),
        (HEAD % 2 + DOGS + 'msgstr[x] ""\n', "the input:7 is not a line of a PO file"),
        (HEAD % 999 + DOGS + 'msgstr[0] ""\n', "nplurals=999 in Plural-Forms: there are 1 to 9"),
        (HEAD % 2 + 'msgid "a dog\nmsgstr ""\n', "the input:5 is not a line of a PO file"),
        (
            HEAD % 2 + 'msgid_plural "dogs"\nmsgstr[0] ""\n',
            "the input:5 is not a line of a PO file",
        ),
        ("\0" * 99, "the input:1 is not a line of a PO file"),
    ],
)
def test_broken_plural_forms_are_named(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        shouted("po", text)


@pytest.mark.parametrize(("count", "forms"), [(1, "2"), (2, "12"), (3, "122"), ("INTEGER", "2")])
def test_there_are_as_many_plural_forms_as_the_header_says(count: object, forms: str) -> None:
    text = ("\ufeff" + HEAD % count + DOGS + 'msgstr[0] ""\n').replace("\n", "\r\n")
    result = shouted("po", text).decode()
    expected = {n: "A DOG" if form == "1" else "DOGS" for n, form in enumerate(forms)}
    assert polib.pofile(result.removeprefix("\ufeff"))[0].msgstr_plural == expected
    assert result.startswith("\ufeff") and result.count("\n") == result.count("\r\n")
    assert shouted("po", " \n") == b" \n"


TIMES = "00:00:01,000 --> 00:00:02,000\n"


@pytest.mark.parametrize(
    "times",
    [
        "-00:00:01,000 --> 00:00:02,000",
        "00:01,000 --> 00:02,000",
        "00:00:01 --> 00:00:02",
        "00:00:0x,000 --> 00:00:02,000",
        "00:00:01,000 -> 00:00:02,000",
    ],
)
def test_times_that_cannot_be_read_are_named(times: str) -> None:
    with pytest.raises(DocumentError, match="the input:6 holds times that cannot be read"):
        shouted("srt", f"1\n{TIMES}a dog\n\n2\n{times}\na cat\n")


@pytest.mark.parametrize(
    "said", ["The train at 10:30 -> 11:00 is late.", "10:30 -> 11:00", "1:2->"]
)
@pytest.mark.parametrize("before", ["", "a dog\n", "5\n", "\n"])
def test_a_time_in_a_dialogue_is_text(said: str, before: str) -> None:
    if before == "\n" and said[0] != "T":
        return  # behind an empty line it may be a line of times
    text = f"1\n{TIMES}{before}{said}\n\n2\n{TIMES}a cat\n"
    result = shouted("srt", text).decode()
    assert result.endswith(f"\n\n2\n{TIMES}A CAT\n") and result.count("->") == 3


def test_no_line_of_a_subtitle_is_left_out() -> None:
    text = f"\ufeff1\n{TIMES}a dog\n\nruns\n2\n{TIMES}a cat -> b\n\n"
    assert shouted("srt", text).decode() == text.replace("a dog", "A DOG").replace(
        "runs", "RUNS"
    ).replace("a cat -> b", "A CAT -> B")


UNIT = (
    '<tmx><header srclang="en"/><body><tu><tuv xml:lang="{}"><seg>{}</seg></tuv></tu></body></tmx>'
)


def test_memories_with_plain_segments_and_comments() -> None:
    """An element without children is false in Python: such segments were once left out."""
    result = shouted("tmx", UNIT.format("en", "a <!-- c -->dog"), to="fr").decode()
    assert "<!-- c -->" in result
    [_, variant] = XML.fromstring(result).iter("tuv")
    assert "".join(variant.itertext()).split() == ["A", "DOG"]


def test_memories_in_another_language_are_left() -> None:
    text = UNIT.format("de-AT", "ein Hund")
    assert b"EIN HUND" in shouted("tmx", text, to="fr")
    assert b"EIN HUND" not in shouted("tmx", text, to="fr", source="en")
    assert b"EIN HUND" in shouted("tmx", text, to="fr", source="de")


@pytest.mark.parametrize(
    "tag", ["en", "EN", "en-US", "en_US", "EN_us", "en-Latn-GB", "en_GB.UTF-8"]
)
def test_languages_are_the_same_in_each_form_of_their_tags(tag: str, tmp_path: Path) -> None:
    unit = UNIT.format(tag, "a dog").replace('srclang="en"', f'srclang="{tag}"')
    assert b"A DOG" in shouted("tmx", unit, to="fr_CA", source="en")
    assert b"A DOG" in shouted("tmx", unit, to="fr", source="en_AU")
    assert b"A DOG" not in shouted("tmx", unit, to="en-NZ")
    path = tmp_path / "m.tmx"
    path.write_text(UNITS.replace("en-US", tag).replace('"fr"', '"FR_fr"'), "utf-8")
    assert TranslationMemory.read(path, "fr", source="en").find("two") == ("deux", 100.0)


def test_memories_that_are_too_deep_are_refused() -> None:
    for depth in (256, 100_000):
        deep = "<hi>" * depth + "a dog" + "</hi>" * depth
        with pytest.raises(DocumentError, match="Excessive depth"):
            shouted("tmx", UNIT.format("en", deep), to="fr")
    fine = "<hi>" * 200 + "a dog" + "</hi>" * 200
    assert shouted("tmx", UNIT.format("en", fine), to="fr").count(b"<hi>") == 400


@pytest.mark.parametrize("kind", ["text", "html", "tsv", "srt", "po"])
def test_bytes_that_are_no_text_are_named_by_their_line(kind: str) -> None:
    with pytest.raises(DocumentError, match="the input:2 is not UTF-8"):
        shouted(kind, b"a\n\xff\xfe b\n")
