"""Files go in and come out in their form; names cannot be guessed, and nothing is kept for long."""

import time
from pathlib import Path

import pytest
from docx import Document
from fastapi import FastAPI

from document_tools import saved
from foveate.documents.base import DocumentOptions
from foveate.documents.folders import translate_document
from foveate.documents.formats import format_of, read_document
from foveate.run import Run
from foveate.serve.common import ByteStore
from foveate.serve.translation_schemas import Limits
from serve_tools import get, post, served, upload
from test_odt import odt
from test_pptx import slides

LIMITS = Limits(file_characters=2000, file=50_000)


def test_a_text_keeps_its_lines(app: FastAPI, run: Run) -> None:
    answer, file = upload(app, "été/../a b.TXT", b"the dog runs\n\n  a cat sleeps\n", source="auto")
    own = [str(item) for item in run.translate(["the dog runs", "a cat sleeps"])]
    assert file.decode() == f"{own[0]}\n\n  {own[1]}\n"
    assert answer.json()["translatedFileUrl"].endswith(".a_b_fr.txt")
    assert upload(app, "a.txt", b"")[1] == b""


UNIT = '<xliff version="1.2"><file{}><trans-unit><source>a cat</source></trans-unit></file></xliff>'
TMX = '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>a <hi>cat</hi>'
FILES = {
    "a.html": "<p class='x'>the dog runs</p>",
    "a.htm": '<!DOCTYPE html><title>the dog</title><script>var a = "b";</script><pre>a girl</pre>',
    "a.po": '# by hand\nmsgid "the dog runs %s"\nmsgstr ""\n',
    "a.tmx": f'<?xml version="1.0"?>{TMX} sleeps</seg></tuv></tu></body></tmx>',
    "a.xlf": UNIT.format(""),
    "08RUT.SFM": "\\id RUT\n\\c 1\n\\p\n\\v 1 the dog runs\n\\q1\n",
    "a.srt": "1\r\n00:00:01,000 --> 00:00:02,000\r\nthe dog\r\nruns\r\n\r\n",
    "a.tsv": "the dog runs\tx\n\n",
    "a.docx": "",
    "a.odt": "",
    "a.pptx": "",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_goes_up_and_comes_down(app: FastAPI, run: Run, name: str) -> None:
    """As the run translates it without a server; the formats themselves have tests of their own."""
    data = FILES[name].encode() or {"a.docx": docx, "a.odt": odt, "a.pptx": slides}[name]()
    options = DocumentOptions(to="fr", source="en")
    document = read_document(format_of(Path(name)), data, options)
    assert upload(app, name, data)[1] == translate_document(run, document, {})[0] != data


def docx() -> bytes:
    document = Document()
    document.add_paragraph("a cat ").add_run("sleeps").bold = True
    return saved(document)


@pytest.mark.parametrize(
    ("name", "data", "status", "message"),
    [
        ("a.po", b'msgid "a"\nmsgid_plural "b"\nmsgstr[99] ""\n', 400, "the file:1 has msgstr"),
        ("a.xliff", UNIT.format(' target-language="de"').encode(), 400, "into de, not fr"),
        ("a.exe", b"x", 400, ".exe is not supported; there are: .txt"),
        ("noending", b"x", 400, "no ending"),
        ("a.pdf", b"%PDF-1.7", 400, "the file cannot be read as PDF"),
        ("a.html", b"<div>" * 3000, 400, "line 1 of the HTML is in more than 2,000 elements"),
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
