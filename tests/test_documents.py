"""Documents keep their structure; memories and glossaries are read; the verb does them all."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as XML

import docx
import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from foveate.cli import app
from foveate.data.words import split_words
from foveate.documents.formats import BY_LINES, DocumentOptions, format_of, read_document
from foveate.documents.memory import Glossary, TranslationMemory, holds
from foveate.documents.spans import DocumentError
from foveate.documents.translate import Pair, joined_all
from foveate.errors import ConfigError
from small_runs import made


def diagonal(pairs: Sequence[Pair]) -> list[list[tuple[int, int]]]:
    counts = [min(len(split_words(a)), len(split_words(b))) for a, b in pairs]
    return [[(i, i) for i in range(n)] for n in counts]


def shouted(kind: str, data: bytes | str, **choices: object) -> bytes:
    """A document whose translation is in capitals."""
    data = data.encode() if isinstance(data, str) else data
    document = read_document(kind, data, DocumentOptions(**choices))  # type: ignore[arg-type]
    answers = [[line.upper() for line in p.sentences] for p in document.passages]
    return document.written(joined_all(document.passages, answers, diagonal))


def test_rows() -> None:
    assert shouted("tsv", "a dog\tx\r\n\r\nno tab") == b"a dog\tx\tA DOG\r\n\t\r\nno tab\tNO TAB"
    text = '{"source": "a dog", "n": 1}\n\n{"source": "b", "target": "c"}\n'
    rows = shouted("jsonl", text).decode().split("\n")
    assert json.loads(rows[0]) == {"source": "a dog", "n": 1, "target": "A DOG"}
    assert rows[1:] == ["", '{"source": "b", "target": "c"}', ""]
    assert b'"target": "B"' in shouted("jsonl", text, again=True)
    with pytest.raises(DocumentError, match="the input:2 has no text"):
        shouted("jsonl", '{"source": ""}\n[]\n')
    with pytest.raises(DocumentError, match="the input:2 is not UTF-8"):
        shouted("tsv", b"a\n\xff\n")


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("ab \t\r\n")))
def test_as_many_rows_as_before(text: str) -> None:
    result = shouted("tsv", text).decode()
    assert len(result.splitlines()) == len(text.splitlines())
    assert len(shouted("text", text)) >= len(text.strip())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "B. ", "3", "{x}", "  ", "\t", "\n", "\r\n", "\r"])))
def test_a_text_by_lines_is_the_same_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    document = BY_LINES["text"](text.encode(), DocumentOptions(), "here")
    answers = [[line.upper() for line in p.sentences] for p in document.passages]
    assert document.written(joined_all(document.passages, answers, diagonal)) == shouted(
        "text", text
    )
    assert list(document.lines) == list(range(1, len(document.passages) + 1))


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
    assert (result[0].flags, result[0].comment, result[0].msgctxt) == (
        ["python-format"],
        "for the door",
        "door",
    )
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
    data = io.BytesIO()
    file.save(data)
    result = docx.Document(io.BytesIO(shouted("docx", data.getvalue())))
    heading, body, empty = result.paragraphs
    assert (heading.text, heading.style and heading.style.name) == ("MY DOG", "Heading 1")
    assert "https://x.org {{n}}" in body.text and "\t" in body.text and empty.text == ""
    assert [run.text for run in body.runs if run.bold] == ["BLACK"]
    assert [run.text for run in body.runs if run.italic] == ["JUMPS"]
    assert result.tables[0].cell(0, 0).text == "IN A CELL"
    assert result.sections[0].header.paragraphs[0].text == "AT THE TOP"
    for bad in (b"", b"PK", _zip()):
        with pytest.raises(DocumentError, match="is no DOCX file"):
            shouted("docx", bad)


def _zip() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("x", "y")
    return data.getvalue()


def test_formats_by_their_endings() -> None:
    assert format_of(Path("a.HTM")) == "html"
    assert format_of(Path("a.pot")) == "po"
    assert (format_of(Path(), "txt"), format_of(Path(), "jsonl")) == ("text", "jsonl")
    with pytest.raises(ConfigError, match=r"a\.pdf: the ending tells no format"):
        format_of(Path("a.pdf"))
    with pytest.raises(ConfigError, match="no format 'pdf'; there are: text, html"):
        shouted("pdf", "")


# ------------------------------------------------------------------------------ aids


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
    path.write_text("dog chien\n", "utf-8")
    with pytest.raises(ConfigError, match=r"terms.tsv:1 is no entry"):
        Glossary.read(path)


def test_memories(tmp_path: Path) -> None:
    path = tmp_path / "m.tsv"
    path.write_text("the dog runs\tle chien\n", "utf-8")
    exact, near = TranslationMemory.read(path), TranslationMemory.read(path, least=80)
    assert exact.find(" the  dog runs") == ("le chien", 100.0)
    assert exact.find("the dogs runs") is None and exact.find("") is None
    result = near.find("the dogs runs")
    assert result is not None and 80 < result.score < 100
    assert near.find("something else altogether") is None
    path = tmp_path / "m.tmx"
    path.write_text(UNITS, "utf-8")
    assert TranslationMemory.read(path, "fr").find("two") == ("deux", 100.0)
    assert TranslationMemory.read(path, "de").find("two") is None
    assert TranslationMemory.read(path).find("two") == ("deux", 100.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("runs"), ["transformer"], steps=60)["transformer"].path


def test_the_verb(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<p>the <b>dog</b> runs. https://x.org</p>", "utf-8")
    verb = ["translate", str(folder)]
    done = CliRunner().invoke(app, [*verb, "--in", str(page), "--out", str(tmp_path / "b.html")])
    assert done.exit_code == 0, done.output
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
    done = CliRunner().invoke(
        app, ["translate", str(tmp_path / "en-fr"), "--in", str(tmp_path / "a.tmx")]
    )
    assert done.exit_code == 0, done.output
    units = list(XML.fromstring(done.stdout).iter("tu"))
    assert [len(unit.findall("tuv")) for unit in units] == [2, 2]


def test_unknown_words_are_copied(folder: Path) -> None:
    inputs = "the dog runs\n"
    for options in ([], ["--copy-unknown", "--ban", "chien"]):
        done = CliRunner().invoke(app, ["translate", str(folder), *options], input=inputs)
        assert done.exit_code == 0, done.output
        assert done.stdout.count("\n") == 1
