"""Scores, alignments and streams give what the run gives."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import own_loop
from foveate.run import Run
from foveate.server.translation_schemas import Limits
from serve_tools import client_of, served
from tolerances import MODEL, near

PAIRS = [("the dog runs", "le chien court"), ("", "un"), ("a cat sleeps", "")]


@pytest.fixture(scope="module")
def app(run: Run) -> FastAPI:
    return served(run.path)


def post(app: FastAPI, path: str, **tree: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(app) as client:
            return await client.post(path, json={"source": "en", "target": "fr"} | tree)

    return own_loop.run(ask())


def test_scores_are_those_of_the_run(app: FastAPI, run: Run) -> None:
    result = post(app, "/v1/score", q=[s for s, _ in PAIRS], t=[t for _, t in PAIRS]).json()
    for item, own in zip(result, run.score(PAIRS), strict=True):
        assert item["logProbability"] == near(own.log_probability, terms=MODEL)
        assert item["tokens"] == own.tokens
    single = post(app, "/v1/score", q=PAIRS[0][0], t=PAIRS[0][1]).json()
    assert single[0]["logProbability"] == near(result[0]["logProbability"], terms=MODEL)


def test_links_are_those_of_the_run(app: FastAPI, run: Run) -> None:
    result = post(app, "/v1/align", q=[s for s, _ in PAIRS], t=[t for _, t in PAIRS]).json()
    own = [sorted(map(list, links)) for links in run.links(PAIRS[:1])]
    assert result[0]["links"] == own[0] and result[1]["links"] == [] == result[2]["links"]


def test_a_pair_of_too_many_tokens_is_refused_before_it_is_computed(app: FastAPI) -> None:
    long, began = "1 " * 4000, time.process_time()
    for path in ("/v1/align", "/v1/score"):
        answer = post(app, path, q=["the dog", long], t=["le chien", long])
        assert answer.status_code == 413 and "tokens; at most 1,024" in answer.json()["error"]
    assert time.process_time() - began < 5  # it took minutes and gigabytes


def test_a_bug_is_no_mistake_of_the_client(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> list[object]:
        return list(zip([1], [], strict=True))

    monkeypatch.setattr(Run, "score", broken)
    answer = post(app, "/v1/score", q="a", t="b")
    assert answer.status_code == 500 and "ValueError" in answer.json()["error"]


@pytest.mark.parametrize(
    "tree",
    [
        {"q": ["a", "b"], "t": ["a"]},
        {"q": "a\nb", "t": "a"},
        {"q": "a", "t": "b", "source": "auto"},
        {"q": "a", "t": "b", "source": "fr"},
        {"q": "a"},
    ],
)
def test_pairs_that_are_none_are_refused(app: FastAPI, tree: dict[str, Any]) -> None:
    for path in ("/v1/score", "/v1/align"):
        answer = post(app, path, **tree)
        assert answer.status_code == 400 and list(answer.json()) == ["error"]


def test_a_stream_that_takes_too_long_ends_with_an_error(run: Run) -> None:
    slow = served(run.path, Limits(seconds=0.05), max_delay=2.0)
    text = post(slow, "/v1/stream", q="the dog runs").text
    assert text.startswith("event: error") and "longer" in text


def test_a_stream_gives_sentence_by_sentence_and_then_the_whole(app: FastAPI, run: Run) -> None:
    text = "the dog runs\n\na cat sleeps\n"
    answer = post(app, "/v1/stream", q=text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in blocks]
    trees = [json.loads(lines[1].removeprefix("data: ")) for lines in blocks]
    assert names == ["sentence", "sentence", "done"]
    own = [str(item) for item in run.translate(["the dog runs", "a cat sleeps"])]
    assert [tree["translatedText"] for tree in trees[:2]] == own
    assert trees[2] == post(app, "/translate", q=text).json()
    assert post(app, "/v1/stream", q=text, target="de").status_code == 400
    same = post(app, "/v1/stream", q=text, target="en").text
    assert same.startswith("event: done") and json.dumps(text)[1:-1] in same
