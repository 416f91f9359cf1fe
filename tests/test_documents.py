"""Documents keep their structure; those that were made to harm end in a clear error."""

import codecs
import io
import re
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as XML

import docx
import html5lib
import polib
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree

from document_tools import answered, diagonal, members, opened, packed, saved, shouted
from foveate.documents import base
from foveate.documents import html as html_module
from foveate.documents.base import archive_of
from foveate.documents.formats import BY_LINES, DocumentOptions, format_of
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
from foveate.documents.translate import LONGEST, Passage, joined_all, text_passage
from foveate.errors import ConfigError
from foveate.run import Run
from small_runs import invoked
from test_odt import odt
from test_pptx import slides


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("ab \t\r\n")))
def test_output_has_as_many_rows_as_input(text: str) -> None:
    assume("\n" in text or "\r" not in text.rstrip())  # lines that end in CR are refused
    result = shouted("tsv", text).decode()
    assert result.count("\n") == text.count("\n")
    assert len(shouted("text", text)) >= len(text.strip())
    assert shouted("tsv", "a dog\tx\r\n\r\nno tab") == b"a dog\tx\tA DOG\r\n\t\r\nno tab\tNO TAB"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "B. ", "3", "{x}", "  ", "\t", "\n", "\r\n", "\r"])))
def test_a_text_by_lines_is_the_same_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    assume("\n" in text or "\r" not in text.rstrip())
    document = BY_LINES["text"](text.encode(), DocumentOptions(), "here")
    assert answered(document) == shouted("text", text)
    assert len(document.passages) == len(re.findall(r"[^\n]*\n|[^\n]+\Z", text))


TIMES = "00:00:01,000 --> 00:00:02,000\n"
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
    text = f"\ufeff1\n{TIMES}a dog\n\nruns\n2\n{TIMES}a cat -> b\n\n"  # no line is left out
    expected = re.sub("a dog|runs|a cat -> b", lambda match: match[0].upper(), text)
    assert shouted("srt", text).decode() == expected


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
        ("srt", f"1\n{TIMES}now\n", f"1\n{TIMES}NOW\n"),
    ],
)
def test_a_byte_order_mark_is_no_text(kind: str, text: str, done: str) -> None:
    data = codecs.BOM_UTF8 + text.encode()
    assert shouted(kind, data) == codecs.BOM_UTF8 + done.encode()
    assert shouted(kind, text) == done.encode()
    documents = [opened(kind, data)]
    documents += [BY_LINES[kind](data, DocumentOptions(), "here")] if kind in BY_LINES else []
    lines = [line for d in documents for p in d.passages for line in p.sentences]
    assert lines and not any("\ufeff" in line for line in lines)


def test_a_memory_keeps_its_document_type_and_its_translations() -> None:
    head = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    done = shouted("tmx", head + UNITS[UNITS.index("<tmx") :], to="fr").decode()
    assert done.startswith(f"{head}<tmx ") and "<seg>deux</seg>" in done


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


def test_word_documents() -> None:
    file = docx.Document()
    file.add_heading("my dog", 1)
    paragraph = file.add_paragraph("a ")
    paragraph.add_run("black").bold = True
    paragraph.add_run(" dog runs\tand ")
    paragraph.add_run("jumps").italic = True
    paragraph.add_run(". see https://x.org {{n}}.")
    file.sections[0].header.paragraphs[0].text = "at the top"
    result = docx.Document(io.BytesIO(shouted("docx", saved(file))))
    heading, body = result.paragraphs
    assert (heading.text, heading.style.name) == ("MY DOG", "Heading 1")
    assert "https://x.org {{n}}" in body.text and "\t" in body.text
    assert [run.text for run in body.runs if run.bold] == ["BLACK"]
    assert [run.text for run in body.runs if run.italic] == ["JUMPS"]
    assert result.sections[0].header.paragraphs[0].text == "AT THE TOP"


def test_formats_by_their_endings() -> None:
    for path, name, kind in (
        ("a.HTM", None, "html"), ("a.pot", None, "po"), ("", "txt", "text"), ("", "tsv", "tsv"),
        ("a.ODT", None, "odt"), ("08RUT.SFM", None, "usfm"), ("a.PPTX", None, "pptx"),
        ("", ".txt", "text"),  # as the message of an unknown ending names it
    ):  # fmt: skip
        assert format_of(Path(path), name) == kind
    with pytest.raises(ConfigError, match=r"a\.doc: the extension shows no format"):
        format_of(Path("a.doc"))


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
    if not re.search("死|ト", "".join(phrases)):
        assert together.findall(text) == expected


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

    def memory(text: str, least: float = 100) -> TranslationMemory:
        path.write_text(text, "utf-8")
        return TranslationMemory.read(path, least=least)

    exact = memory("the dog runs\tle chien\n")
    assert exact.find(" the  dog runs") == ("le chien", 100.0)
    assert exact.find("the dogs runs") is None and exact.find("") is None
    near = memory("the dog runs\tle chien\n", 80)
    assert 80 < near.find("the dogs runs").score < 100
    assert near.find("something else altogether") is None
    near = memory("the dog has 3 legs\tle chien a 3 pattes\nso has {x} 4\tainsi {x} 4\n", 60)
    assert near.find("the dog has 4 legs") is None, "another number is another translation"
    assert near.find("the cat has 3 legs") and near.find("so have {x} 4")
    assert near.find("so has {y} 4") is None
    assert memory("\ufeffa dog\tun chien\n").pairs == {"a dog": "un chien"}
    path = tmp_path / "m.tmx"
    path.write_text(UNITS, "utf-8")
    for to, found in (("fr", ("deux", 100.0)), ("de", None), (None, ("deux", 100.0))):
        assert TranslationMemory.read(path, to).find("two") == found
    assert TranslationMemory.read(path, "en-GB").find("deux") == ("two", 100.0)
    path.write_text(UNITS.replace("two", "a <ph>{b}</ph> dog").replace("deux", "un chien"), "utf-8")
    assert TranslationMemory.read(path, "fr").pairs == {"a dog": "un chien"}


@pytest.fixture(scope="module")
def folder(longer_run: Run) -> Path:
    return longer_run.path


def test_the_verb(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<p>the <b>dog</b> runs. https://x.org</p>", "utf-8")
    done = invoked("translate", folder, "--in", page, "--out", tmp_path / "b.html")
    result = (tmp_path / "b.html").read_text("utf-8")
    assert result.startswith("<p>") and "https://x.org</p>" in result and result.count("<b>") == 1
    assert "1 sentence translated" in done.stderr
    (tmp_path / "m.tsv").write_text("a cat sleeps\tdepuis la mémoire\n", "utf-8")
    (tmp_path / "g.tsv").write_text("dog\tchat\n", "utf-8")
    verb = ["translate", folder, "--memory", tmp_path / "m.tsv", "--glossary", tmp_path / "g.tsv"]
    done = invoked(*verb, text="the dog runs\n\na cat sleeps\n")
    first, *others = done.stdout.split("\n")
    assert holds(first, ("chat",)) and others == ["", "depuis la mémoire", ""]
    assert "1 from the memory" in done.stderr and "1 of 1 terms present" in done.stderr
    done = invoked(*verb, "--in", page)
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
    return joined_all([passage], [passage.sentences], diagonal)[0]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_take_time_linear_in_their_length(name: str) -> None:
    def work() -> None:
        passage = text_passage(TEXTS[name])
        assert all(len(sentence) <= 2 * LONGEST for sentence in passage.sentences)
        assert "".join(back(passage).split()) == "".join(TEXTS[name].split())

    soon(work)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_pages_take_time_linear_in_their_length(page: str) -> None:
    soon(lambda: back(html_passage(page)))


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


def test_what_is_deep_but_closed_or_closes_itself_is_read() -> None:
    html = "<p>A <b>black <?x ?> dog</b> runs.</p><?x ?>"  # what is no element stays in its own
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


@pytest.fixture(scope="module")
def document() -> bytes:
    file = docx.Document()
    file.add_paragraph("a dog")
    return saved(file)


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
    inner = {"word/embeddings/a.zip": packed({"x": bytes(2**20)})}
    result = members(shouted("docx", packed(members(document) | inner)))
    assert inner.items() <= result.items()


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


def test_broken_archives_are_named(document: bytes) -> None:
    broken = document[:200] + bytes(20) + document[220:]
    odd = packed(members(document), zipfile.ZIP_BZIP2)
    for bad in (document[:10], document[:1000], document[:-30], broken, odd):
        with pytest.raises(DocumentError, match=r"a\.docx"):
            shouted("docx", bad)
    with pytest.raises(DocumentError, match="is not a DOCX file"):
        shouted("docx", packed({"x": b"y"}))


HEAD = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=%s; plural=0;\\n"\n\n'
DOGS = 'msgid "a dog"\nmsgid_plural "dogs"\n'
CR, OTHER = "has CR line ends; convert it: tr", r"another format: (give|convert)"
ENTITIES = '<!DOCTYPE t [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><tmx>&b;</tmx>'
OUTSIDE = '<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx>&a;</tmx>'
NO_LINE = "is not a line of a PO"
ENCODED = ("text", "html", "tsv", "srt", "po")
NO_TIMES = [("00:", "-00:", 1), ("00:00:", "00:"), (",000", ""), ("1,", "x,"), ("-->", "->")]
TWO = f"1\n{TIMES}a dog\n\n2\n%sa cat\n"
REFUSED: list[tuple[str, str | bytes, str]] = [
    *((kind, b"a\n\xff b\n", f"a.{kind}:2 is not UTF-8") for kind in ENCODED),
    *(("srt", TWO % TIMES.replace(*no), "a.srt:6 holds times that") for no in NO_TIMES),
    ("doc", "", "no format 'doc'; there are: text, html, pdf"),
    ("srt", "a dog\n", "holds no subtitles"),
    *((kind, SUBTITLES.replace("\n", "\r"), CR) for kind in ("srt", "tsv")),
    *(("text", text, OTHER) for text in ("WEBVTT\n\na dog\n", "\ufeff[Script Info]\n")),
    ("tmx", UNITS, "name the one to add"),
    *(("tmx", text, "cannot be read as XML") for text in (ENTITIES, OUTSIDE, "<tmx>", "")),
    *(("po", text, "PO file") for text in ("a dog", __file__)),  # which is not opened
    ("po", HEAD % 2 + DOGS + 'msgstr[0] ""\nmsgstr[7] ""\n', r":5 has msgstr\[0\], msgstr\[7\]"),
    ("po", HEAD % 1 + DOGS + 'msgstr[0] ""\nmsgstr[1] ""\n', r"be msgstr\[0\] to msgstr\[0\]"),
    ("po", HEAD % 2 + DOGS + 'msgstr[12] ""\n', r"a.po:5 has msgstr\[12\]"),
    ("po", HEAD % 2 + DOGS + 'msgstr ""\n', "a.po:5 has msgstr: its forms should be msgstr"),
    ("po", HEAD % 2 + 'msgid "a"\nmsgstr[0] ""\n', r"a.po:5 has msgstr\[0\]"),
    ("po", HEAD % 2 + 'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "a.po:5 is a message without"),
    ("po", HEAD % 2 + 'msgid "a"\n', "a.po:5 is a message without msgid or msgstr"),
    ("po", HEAD % 2 + 'msgid "a"\nmsgstr ""\nmsgstr ""\n', f"a.po:7 {NO_LINE}"),
    ("po", HEAD % 2 + DOGS + 'msgstr[x] ""\n', f"a.po:7 {NO_LINE}"),
    ("po", HEAD % 999 + DOGS + 'msgstr[0] ""\n', "nplurals=999 in Plural-Forms: there are 1 to 9"),
    ("po", HEAD % 2 + 'msgid "a dog\nmsgstr ""\n', f"a.po:5 {NO_LINE}"),
    ("po", HEAD % 2 + 'msgid_plural "dogs"\nmsgstr[0] ""\n', f"a.po:5 {NO_LINE}"),
    ("po", "\0" * 99, f"a.po:1 {NO_LINE}"),
    ("usfm", "a text", r"a.usfm:1 is not USFM: it should begin with \\id"),
    ("usfm", "\\id RUT \ue000", r"a.usfm holds the private character U\+E000"),
    ("usfm", b"\\id RUT\n\\c 1\n\xff", "a.usfm:3 is not UTF-8"),
    ("odt", b"", "a.odt is not an ODT file: File is not a zip file"),
    ("odt", b"%PDF-1.7 x", "a.odt is not an ODT file: it is a PDF file; give it its own ending"),
    ("odt", odt(kind="application/vnd.oasis"), "a.odt .* the archive is application/vnd"),
    ("odt", odt(b"\x01\x02"), "a.odt: content.xml cannot be read as XML, or is encrypted"),
    ("odt", odt(ENTITIES.encode()), "a.odt.* it declares its own entities"),
    *((kind, odt(), "not a text: it is an archive or an office document") for kind in ENCODED),
    *(("docx", data, "a.docx is not a DOCX file") for data in (odt(), b"", b"PK", b"PK\3\4 cut")),
    ("docx", slides(), "a.docx is not a DOCX file of the usual kind: save"),
    ("pptx", saved(docx.Document()), "a.pptx is not a PPTX file of the usual kind: save"),
    ("pptx", b"PK\3\4 cut", "a.pptx is not a PPTX file"),
    ("epub", packed({"mimetype": "application/zip"}), "a.epub is not an EPUB file"),
]


@pytest.mark.parametrize(("kind", "text", "message"), REFUSED)
def test_what_is_no_document_of_its_kind_is_named_by_its_line(kind, text, message) -> None:
    with pytest.raises((ConfigError, DocumentError), match=message):
        shouted(kind, text, **{} if "add" in message else {"to": "fr"})


@pytest.mark.parametrize(("count", "forms"), [(1, "2"), (2, "12"), (3, "122"), ("INTEGER", "2")])
def test_there_are_as_many_plural_forms_as_the_header_says(count: object, forms: str) -> None:
    text = ("\ufeff" + HEAD % count + DOGS + 'msgstr[0] ""\n').replace("\n", "\r\n")
    result = shouted("po", text).decode()
    expected = {n: "A DOG" if form == "1" else "DOGS" for n, form in enumerate(forms)}
    assert polib.pofile(result.removeprefix("\ufeff"))[0].msgstr_plural == expected
    assert result.startswith("\ufeff") and result.count("\n") == result.count("\r\n")
    assert shouted("po", " \n") == b" \n"


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


UNIT = '<header srclang="en"/><body><tu><tuv xml:lang="{}"><seg>{}</seg></tuv></tu></body>'
UNIT = f"<tmx>{UNIT}</tmx>"


@pytest.mark.parametrize(
    "tag", ["en", "EN", "en-US", "en_US", "EN_us", "en-Latn-GB", "en_GB.UTF-8"]
)
def test_languages_are_the_same_in_each_form_of_their_tags(tag: str, tmp_path: Path) -> None:
    unit = UNIT.format(tag, "a dog").replace('srclang="en"', f'srclang="{tag}"')
    asked = {("fr_CA", "en"): True, ("fr", "en_AU"): True, ("en-NZ", None): False}
    asked |= {("fr", "de"): False, ("fr", None): True}  # another language is left as it is
    for (to, source), done in asked.items():
        assert (b"A DOG" in shouted("tmx", unit, to=to, source=source)) == done
    path = tmp_path / "m.tmx"
    path.write_text(UNITS.replace("en-US", tag).replace('"fr"', '"FR_fr"'), "utf-8")
    assert TranslationMemory.read(path, "fr", source="en").find("two") == ("deux", 100.0)


@pytest.mark.parametrize("depth", [200, 256, 100_000])
def test_memories_that_are_too_deep_are_refused(depth: int) -> None:
    unit = UNIT.format("en", "<hi>" * depth + "a dog" + "</hi>" * depth)
    if depth == 200:
        assert shouted("tmx", unit, to="fr").count(b"<hi>") == 400
    else:
        with pytest.raises(DocumentError, match="Excessive depth"):
            shouted("tmx", unit, to="fr")
