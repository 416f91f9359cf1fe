"""A service of tiny runs for tests: in this process, or as a program of its own."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

import own_loop
from foveate.serve.batching import Batching
from foveate.serve.connections import DrainingServer, uvicorn_config
from foveate.serve.keys import KeyFile
from foveate.serve.runs import RunPool, equip
from foveate.serve.translation import Service
from foveate.serve.translation_api import translation_application
from foveate.serve.translation_schemas import Limits

ROOT = Path(__file__).parent.parent
NAMED = {"transformer": "en:fr", "rnn": "en:fr"}


def served(
    folder: Path, limits: Limits | None = None, keys: KeyFile | None = None, **choices: Any
) -> FastAPI:
    """The service of one run from English to French; ``options`` and ``rules`` as it takes them."""
    bounds: dict[str, Any] = {"max_delay": 0.002, "queue": 400_000}
    bounds |= {name: choices.pop(name) for name in (*bounds, "tokens") if name in choices}
    batching = Batching(**bounds)
    pool = RunPool([folder], {folder.name: "en:fr"}, batching=batching)
    equip(pool, **choices.pop("options", {}))
    service = Service(pool, limits or Limits(), keys, choices.pop("rules", None))
    return translation_application(service, "test", **choices)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    """A client that speaks with an application in this process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def sent(app: FastAPI, *requests: Mapping[str, Any], at_once: bool = False) -> list[httpx.Response]:
    """The answers to requests, each of which is POST /translate as far as it says nothing else."""

    async def main() -> list[httpx.Response]:
        default = {"method": "POST", "url": "/translate"}
        async with client_of(app) as client:
            answers = [client.request(**default | request) for request in requests]
            if at_once:
                return list(await asyncio.gather(*answers))
            return [await answer for answer in answers]

    return own_loop.run(main())


def post(app: FastAPI, path: str = "/translate", **body: Any) -> httpx.Response:
    [answer] = sent(app, {"url": path} | body)
    return answer


def asked(app: FastAPI, q: Any = "the dog runs", **more: Any) -> httpx.Response:
    """The answer to a text from English to French, or to several."""
    return post(app, json={"q": q, "source": "en", "target": "fr"} | more)


def ask(app: FastAPI, q: Any = "the dog runs", **more: Any) -> dict[str, Any]:
    """The fields of such an answer, which is no refusal."""
    answer = asked(app, q, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(app: FastAPI, *paths: str) -> list[httpx.Response]:
    return sent(app, *({"method": "GET", "url": path} for path in paths))


def upload(app: FastAPI, name: str, data: bytes, **more: Any) -> tuple[httpx.Response, bytes]:
    """The answer, and the file that it names."""
    fields = {"source": "en", "target": "fr"} | more
    answer = post(app, "/translate_file", data=fields, files={"file": (name, data)})
    if answer.status_code != 200:
        return answer, b""
    [file] = get(app, answer.json()["translatedFileUrl"])
    assert file.status_code == 200 and "attachment" in file.headers["content-disposition"]
    return answer, file.content


@contextmanager
def begun(app: FastAPI, head_seconds: float = 20.0) -> Iterator[DrainingServer]:
    """The server of an application on a real socket, in a thread of this process."""
    server = DrainingServer(uvicorn_config(app, head_seconds, drain=5))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def port_of(server: DrainingServer) -> int:
    """Where it listens."""
    return int(server.servers[0].sockets[0].getsockname()[1])


@contextmanager
def running(app: FastAPI, head_seconds: float = 20.0) -> Iterator[int]:
    """The port of such a server."""
    with begun(app, head_seconds) as server:
        yield port_of(server)


def until(true: Callable[[], object], seconds: float = 20) -> None:
    """Wait until a function says so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


class Program:
    """``foveate serve``, or the studio, as a process; its log is read as it comes."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        verb: str = "serve",
    ) -> None:
        command = [sys.executable, "-m", "foveate", verb, *map(str, arguments), "--port", "0"]
        own = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **(environment or {})}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | own
        )
        self.log: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        output = self.process.stdout.readline()
        if "http://" not in output:
            self.close()
            raise RuntimeError("\n".join(self.other))
        self.url = output.split()[1].rstrip("/")
        self.port = int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.other.append(line)

    def end(self, seconds: float = 30) -> int:
        """Stop it as systemd would; its exit code."""
        self.process.terminate()
        code = self.process.wait(seconds)
        self.close()
        return code

    def close(self) -> None:
        """End it if it has not, and close its streams."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def program(
    *arguments: str | Path, environment: Mapping[str, str] | None = None, verb: str = "serve"
) -> Iterator[Program]:
    """The program, ended whatever happens."""
    result = Program(arguments, environment, verb)
    try:
        yield result
    finally:
        result.close()
