"""The studio as a server on a real socket: streams, a reader who leaves, a log that grows."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import ConfigError
from foveate.run import Run
from foveate.studio.api import studio_application
from foveate.studio.state import POLL, StudioState
from serve_tools import running as served
from serve_tools import until
from small_runs import invoked, made, running

EVENTS = {"accept": "text/event-stream"}
PATH = "/runs/language/answer"
LONG = {"text": "the", "search": {"kind": "greedy", "maxExtra": 2000}}
SHORT = {"text": "the", "search": {"maxExtra": 2}}


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("server"), ["language"], steps=5)["language"]


@contextmanager
def waiting(studio: StudioState) -> Iterator[None]:
    """The language model computes nothing within the block."""
    gate = threading.Event()
    decoder = studio.runs.run("language").model.decoder
    handle = decoder.register_forward_hook(lambda *_: gate.wait(20) and None)
    yield
    gate.set()
    handle.remove()


def begun(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


@pytest.fixture
def server(language: Run) -> Iterator[tuple[httpx.Client, StudioState]]:
    app = studio_application([language.path], waiting=1)
    with (
        served(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client,
    ):
        yield client, app.state.studio


def test_the_search_stops_where_the_reader_leaves(server: tuple[httpx.Client, StudioState]) -> None:
    client, studio = server
    steps: list[int] = []
    decoder = studio.runs.run("language").model.decoder
    handle = decoder.register_forward_hook(lambda *_: steps.append(1))
    with client.stream("POST", "/runs/language/answer", json=LONG, headers=EVENTS) as answer:
        lines = answer.iter_lines()
        while not next(lines).startswith("event: token"):
            pass
        assert studio.queue.characters == 1
    until(lambda: studio.queue.characters == 0)
    seen = len(steps)
    time.sleep(0.2)
    assert seen == len(steps) < 2000
    assert client.post(PATH, json=SHORT).status_code == 200, "the next has its turn"
    handle.remove()


def test_a_request_to_a_full_queue_is_refused(server, language) -> None:
    client, studio = server
    result: list[int] = []
    with waiting(studio):
        send = lambda: result.append(client.post(PATH, json=SHORT).status_code)  # noqa: E731
        threads = [begun(send) for _ in range(2)]
        until(lambda: studio.queue.characters == 2)
        busy = client.post(PATH, json=SHORT)
        assert busy.status_code == 429 and "full" in busy.json()["error"]
        assert busy.headers["retry-after"] == "1"
        assert client.get("/trainings").status_code == 200, "what needs no computing is answered"
    for thread in threads:
        thread.join(20)
    assert result == [200, 200]


def test_a_client_that_leaves_gives_up_its_place(server, language) -> None:
    client, studio = server
    with waiting(studio):
        thread = begun(lambda: client.post(PATH, json=SHORT))
        until(lambda: studio.queue.characters == 1)
        for _ in range(3):  # one has a place
            with pytest.raises(httpx.ReadTimeout):
                client.post("/demos/noam", json={}, timeout=0.2)
            time.sleep(3 * POLL)
    thread.join(20)
    assert client.post("/demos/noam", json={}).status_code == 200


def test_a_running_training_is_told_as_it_goes_on(server, language) -> None:
    client, _ = server
    log = language.path / "log.jsonl"
    step = client.get("/trainings/language").json()["step"]

    def write(number: int) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"event": "train", "step": number, "loss": 0.5}) + "\n")

    def read(last: str, count: int) -> list[tuple[str, int]]:
        result: list[tuple[str, int]] = []
        place = ""
        headers = {"last-event-id": last} if last else {}
        with client.stream("GET", "/trainings/language/events", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    place = value
                elif name == "data" and place:
                    result.append((place, json.loads(value)["step"]))
                    if len(result) == count:
                        break
        return result

    assert read("", 1) == [("0.0", 0)]
    threading.Timer(0.3, write, [step + 1]).start()
    assert read(f"{step}", 1) == [(f"{step + 1}.0", step + 1)]
    write(step + 2)  # nothing is lost, nothing twice
    assert read(f"{step + 1}.0", 1) == [(f"{step + 2}.0", step + 2)]


@pytest.mark.slow
def test_the_program_serves_and_ends(language: Run) -> None:
    words = [sys.executable, "-m", "foveate", "studio", str(language.path), "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running([*words, "--port", "0"], text=True, env=environment, **pipes) as program:
        output = program.stdout.readline()
        result = re.search(r"http://127\.0\.0\.1:\d+/", output)
        assert result, output
        client = httpx.Client(base_url=result[0] + "api/v1", timeout=60)
        assert client.get("/runs").json()["runs"][0]["id"] == "language"
        with client.stream("POST", "/runs/language/answer", json=LONG, headers=EVENTS) as answer:
            next(answer.iter_lines())
            program.send_signal(signal.SIGINT)
            assert program.wait(30) in (0, -signal.SIGINT, 130)
        assert "Traceback" not in program.stderr.read()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run and contains none"):
        CliRunner().invoke(app, ["studio", str(tmp_path)], catch_exceptions=False)


def test_the_document_is_the_same_every_time() -> None:
    first, again = (invoked("studio", "--openapi").stdout for _ in range(2))
    assert first == again
    schemas = json.loads(first)["components"]["schemas"]
    kinds = {ref["$ref"].rpartition("/")[2] for ref in schemas["AnswerEvent"]["oneOf"]}
    events = {"AnswerStart", "Token", "BeamStep", "TextDone", "Failed", "Ping"}
    assert events <= kinds <= set(schemas)
