"""``foveate serve`` as a program: real clients, an end that loses nothing, slow and bad clients."""

import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from typer.testing import CliRunner

from foveate.cli import app as cli
from foveate.cli.serve import (
    BatchLimits,
    RequestLimits,
    ServerAddress,
    Serving,
    server_application,
)
from foveate.config import PACKAGED, ConfigError
from foveate.run import Run
from foveate.serve import connections
from foveate.serve.runs import RunPool
from foveate.serve.translation_schemas import Limits
from serve_tools import ROOT, Program, begun, port_of, program, running, served, until

BODY = {"q": "the dog runs", "source": "en", "target": "fr"}
FRIEND = "chrome-extension://abcdefgh"  # an origin that is named, as one of a browser's extension


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Program]:
    with program(run.path, "--as", "en:fr", "--cors", FRIEND) as result:
        yield result


def test_libretranslatepy_works_unchanged(server: Program, run: Run) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate("the dog runs", "en", "fr") == str(run.translate(["the dog runs"])[0])
    assert client.detect("le chien court dans le jardin")[0]["language"] == "fr"
    assert client.languages()[0]["targets"] == ["fr"]


def test_the_documentation_runs_as_it_stands(server: Program) -> None:
    text = (ROOT / "docs" / "guide" / "serving.md").read_text("utf-8")
    block = r"```{}\n(.*?)```"
    shell, code = ("".join(re.findall(block.format(x), text, re.DOTALL)) for x in ("sh", "python"))
    exec(compile(code, "serving.md", "exec"), {"url": server.url})
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    script = f"set -e\nURL={server.url}\n{shell}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.count("translatedText") == 4 and "total_tokens" in done.stdout
    assert "error" not in done.stdout


def test_pages_of_other_sites_may_not_use_it_but_friends_may(server: Program) -> None:
    foreign = {"origin": "http://evil.example"}
    refused = httpx.post(f"{server.url}/translate", data=BODY, headers=foreign, timeout=60)
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    deepl = {"text": [BODY["q"]], "target_lang": "FR"}
    for path, body in (("translate", BODY), ("v2/translate", deepl)):
        friend = {"origin": FRIEND}
        result = httpx.post(f"{server.url}/{path}", json=body, headers=friend, timeout=60)
        assert result.status_code == 200
        assert result.headers["access-control-allow-origin"] == FRIEND
    assert httpx.get(server.url, headers={"host": "evil.example"}, timeout=60).status_code == 403


def test_the_studio_is_at_the_root(server: Program) -> None:
    assert "studio" in httpx.get(server.url, timeout=60).text  # PyTorch is imported now
    [result] = httpx.get(f"{server.url}/api/v1/runs", timeout=60).json()["runs"]
    assert result["id"] == "transformer"
    for method, path, status in (("GET", "/translate", 405), ("POST", "/nowhere", 404)):
        answer = httpx.request(method, f"{server.url}{path}", timeout=60)
        assert answer.status_code == status and isinstance(answer.json()["error"], str)


def test_bodies_that_are_too_large_are_refused_and_garbage_harms_nobody(server: Program) -> None:
    for content in (b"x" * (3 * 2**20), (b"x" * 65_536 for _ in range(80))):
        with suppress(httpx.WriteError):  # where the server has hung up already
            answer = httpx.post(f"{server.url}/translate", content=content, timeout=60)
            assert answer.status_code == 413 and list(answer.json()) == ["error"]
    for raw in (b"\0\1\2\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /translate HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as wire:
            wire.sendall(raw)
    assert httpx.post(f"{server.url}/translate", json=BODY, timeout=60).status_code == 200


def test_the_log_is_json_and_holds_no_text(server: Program) -> None:
    secret = "cat sings secretly"
    httpx.post(
        f"{server.url}/translate",
        json=BODY | {"q": secret},
        headers={"x-request-id": "me"},
        timeout=60,
    )
    until(lambda: any(line.get("id") == "me" for line in server.log), 5)
    [line] = [line for line in server.log if line.get("id") == "me"]
    assert line["characters"] == len(secret) and line["status"] == 200 and line["sentences"] == 1
    assert "secretly" not in json.dumps(server.log) and not server.other


def test_a_term_signal_while_busy_loses_nothing_that_was_sent(run: Run) -> None:
    with program(run.path, "--as", "en:fr", "--no-studio") as server:
        expected = str(run.translate(["the dog runs"])[0])
        httpx.post(f"{server.url}/translate", json=BODY, timeout=60)  # the model is there
        many = json.dumps(BODY | {"q": ["the dog runs"] * 100})
        with ExitStack() as opened:
            waiting = [HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(12)]
            for item in waiting:
                opened.callback(item.close)
                item.request("POST", "/translate", many, {"content-type": "application/json"})
            assert server.end() == 0
            for item in waiting:
                with item.getresponse() as answer:
                    assert answer.status == 200
                    assert json.load(answer)["translatedText"] == [expected] * 100
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health", timeout=60)


def test_a_connection_accepted_at_shutdown_is_answered(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 20)
    with (
        begun(served(run.path)) as server,
        closing(HTTPConnection("127.0.0.1", port_of(server), timeout=20)) as new,
    ):
        new.connect()
        server.should_exit = True
        until(lambda: not server.servers[0].is_serving())
        new.request("GET", "/health")
        assert new.getresponse().status == 200


def test_silent_connections_are_closed(run: Run) -> None:
    head = b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
    whole = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with running(served(run.path, Limits(reading=0.4)), head_seconds=0.4) as port:
        for output in (b"", b"GET / HT", head):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
                wire.sendall(output)
                assert wire.recv(100).startswith(b"HTTP/1.1 408")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
            for _ in range(3):  # a connection that is kept may rest between requests, but not long
                time.sleep(0.2)
                wire.sendall(whole)
                result = b""
                while b'{"status":"ok"}' not in result:
                    result += wire.recv(1000)
            assert wire.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_head_without_end_is_cut_off(run: Run) -> None:
    line = b"x-more: " + b"y" * 1000 + b"\r\n"
    with running(served(run.path)) as port:
        for more in (line, line[:-2]):  # many lines, or one
            with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
                wire.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
                with suppress(ConnectionError):
                    for _ in range(200):
                        wire.sendall(more)
                    assert wire.recv(100).startswith(b"HTTP/1.1 431")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
            wire.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + 50 * line + b"\r\n")
            assert wire.recv(100).startswith(b"HTTP/1.1 200")


def test_a_disconnected_client_costs_nothing_more(run: Run) -> None:
    app = served(run.path, tokens=64)  # batches of a few lines
    [place] = app.state.service.pool.runs.values()
    with running(app) as port:
        with pytest.raises(httpx.ReadTimeout):
            many = BODY | {"q": ["the dog runs"] * 1000, "alternatives": 9}
            httpx.post(f"http://127.0.0.1:{port}/translate", json=many, timeout=0.3)
        until(lambda: not place.batcher.characters)
    text = app.state.service.metrics.text().decode()
    sums = [line for line in text.splitlines() if line.startswith("foveate_batch_items_sum")]
    done = sum(float(line.split()[1]) for line in sums)
    assert done < 1000
    assert 'route="/translate",status="499"' in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--as", "en:fr", "--host", "::"), "--keys FILE"),
        (("--as", "en:fr", "--keys", "nowhere"), "contains no key"),
        (("--as", "x=en:fr", "--as", "transformer=en:fr"), "no run is called x; use "),
    ],
)
def test_what_is_unsafe_or_makes_no_sense_is_refused(run, options, words) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        CliRunner().invoke(cli, ["serve", str(run.path), *options], catch_exceptions=False)


def test_limits_are_checked_and_the_batch_delay_is_in_milliseconds(run: Run) -> None:
    serving = Serving([run.path], ServerAddress(languages=["en:fr"]), batching=BatchLimits(3))
    app, _ = server_application(serving)
    assert app.state.service.pool.batching.max_delay == 0.003
    with pytest.raises(ConfigError, match="characters"):
        server_application(replace(serving, limits=RequestLimits(characters=0)))


def test_a_computation_without_end_ends_with_the_process(run: Run, monkeypatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(connections.os, "_exit", codes.append)
    server = connections.DrainingServer(connections.uvicorn_config(served(run.path), 20.0, 5))
    server.ends_by = 0.05
    for _ in range(2):
        server.handle_exit(signal.SIGTERM, None)
    time.sleep(0.3)
    assert server.should_exit and codes == [1]


def test_languages_are_given_by_the_name_of_a_file_with_or_without_its_ending(tmp_path) -> None:
    file = shutil.copy(PACKAGED / "en-fr" / "packed.safetensors", tmp_path / "model.safetensors")
    for name in ("model", "model.safetensors"):
        runs = RunPool([Path(file)], {name: "de:nl"})
        assert [direction.code for _, direction in runs.directions()] == ["de:nl"]
