"""The service answers as LibreTranslate does, and as the run itself does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import own_loop
from foveate.run import Run
from serve_tools import client_of, served
from small_runs import SUBJECTS, VERBS

WORDS = [*{w for s in SUBJECTS for w in s.split()}, *VERBS]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)


@pytest.fixture(scope="module")
def app(run: Run) -> FastAPI:
    return served(run.path)


def post(app: FastAPI, path: str = "/translate", **body: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(app) as client:
            return await client.post(path, **body)

    return own_loop.run(ask())


def ask(q: Any, **more: Any) -> dict[str, Any]:
    return {"q": q, "source": "en", "target": "fr"} | more


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=8))
def test_many_at_once_get_what_each_would_get_alone(app, run, requests) -> None:
    async def together() -> list[httpx.Response]:
        async with client_of(app) as client:
            sent = (client.post("/translate", json=ask(texts)) for texts in requests)
            return list(await asyncio.gather(*sent))

    for texts, answer in zip(requests, own_loop.run(together()), strict=True):
        alone = [run.translate([text])[0].hypotheses[0] for text in texts]
        assert answer.status_code == 200
        assert answer.json() == {"translatedText": alone}


def test_every_encoding_gives_the_same(app: FastAPI, run: Run) -> None:
    expected = {"translatedText": run.translate(["the dog runs"])[0].hypotheses[0]}
    fields = ask("the dog runs")
    parts = {name: (None, value) for name, value in fields.items()}
    raw = json.dumps(fields).encode()
    sent: list[dict[str, Any]] = [
        {"json": fields}, {"data": fields}, {"files": parts}, {"params": fields},
        {"content": raw}, {"content": raw, "headers": {"content-type": "text/plain"}},
    ]  # fmt: skip
    for body in sent:
        assert post(app, **body).json() == expected, body
    both = {"q": ["the dog runs", "a cat sleeps"], "source": "en", "target": "fr"}
    listed = post(app, data=both).json()["translatedText"]
    assert listed == post(app, json=both).json()["translatedText"] and len(listed) == 2


def test_what_a_form_does_not_escape_is_utf_8_as_curl_sends_it(app: FastAPI) -> None:
    text = "彼は été"
    body = f"q={text}&source=en&target=fr".encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    expected = post(app, json=ask(text, target="en")).json()
    assert expected == {"translatedText": text}
    same = body.replace(b"target=fr", b"target=en")
    assert post(app, content=same, headers=form).json() == expected
    events = post(app, "/v1/stream", content=body, headers=form).text
    assert events.startswith("event: sentence") and text in events
    wrong = post(app, content="q=été".encode("latin-1"), headers=form)
    assert wrong.status_code == 400 and "not UTF-8" in wrong.json()["error"]


def test_lines_stay_where_they_were(app: FastAPI, run: Run) -> None:
    item = run.translate(["the dog runs"])[0].hypotheses[0]
    text = "\n  the dog runs\t\r\n\r\n the dog runs \n"
    result = post(app, json=ask(text)).json()["translatedText"]
    assert result == f"\n  {item}\t\r\n\r\n {item} \n"
    empty: Any
    for empty in ("", " \n ", []):
        assert post(app, json=ask(empty)).json()["translatedText"] == empty


def test_alternatives_are_others_and_the_best_stays_first(app: FastAPI, run: Run) -> None:
    own = run.translate(["the dog runs"], num_hypotheses=4)[0].hypotheses
    result = post(app, json=ask("the dog runs", alternatives=3)).json()
    assert [result["translatedText"], *result["alternatives"]] == list(dict.fromkeys(own))
    several = post(app, json=ask(["the dog runs", ""], alternatives="3")).json()
    assert several["alternatives"] == [result["alternatives"], []]


def test_auto_tells_the_language(app: FastAPI) -> None:
    english, french = "the dog runs through the garden", "le chien court dans le jardin"
    result = post(app, json=ask([english, french], source="auto")).json()
    assert [item["language"] for item in result["detectedLanguage"]] == ["en", "fr"]
    assert result["translatedText"][1] == french, "what is in the language stays"
    single = post(app, json=ask(english, source="auto")).json()
    assert single["detectedLanguage"]["confidence"] > 50
    ranked = post(app, "/detect", data={"q": french}).json()
    assert ranked[0]["language"] == "fr" and 50 < ranked[0]["confidence"] <= 100
    assert post(app, "/detect", json={"q": "123"}).json() == [{"confidence": 0.0, "language": "en"}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"source": "en", "target": "fr"}, "q is missing"),
        ({"q": "a", "target": "fr"}, "source is missing"),
        ({"q": 3, "source": "en", "target": "fr"}, "q"),
        ({"q": ["a", None], "source": "en", "target": "fr"}, "q.1"),
        ({"q": "\ud800", "source": "auto", "target": "fr"}, "half a character"),
        (ask("a", format="pdf"), "format"),
        (ask("a", alternatives=-1), "alternatives"),
        (ask("a", alternatives=11), "alternatives: at most 10"),
        (ask("a", source="de"), "source: de is not supported; there are: en"),
        (ask("a", target="de"), "target: de is not supported; there are: fr"),
        ([1, 2], "no JSON object"),
    ],
)
def test_what_is_wrong_is_named(app: FastAPI, body: Any, message: str) -> None:
    answer = post(app, content=json.dumps(body).encode())
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"] and message in answer.json()["error"]


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"1e999", b"\0"])
def test_bodies_that_are_no_json_are_refused(app: FastAPI, body: bytes) -> None:
    for kind in ("application/json", "multipart/form-data; boundary=x", "x/y"):
        answer = post(app, content=body, headers={"content-type": kind})
        assert answer.status_code == 400 and list(answer.json()) == ["error"], kind


def test_other_pages(app: FastAPI) -> None:
    async def get() -> list[httpx.Response]:
        paths = ("/languages", "/health", "/ready", "/frontend/settings", "/docs", "/openapi.json")
        async with client_of(app) as client:
            return [await client.get(path) for path in (*paths, "/nothing", "/translate")]

    result = own_loop.run(get())
    assert [item.status_code for item in result] == [200] * 6 + [404, 405]
    assert result[0].json() == [{"code": "en", "name": "English", "targets": ["fr"]}]
    assert result[1].json() == {"status": "ok"}
    settings = result[3].json()
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    assert not settings["keyRequired"] and settings["charLimit"] == 50_000
    assert "<script" not in result[4].text and "http" not in result[4].text
    assert list(result[6].json()) == list(result[7].json()) == ["error"]


def test_a_folder_that_does_not_translate_is_refused(run: Run, tmp_path: Path) -> None:
    from foveate.config import ConfigError
    from foveate.server.runs import RunPool

    with pytest.raises(ConfigError, match=r"say --as transformer=en:fr"):
        RunPool([run.path])
    with pytest.raises(ConfigError, match="no run"):
        RunPool([tmp_path])
