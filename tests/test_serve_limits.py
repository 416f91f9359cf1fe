"""No request holds up others: every field of every route at its limit, and beyond it."""

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel

from foveate.run import Run
from foveate.serve.deepl import DeeplBody, GlossaryBody
from foveate.serve.translation_schemas import DetectBody, FileBody, Limits, TranslateBody
from serve_tools import Program, program

LIMITS = Limits()
SECONDS = 1.0  # until /health answers: 0.2 on a machine that nothing else uses
TRIES = 3  # a request that holds up others does so each time, a busy machine now and then
STATES = (200, 201, 400, 404, 413, 429, 456, 504)
ROUTES: dict[str, type[BaseModel]] = {
    "/translate": TranslateBody, "/detect": DetectBody, "/translate_file": FileBody,
    "/v2/translate": DeeplBody, "/v2/glossaries": GlossaryBody,
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "q": "the dog runs", "t": "le chien", "source": "en", "target": "fr", "text": "the dog runs",
    "source_lang": "en", "target_lang": "fr", "name": "a", "entries": "dog\tchien",
}  # fmt: skip
SENTENCE = "the dog sees a cat "


def texts() -> Iterator[str | list[str]]:
    """Texts of as many characters as a request may have, and of as many as a body."""
    for part in ("a", "a. ", SENTENCE, "<b>a</b>", "%d {x} "):
        yield (part * LIMITS.characters)[: LIMITS.characters]
    yield [(SENTENCE * 50)[:50]] * LIMITS.items
    yield ("é" * LIMITS.body)[: LIMITS.body - 1000]
    yield ["a"] * (LIMITS.body // 6)


def phrases() -> Iterator[str | list[str]]:
    """Phrases that occur again and again in a text, all but their end."""
    yield [f"{SENTENCE * 4}{n}"[:100] for n in range(LIMITS.phrases)]
    yield ["a " * 48 + f"b{n}" for n in range(LIMITS.phrases)]
    yield [str(n) for n in range(LIMITS.body // 12)]


def pairs(several: bool) -> Iterator[Any]:
    """Terms, or sentences of a memory: the most entries, variants, characters."""
    numbers = range(LIMITS.entries)
    trees: list[dict[str, Any]] = [
        {f"the dog {n}": "le chien" for n in numbers},
        {f"{SENTENCE * 15}{n}": "le chien" for n in numbers},
        {SENTENCE[:k] + chr(33 + n): "le chien" for n in range(90) for k in range(19)},
        {str(n): "x" for n in range(LIMITS.body // 16)},
    ]
    if several:
        trees += [
            {"the dog": [str(n) for n in range(400_000 // 2)]},
            {f"dog {n}": ["chien", "chienne", "toutou", "cabot"] for n in range(4000)},
            {"dog": [["x"]] * 100_000, "cat": {}},
        ]
    yield from trees
    yield "\n".join(f"{n}\t{n}" for n in range(LIMITS.body // 16))
    yield "dog\t" + "|".join(map(str, range(LIMITS.body // 8)))
    yield json.dumps(trees[-1])


def values(name: str, field: Any) -> Iterator[Any]:
    """What a field may hold at most, and more; the wrong types too."""
    kinds = str(field.annotation)
    if name in ("glossary", "memory"):
        yield from pairs(name == "glossary")
    elif name in ("protect", "ban"):
        yield from phrases()
    elif name in ("q", "t", "text"):
        yield from texts()
    elif name == "entries":
        yield from (pair for pair in pairs(False) if isinstance(pair, str))
        yield "\n" * (LIMITS.body - 1000)
    elif "int" in kinds or "float" in kinds:
        yield from (10**300, -1, int("9" * 4000))
    elif "str" in kinds or get_args(field.annotation):
        yield "x" * (LIMITS.body - 1000)


def bodies(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    fields = ROUTES[path].model_fields
    needed = {name: DEFAULTS[name] for name in fields if name in DEFAULTS}
    if "ban" in fields and path != "/translate_file":
        half = LIMITS.characters // 2
        needed["q"] = ("a " * half)[:half] + (SENTENCE * half)[:half]
    for name, field in fields.items():
        for value in values(name, field):
            yield name, needed | {name: value}
    yield "unknown", needed | {f"alternative{n}": 1 for n in range(50_000)}
    yield "long name", needed | {"x" * (LIMITS.body - 1000): 1}


def queued(*processes: int) -> dict[str, float]:
    """Seconds that each thread has waited for a core; nothing where Linux does not say so."""
    files = [file for p in processes for file in Path(f"/proc/{p}/task").glob("*/schedstat")]
    with contextlib.suppress(OSError):  # a thread that has just ended
        return {str(file): int(file.read_text("utf-8").split()[1]) / 1e9 for file in files}
    return {}


class Health:
    """Asks /health all the time; ``worst`` is the longest wait.

    Time in which a thread of the server, or of the test, waited for a core does not count: a busy
    machine is no fault of the server.
    """

    def __init__(self, server: Program) -> None:
        self.url, self.process = server.url, server.process.pid
        self.worst, self.asked = 0.0, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Health":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._end.wait(0.02):
                began, before = time.perf_counter(), queued(self.process, os.getpid())
                assert client.get(f"{self.url}/health").status_code == 200
                waited, after = time.perf_counter() - began, queued(self.process, os.getpid())
                lost = max((after[name] - before.get(name, 0) for name in after), default=0.0)
                self.worst = max(self.worst, waited - lost)
                self.asked += 1


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Program]:
    with program(run.path, "--as", "en:fr", "--no-studio", "--seconds", "1.5") as result:
        httpx.post(f"{result.url}/translate", json=DEFAULTS, timeout=60)
        yield result


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    """The answer to a body: a form with a file for the route that takes files."""
    if not url.endswith("/translate_file"):
        return httpx.post(url, json=body, timeout=60)
    form = {name: v if isinstance(v, str) else json.dumps(v) for name, v in body.items()}
    files = {"file": ("a.txt", (SENTENCE * 2000).encode())}
    return httpx.post(url, data=form, files=files, timeout=60)


@pytest.mark.parametrize("path", ROUTES)
def test_no_field_of_a_request_holds_up_health(server: Program, path: str) -> None:
    worst: dict[str, float] = {}
    for name, body in bodies(path):
        shortest = math.inf
        for _ in range(TRIES):
            with Health(server) as health:
                answer = post(f"{server.url}{path}", body)
            assert answer.status_code in STATES, (name, answer.status_code, answer.text[:200])
            shortest = min(shortest, health.worst)
            if shortest < SECONDS:
                break
        worst[name] = max(worst.get(name, 0.0), shortest)
    print(path, {name: round(value, 3) for name, value in worst.items()})
    assert max(worst.values()) < SECONDS, worst
