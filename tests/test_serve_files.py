"""Files go in and come out in their form; names cannot be guessed, and nothing is kept for long."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import own_loop
from foveate.run import Run
from foveate.serve.kept import Kept
from foveate.serve.settings import Limits
from serve_tools import asked, served
from small_runs import made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("files"), ["transformer"], steps=20)["transformer"]


@pytest.fixture(scope="module")
def app(run: Run) -> FastAPI:
    return served(run.path, Limits(file_characters=2000, file=20_000))


def send(app: FastAPI, name: str, data: bytes, **more: Any) -> tuple[httpx.Response, bytes]:
    """The answer, and the file that it names."""

    async def ask() -> tuple[httpx.Response, bytes]:
        async with asked(app) as client:
            fields = {"source": "en", "target": "fr"} | more
            answer = await client.post("/translate_file", data=fields, files={"file": (name, data)})
            if answer.status_code != 200:
                return answer, b""
            file = await client.get(answer.json()["translatedFileUrl"])
            assert file.status_code == 200 and "attachment" in file.headers["content-disposition"]
            return answer, file.content

    return own_loop.run(ask())


def test_a_text_keeps_its_lines(app: FastAPI, run: Run) -> None:
    answer, file = send(app, "été/../a b.TXT", b"the dog runs\n\n  a cat sleeps\n", source="auto")
    own = [str(one) for one in run.translate(["the dog runs", "a cat sleeps"])]
    assert file.decode() == f"{own[0]}\n\n  {own[1]}\n"
    assert answer.json()["translatedFileUrl"].endswith(".a_b_fr.txt")
    assert send(app, "a.txt", b"")[1] == b""


def test_html_keeps_its_tags(app: FastAPI, run: Run) -> None:
    _, file = send(app, "a.html", b"<p class='x'>the dog runs</p>")
    text = file.decode()
    assert text.startswith("<p class=") and text.endswith("</p>")
    assert str(run.translate(["the dog runs"])[0]) in text


@pytest.mark.parametrize(
    ("name", "data", "status", "said"),
    [
        ("a.exe", b"x", 400, ".exe is not supported; there are: .txt"),
        ("noending", b"x", 400, "no ending"),
        ("a.txt", b"\xff\xfe\0", 400, "not UTF-8"),
        ("a.txt", b"the dog runs\n" * 300, 413, "characters at once"),
        ("a.txt", b"x" * 30_000, 413, "bytes at most"),
    ],
)
def test_what_cannot_be_translated_is_refused(
    app: FastAPI, name: str, data: bytes, status: int, said: str
) -> None:
    answer, _ = send(app, name, data)
    assert answer.status_code == status and said in answer.json()["error"]


def test_a_file_must_be_one_and_must_be_there(app: FastAPI) -> None:
    async def ask() -> list[httpx.Response]:
        async with asked(app) as client:
            fields = {"source": "en", "target": "fr", "file": "a.txt"}
            paths = ("nothing.txt", "..%2F..%2Fetc%2Fpasswd", "a%00b")
            return [
                await client.post("/translate_file", data=fields),
                await client.post("/translate_file", json=fields),
                *[await client.get(f"/download_file/{path}") for path in paths],
            ]

    found = own_loop.run(ask())
    assert [one.status_code for one in found] == [400, 400, 404, 404, 404]
    assert all(list(one.json()) == ["error"] for one in found)


def test_what_is_kept_is_bounded_in_size_and_time() -> None:
    now = [0.0]
    kept = Kept(most=10, seconds=60, clock=lambda: now[0])
    first, second = kept.put(b"12345", "a.txt", "fr"), kept.put(b"12345", "a.txt", "fr")
    assert first != second and len(first) > 25
    assert kept.get(first) == kept.get(second) == b"12345"
    third = kept.put(b"1", "a.txt", "fr")
    assert kept.get(first) is None and kept.get(second) and kept.get(third) == b"1"
    now[0] = 61
    assert kept.get(second) is None is kept.get(third)
