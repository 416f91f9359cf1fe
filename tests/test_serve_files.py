"""Files go in and come out in their form; names cannot be guessed, and nothing is kept for long."""

import html
import io
import time
from xml.etree import ElementTree as XML

import docx
import html5lib
import polib
import pytest
from fastapi import FastAPI

from foveate.run import Run
from foveate.serve.common import ByteStore
from foveate.serve.translation_schemas import Limits
from serve_tools import get, post, served, upload


@pytest.fixture(scope="module")
def app(run: Run) -> FastAPI:
    return served(run.path, Limits(file_characters=2000, file=50_000))


def test_a_text_keeps_its_lines(app: FastAPI, run: Run) -> None:
    answer, file = upload(app, "été/../a b.TXT", b"the dog runs\n\n  a cat sleeps\n", source="auto")
    own = [str(item) for item in run.translate(["the dog runs", "a cat sleeps"])]
    assert file.decode() == f"{own[0]}\n\n  {own[1]}\n"
    assert answer.json()["translatedFileUrl"].endswith(".a_b_fr.txt")
    assert upload(app, "a.txt", b"")[1] == b""


def test_html_keeps_its_tags(app: FastAPI, run: Run) -> None:
    _, file = upload(app, "a.html", b"<p class='x'>the dog runs</p>")
    text = file.decode()
    assert text.startswith("<p class=") and text.endswith("</p>")
    assert str(run.translate(["the dog runs"])[0]) in text


@pytest.mark.parametrize(
    ("name", "data", "status", "message"),
    [
        ("a.exe", b"x", 400, ".exe is not supported; there are: .txt"),
        ("noending", b"x", 400, "no ending"),
        ("a.txt", b"\xff\xfe\0", 400, "not UTF-8"),
        ("a.docx", b"PK", 400, "the file is not a DOCX file"),
        ("a.html", b"<div>" * 3000, 400, "more than 2,000 elements"),
        ("a.txt", b"the dog runs\n" * 300, 413, "characters at once"),
        ("a.txt", b"x" * 60_000, 413, "bytes at most"),
    ],
)
def test_what_cannot_be_translated_is_refused(app, name, data, status, message) -> None:
    answer, _ = upload(app, name, data)
    assert answer.status_code == status and message in answer.json()["error"]


def test_a_file_that_takes_too_long_ends_with_its_process(run: Run) -> None:
    app = served(run.path, Limits(seconds=120, file_characters=10**7))
    documents = app.state.service.documents
    documents.seconds = 0.5
    page = b"<p>the dog <b>runs</b></p>" * 200_000  # many seconds of work
    answer, _ = upload(app, "a.html", page)
    assert answer.status_code == 400 and "seconds to read" in answer.json()["error"]
    documents.seconds = 20.0
    assert upload(app, "a.html", b"the dog")[0].status_code == 200
    app.state.service.close(0)


def answer_to(run: Run, text: str) -> str:
    return str(run.translate([text])[0])


def test_catalogues_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    text = """# by hand
msgid ""
msgstr ""
"Plural-Forms: nplurals=2; plural=n > 1;\\n"

#, python-format
msgctxt "door"
msgid "the dog runs %s"
msgid_plural "the dog sings"
msgstr[0] ""
msgstr[1] ""

msgid "done"
msgstr "fait"
"""
    _, file = upload(app, "a.po", text.encode())
    [first, second] = polib.pofile(file.decode())
    result = first.msgstr_plural
    assert result[0].count("%s") == 1 and result[1] == answer_to(run, "the dog sings")
    assert (first.msgctxt, first.flags) == ("door", ["fuzzy", "python-format"])
    assert second.msgstr == "fait"
    assert "# by hand" in file.decode()


def test_memories_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    text = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu tuid="1"><tuv xml:lang="en"><seg>the dog runs</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>a <hi>cat</hi> sleeps <ph x="1"/></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>a girl eats</seg></tuv><tuv xml:lang="fr"><seg>la</seg></tuv></tu>
</body></tmx>"""
    _, file = upload(app, "a.tmx", text.encode())
    units = list(XML.fromstring(file).iter("tu"))
    result = [unit.findall("tuv")[1].find("seg") for unit in units]
    assert [len(unit.findall("tuv")) for unit in units] == [2, 2, 2] and units[0].get("tuid") == "1"
    assert result[0] is not None and result[0].text == answer_to(run, "the dog runs")
    assert result[1] is not None and [item.tag for item in result[1]] == ["hi", "ph"]
    assert result[2] is not None and result[2].text == "la"


def test_units_and_verses_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    own = answer_to(run, "the dog runs")
    unit = '<xliff version="1.2"><file{}><trans-unit><source>the dog runs</source>{}</trans-unit>'
    text = f"{unit}</file></xliff>"
    _, file = upload(app, "a.xlf", text.format("", "").encode())
    target = f'<target state="needs-review-translation">{own}</target>'
    assert file.decode() == text.format(' target-language="fr"', target)
    answer, _ = upload(app, "a.xliff", text.format(' target-language="de"', "").encode())
    assert answer.json()["error"] == "the file is to be translated into de, not fr"
    book = "\\id RUT\n\\c 1\n\\p\n\\v 1 {}\n\\q1\n"
    _, file = upload(app, "08RUT.SFM", book.format("the dog runs").encode())
    assert file.decode() == book.format(own)


def test_subtitles_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    times = "00:00:01,000 --> 00:00:02,000"
    _, file = upload(app, "a.srt", f"1\r\n{times}\r\nthe dog\r\nruns\r\n\r\n".encode())
    lines = file.decode().split("\r\n")
    assert lines[:2] == ["1", times] and lines[4:] == ["", ""]
    assert " ".join(lines[2:4]) == answer_to(run, "the dog runs")


def test_word_documents_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    document, data = docx.Document(), io.BytesIO()
    document.add_heading("the dog runs", 1)
    paragraph = document.add_paragraph("a cat ")
    paragraph.add_run("sleeps").bold = True
    document.add_table(1, 1).cell(0, 0).text = "a girl eats"
    document.save(data)
    _, file = upload(app, "a.docx", data.getvalue())
    result = docx.Document(io.BytesIO(file))
    heading, body = result.paragraphs
    assert heading.text == answer_to(run, "the dog runs")
    assert heading.style is not None and heading.style.name == "Heading 1"
    assert body.text == answer_to(run, "a cat sleeps") and any(item.bold for item in body.runs)
    assert result.tables[0].cell(0, 0).text == answer_to(run, "a girl eats")


def test_pages_go_up_and_come_down_whole(app: FastAPI, run: Run) -> None:
    page = (
        '<!DOCTYPE html><html lang="en"><head><title>the dog runs</title><script>var a = "b";'
        '</script></head><body><p class="x">a <b>cat</b> sleeps</p><pre>a girl</pre></body></html>'
    )
    _, file = upload(app, "a.htm", page.encode())
    text = file.decode()
    html5lib.HTMLParser(strict=True).parse(text)
    assert f"<title>{html.escape(answer_to(run, 'the dog runs'), quote=False)}</title>" in text
    assert '<script>var a = "b";</script>' in text and "<pre>a girl</pre>" in text
    assert text.count("<b>") == 1 and text.startswith("<!DOCTYPE html>")


def test_tables_go_up_and_come_down(app: FastAPI, run: Run) -> None:
    own = answer_to(run, "the dog runs")
    assert (
        upload(app, "a.tsv", b"the dog runs\tx\n\n")[1].decode() == f"the dog runs\tx\t{own}\n\t\n"
    )


HOSTILE = [
    ("a.html", b"<div>" * 3000, "line 1 of the HTML is in more than 2,000 elements"),
    ("a.docx", b"PK", "the file is not a DOCX file"),
    ("a.tmx", b'<!DOCTYPE t [<!ENTITY a "aa">]><tmx>&a;</tmx>', "the file cannot be read as XML"),
    ("a.tmx", b"<hi>" * 4000, "Excessive depth"),
    ("a.po", b'msgid "a"\nmsgid_plural "b"\nmsgstr[99] ""\n', "the file:1 has msgstr"),
    ("a.srt", b"1\n00:01 --> 00:02\na\n", "the file:2 holds times that cannot be read"),
    ("a.srt", b"1\n\xff\n", "the file:2 is not UTF-8"),
]


@pytest.mark.parametrize(("name", "data", "message"), HOSTILE)
def test_hostile_files_are_told_what_is_wrong(app, name, data, message) -> None:
    answer, _ = upload(app, name, data)
    assert answer.status_code == 400 and message in answer.json()["error"]


def test_a_hostile_text_takes_no_longer_than_another(run: Run) -> None:
    app = served(run.path, tokens=100_000)

    body = {"q": "x " + "1 " * 4000, "source": "en", "target": "fr"}
    began = time.process_time()
    assert post(app, json=body, timeout=60).status_code == 200
    assert time.process_time() - began < 10


def test_a_file_must_be_one_and_must_be_there(app: FastAPI) -> None:
    fields = {"source": "en", "target": "fr", "file": "a.txt"}
    result = [post(app, "/translate_file", **{how: fields}) for how in ("data", "json")]
    paths = ("nothing.txt", "..%2F..%2Fetc%2Fpasswd", "a%00b")
    result += get(app, *(f"/download_file/{path}" for path in paths))
    assert [item.status_code for item in result] == [400, 400, 404, 404, 404]
    assert all(list(item.json()) == ["error"] for item in result)


def test_what_is_kept_is_bounded_in_size_and_time() -> None:
    now = [0.0]
    saved = ByteStore(size=10, seconds=60, clock=lambda: now[0])
    first, second = saved.put("a", b"12345"), saved.put("b", b"12345")
    assert saved.get(first) == saved.get(second) == b"12345"
    third = saved.put("c", b"1")
    assert saved.get(first) is None and saved.get(second) and saved.get(third) == b"1"
    now[0] = 61
    assert saved.get(second) is None is saved.get(third)
