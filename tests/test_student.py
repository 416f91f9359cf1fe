"""A student of any teacher: N lines, N decisions; no fault, kill or budget loses an answer."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from operator import eq
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from foveate.data.catalogue import DataError, find
from foveate.documents.languages import Direction
from foveate.engine import packed
from foveate.errors import UserError
from foveate.exchange.base import export, sample_of
from foveate.exchange.student import pairs, teachers
from foveate.exchange.student.journal import Account, AnswerJournal
from foveate.exchange.student.teachers import Reply, Teacher
from foveate.run import Run, load
from foveate.run.training import train
from serve_tools import ROOT, Program, program, until
from small_runs import Call, invoked, running
from variants import translator

SUBJECTS = ("the dog", "a cat", "a girl", "the man")
VERBS = ("runs", "sleeps", "reads", "sees")
SENTENCES = [f"{a} {b} {c} {d}" for a, b, c, d in product(SUBJECTS, VERBS, SUBJECTS, VERBS)][:200]
QUICK = ("429", "500", "half", "fewer", "closed")
KINDS = (*QUICK, "silence")
TIMEOUT = 2.0


class Proxy(ThreadingHTTPServer):
    """Between a student and a server: ``each`` request is failed before some get through.

    ``asked`` counts the lines that got through and were answered.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, url: str, faults: Sequence[str], each: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url, self.faults, self.each, self.due = url, list(faults), each, each
        self.asked, self.heads, self.delay = Counter[str](), list[str](), 0.0

    @property
    def own_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have left."""


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heads.append(self.headers["Authorization"])
        if self.server.faults and self.server.due:
            self.server.due -= 1
            self.fail(self.server.faults.pop(), json.loads(body))
            return
        self.server.due = self.server.each
        time.sleep(self.server.delay)
        kind = {"Content-Type": "application/json"}
        with urlopen(Request(self.server.url + self.path, body, kind), None, 30) as response:
            text = response.read()
        tree = json.loads(body)
        content = tree["messages"][0]["content"] if "messages" in tree else None
        self.server.asked.update(tree["q"] if content is None else [content])
        self.answer(200, text)

    def answer(self, status: int, text: bytes, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length or len(text)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(text)

    def fail(self, kind: str, tree: Any) -> None:
        if kind.isdecimal():
            self.answer(int(kind), b'{"error": "of no use"}')
        elif kind == "silence":
            time.sleep(TIMEOUT + 1)
        elif kind == "half":
            self.answer(200, b'{"translatedText": ["le', 1000)
        elif kind == "fewer":
            own = {"translatedText": tree["q"][1:]} if "q" in tree else {"choices": []}
            self.answer(200, json.dumps(own).encode())
        self.close_connection = True

    def log_message(self, *values: object) -> None:
        """Say nothing."""


@contextmanager
def between(url: str, faults: Sequence[str] = (), each: int = 0) -> Iterator[Proxy]:
    with Proxy(url, faults, each) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Program]:
    with program(run.path, "--as", "en:fr", "--no-studio") as server:
        yield server


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "text.en"
    path.write_text("\n".join([*SENTENCES, "", SENTENCES[3]]) + "\n", "utf-8")
    return path


CHAT = ("--model", "en-fr", "--prompt", "{text}")
ASK = ("--pair", "en:fr", "--timeout", TIMEOUT, "--yes", "--no-train")


def outputs(out: Path) -> dict[str, bytes]:
    """What is made of the answers, by name."""
    files = [*(out / "data").iterdir(), out / "report.json", out / "source.decisions"]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("shape", [("--batch", 4), CHAT], ids=["libre", "chat"])
def test_no_fault_makes_a_line_paid_twice(server, source, tmp_path, monkeypatch, shape) -> None:
    monkeypatch.setattr(teachers, "PAUSE", 0.0)
    faults = [*KINDS * 8, *QUICK * 30, "429", "500"]
    random.Random(1).shuffle(faults)
    path = "/v1" if shape is CHAT else ""
    texts = lambda: sum(entry.get("texts", 0) for entry in server.log)  # noqa: E731
    before = texts()
    with between(server.url, faults, 1 if shape is CHAT else 4) as proxy:
        call = ["student", tmp_path / "a", "--source", source, *ASK, *shape]
        invoked(*call, "--teacher", proxy.own_url + path)
        assert proxy.faults == []
        assert proxy.asked == Counter(SENTENCES), "each line was answered once"
    until(lambda: texts() >= before + len(SENTENCES))
    assert texts() == before + len(SENTENCES)
    call[1] = tmp_path / "b"
    invoked(*call, "--teacher", server.url + path)
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")
    decisions = (tmp_path / "a" / "source.decisions").read_text("utf-8").split("\n")
    assert decisions[len(SENTENCES) :] == ["empty source", "duplicate", ""]


def test_after_kills_no_answer_is_asked_for_again(server, source, tmp_path) -> None:
    with between(server.url) as proxy:
        proxy.delay = 0.01
        words = ["student", tmp_path / "a", "--source", source, *ASK, "--batch", 1]
        command = [sys.executable, "-m", "foveate", *words, "--teacher", proxy.own_url]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        journal, kills = tmp_path / "a" / "source.jsonl", (1, 2)
        how = {"env": environment, "stderr": subprocess.PIPE}
        for kill in kills:
            with running([*map(str, command)], **how) as process:
                while not journal.exists() or journal.read_bytes().count(b"\n") < 50 * kill:
                    time.sleep(0.002)
                process.send_signal(signal.SIGKILL)
        with journal.open("ab") as file:
            file.write(b'{"line": "the dog runs a c')
        invoked(*words, "--teacher", proxy.own_url)
        assert set(proxy.asked) == set(SENTENCES)
        again = proxy.asked.total() - len(SENTENCES)
        assert again <= len(kills), "what was under way at a kill, and nothing else"
        invoked(*words, "--teacher", proxy.own_url)
        assert proxy.asked.total() == len(SENTENCES) + again
    invoked("student", tmp_path / "b", *words[2:], "--teacher", server.url)
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b"no such key s3cret"), "refuses the key (401 no such key …): set MY_KEY"),
        ((429, b"insufficient_quota"), "asks for money (429 insufficient_quota): pay in"),
        ((404, b"nothing"), "answers 404 nothing: check the URL and --model"),
    ],
)
def test_what_cannot_succeed_is_said(answer, words, source, tmp_path, monkeypatch, call) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    monkeypatch.setattr(Handler, "fail", lambda own, kind, tree: own.answer(*answer))
    with between("", ["any"], 1) as proxy:
        options = ["--pair", "en:fr", "--source", source, "--key-env", "MY_KEY", "--yes"]
        result = call("student", tmp_path / "a", "--teacher", proxy.own_url, *options)
        assert proxy.heads == ["Bearer s3cret"]
    assert result.code == 2 and words in result.err and result.err.count("error: ") == 1
    assert "s3cret" not in result.err + (tmp_path / "a" / "source.jsonl").read_text()


def test_a_line_that_is_refused_is_a_decision(server, source, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Handler, "fail", lambda own, kind, tree: own.answer(400, b""))
    with between(server.url, ["any"], 1) as proxy:
        words = ["--teacher", proxy.own_url, "--source", source, *ASK, "--batch", 1]
        invoked("student", tmp_path / "a", *words)
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert report["source"]["refused"] == 1 and sum(report["source"].values()) == 202


def test_a_teacher_that_refuses_a_sample_is_asked_no_more(server, source, tmp_path, call) -> None:
    words = ["--teacher", server.url, "--source", source, "--pair", "en:de", "--yes"]
    result = call("student", tmp_path / "a", *words)
    assert result.code == 2 and "target: de is not supported" in result.err
    assert "refuses all of a sample" in result.err
    assert (tmp_path / "a" / "source.jsonl").read_text("utf-8").count("\n") == 1


def made_up(lines: Sequence[str]) -> Iterator[dict[str, Reply]]:
    yield {line: Reply(line[::-1], tokens=2 * len(line)) for line in lines}


def test_a_budget_is_never_exceeded(tmp_path: Path) -> None:
    lines = [f"line {n:02}" for n in range(20)]  # 7 characters, 14 tokens
    for per, most in (("characters", 8), ("tokens", 4)):
        teacher = Teacher("backwards", made_up, batch=2, paid=True)
        account = Account(price=1e6, per=per, budget=60)
        journal = AnswerJournal(tmp_path / f"{per}.jsonl", teacher, lines, account)
        with pytest.raises(UserError, match=f"--budget 60 ends at 56.* after {most} answers"):
            journal.answer()
        assert account.spent == 56
        again = AnswerJournal(journal.path, teacher, lines, Account(1e6, per))
        assert again.account.spent == 56 and again.replies == journal.replies
        again.answer()
        assert len(again.replies) == 20


def test_tokens_that_a_service_does_not_count_are_characters(tmp_path: Path) -> None:
    account = Account(price=1e6, per="tokens", budget=19)
    lines = ["12345", "abcde", "ABCDE", "x2345", "y"]
    teacher = Teacher("silent", lambda lines: iter([{x: Reply("y") for x in lines}]), 1, paid=True)
    with pytest.raises(UserError, match=r"--budget 19 ends at .* after 3 answers"):
        AnswerJournal(tmp_path / "a", teacher, lines, account).answer()
    chat = teachers.HttpService("http://x", Direction("en", "fr"), model="m")
    tree = {"choices": [{"message": {"content": "a\nb\n"}}], "usage": {"total_tokens": 7}}
    assert chat._read(tree, ["x", "y"]) == [Reply("a", tokens=4), Reply("b", tokens=4)]
    [content] = [message["content"] for message in chat._body(["x", "y"])["messages"]]
    assert "from English to French" in content and content.endswith("\n\nx\ny")


def test_a_journal_names_what_is_wrong(tmp_path: Path) -> None:
    path, teacher = tmp_path / "source.jsonl", Teacher("backwards", made_up)
    AnswerJournal(path, teacher, ["ab"], Account()).answer()
    with pytest.raises(UserError, match="answers of another teacher: choose another OUT"):
        AnswerJournal(path, Teacher("forwards", made_up), ["ab"], Account())
    with path.open("a") as file:
        file.write('{"line": "x"}\n')
    with pytest.raises(UserError, match=r"source.jsonl:3 is damaged .*remove this line"):
        AnswerJournal(path, teacher, ["ab"], Account())


def test_decisions_have_a_reason_each() -> None:
    english = "the weather is very beautiful today in the whole country"
    french = "le temps est très beau aujourd'hui dans tout le pays"
    answers = {
        "a": Reply("b"), "ab cd": Reply("AB cd"), "x": Reply(None), "y": Reply(" "),
        "short": Reply("long " * 20), "z": Reply("w", -3.0), "other": Reply("autre", -0.5),
        english: Reply(french), english + ".": Reply(english + "!"),
    }  # fmt: skip
    lines = [*answers, "", "a"]
    assert pairs.decisions(lines, answers, "fr", -1.0) == [
        "kept", "copy", "refused", "empty answer", "length", "score", "kept", "kept", "language",
        "empty source", "duplicate",
    ]  # fmt: skip


def test_noise_changes_case_stops_accents_and_letters() -> None:
    draw, pair = random.Random(3), ("Où est l'éléphant.", "Where is it.")
    assert pairs.upper_case(pair, draw) == ("OÙ EST L'ÉLÉPHANT.", "WHERE IS IT.")
    assert pairs.without_stop(pair, draw) == ("Où est l'éléphant", "Where is it")
    assert pairs.without_accents(pair, draw) == ("Ou est l'elephant.", "Where is it.")
    typed = {pairs.mistyped(("elephants", "y"), draw)[0] for _ in range(99)}
    assert {"lephants", "eelephants", "leephants", "elephnats"} <= typed
    assert all(8 <= len(text) <= 10 for text in typed)
    many = [(f"Un élan {n}.", f"An elk {n}.") for n in range(100)]
    copies = pairs.noisy(many, 0.5)
    assert 30 <= len(copies) <= 50 and copies == pairs.noisy(many, 0.5)
    assert not set(copies) & set(many) and pairs.noisy(many, 0.0) == []


def test_a_student_is_made_packed_measured_and_served(run, source, tmp_path, call: Call) -> None:
    back = tmp_path / "text.fr"
    back.write_text("".join(f"le chien court {n}\n" for n in range(30)), "utf-8")
    other = train(run.config.model_copy(update={"seed": 7}), folder=tmp_path / "other")
    words = ["student", tmp_path / "a", "--teacher", run.path, "--ensemble", other.path]
    words += ["--pair", "en:fr", "--source", source, "--noise", 0.5, "--beam-size", 2]
    words += ["--back", back, "--back-teacher", run.path, "--minutes", 1, "--test", source, source]
    plan = call(*words, "--plan")
    assert plan.code == 0 and "source: 202 sentences, 200 without an answer" in plan.err
    assert "transformer-tiny" in plan.err and not (tmp_path / "a" / "data").exists()
    assert "--yes" in call(*words).err
    damaged = tmp_path / "damaged.en"
    damaged.write_bytes(b"a dog\na \xff cat\n")
    wrong = call(*words, "--source", damaged, "--plan")
    assert wrong.code == 2 and f"{damaged}:2: " in wrong.err and "UTF-8" in wrong.err
    words += ["--yes", "train.max_steps=4"]
    words += [f"model.{side}.hidden_size=16" for side in ("encoder", "decoder")]
    first = call(*words)
    assert first.code == 0, first.err
    file = tmp_path / "a" / "en-fr.safetensors"
    assert "chrf " in first.out and f"foveate serve {file} --as en:fr" in first.out
    packed.load(file).translate(["the dog runs"])
    sources = (tmp_path / "a" / "data" / "train.en").read_text("utf-8").split("\n")
    assert sum(line.startswith(pairs.BACK) for line in sources) > 20
    both = load(run.path, ensemble=[other.path])
    journal = (tmp_path / "a" / "source.jsonl").read_text("utf-8").split("\n")[1:-1]
    texts = {tree["line"]: tree["text"] for tree in map(json.loads, journal)}
    assert texts == {a.source: str(a) for a in both.translate(SENTENCES, beam_size=2)}
    before = outputs(tmp_path / "a")
    assert call(*words).code == 0 and outputs(tmp_path / "a") == before


def test_files_and_ctranslate2_folders_teach_too(tmp_path: Path) -> None:
    own = translator(tmp_path, "bpe", steps=60)
    sources, _ = own.pairs("train")
    texts = [str(answer) for answer in own.translate(sources, beam_size=1)]
    files = {"a.en": sources, "lines.fr": texts, "fewer.fr": texts[1:]}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    export(own, tmp_path / "ct2", "ctranslate2", sample_of(own, 7))
    words = ["--source", tmp_path / "a.en", *ASK, "--beam-size", 1]
    for name in ("lines.fr", "ct2"):
        invoked("student", tmp_path / f"of-{name}", "--teacher", tmp_path / name, *words)
    assert outputs(tmp_path / "of-lines.fr") == outputs(tmp_path / "of-ct2")
    with pytest.raises(UserError, match=r"fewer.fr has 19 lines, the sources 20"):
        teachers.of_file(tmp_path / "fewer.fr", texts[1:], sources)
    for file in (tmp_path / "ct2").glob("*.json"):
        file.unlink()
    with pytest.raises(UserError, match="add its pieces"):
        teachers.pieces_of(tmp_path / "ct2")


@pytest.mark.filterwarnings("ignore:Recommended")  # by transformers: another package
def test_a_model_of_marian_that_ctranslate2_converted_teaches(tmp_path: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    try:
        data = find("marian-multi30k-en-fr/transformers", folders=True)
    except DataError:
        pytest.skip("the model of Marian is not there")
    pieces = ["source.spm", "target.spm"]
    converter = TransformersConverter(str(data), copy_files=pieces)
    converter.convert(str(tmp_path / "ct2"), quantization="float32")
    teacher = teachers.of_ctranslate2(tmp_path / "ct2", beam_size=1)
    names = (data.parent / "out" / name for name in ("source.en", "beam1.fr"))
    sources, right = (path.read_text("utf-8").split("\n")[:100] for path in names)
    [replies] = teacher.translate(sources)
    texts = [str(replies[x].text) for x in sources]
    assert sum(map(eq, texts, right)) >= 85  # of Marian, which has limits of its own
    assert sum(x[:60] == y[:60] for x, y in zip(texts, right, strict=True)) >= 90
    argos = tmp_path / "argos"
    (argos / "model").mkdir(parents=True)
    (tmp_path / "ct2" / "source.spm").rename(argos / "sentencepiece.model")
    encode, decode = teachers.pieces_of(argos / "model")
    assert "</s>" not in encode("A dog runs.") and decode(encode("A dog runs.")) == "A dog runs."
