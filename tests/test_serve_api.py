"""The API of the translator: its schema, version 1, and what it answers."""

import json
import warnings
from math import exp
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foveate.config import ConfigError
from foveate.documents.alternatives import formality
from foveate.run import Run
from foveate.serve.runs import RunPool
from serve_tools import get, post, sent, served
from small_runs import SUBJECTS, VERBS

# ---- The service answers as LibreTranslate does, and as the run itself does
WORDS = [*{w for s in SUBJECTS for w in s.split()}, *VERBS]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)


def ask(q: Any, **more: Any) -> dict[str, Any]:
    return {"q": q, "source": "en", "target": "fr"} | more


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=8))
def test_many_at_once_get_what_each_would_get_alone(app, run, requests) -> None:
    answers = sent(app, *({"json": ask(texts)} for texts in requests), at_once=True)
    for texts, answer in zip(requests, answers, strict=True):
        alone = [run.translate([text])[0].hypotheses[0] for text in texts]
        assert answer.status_code == 200
        assert answer.json() == {"translatedText": alone}


def test_every_encoding_gives_the_same(app: FastAPI, run: Run) -> None:
    expected = {"translatedText": run.translate(["the dog runs"])[0].hypotheses[0]}
    fields = ask("the dog runs")
    parts = {name: (None, value) for name, value in fields.items()}
    raw = json.dumps(fields).encode()
    bodies: list[dict[str, Any]] = [
        {"json": fields}, {"data": fields}, {"files": parts}, {"params": fields},
        {"content": raw}, {"content": raw, "headers": {"content-type": "text/plain"}},
    ]  # fmt: skip
    for body in bodies:
        assert post(app, **body).json() == expected, body
    both = ask(["the dog runs", "a cat sleeps"])
    listed = post(app, data=both).json()["translatedText"]
    assert listed == post(app, json=both).json()["translatedText"] and len(listed) == 2


def test_what_a_form_does_not_escape_is_utf_8_as_curl_sends_it(app: FastAPI) -> None:
    text = "彼は été"
    body = f"q={text}&source=en&target=en".encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert post(app, content=body, headers=form).json() == {"translatedText": text}
    wrong = post(app, content="q=été".encode("latin-1"), headers=form)
    assert wrong.status_code == 400 and "not UTF-8" in wrong.json()["error"]


def test_lines_stay_where_they_were(app: FastAPI, run: Run) -> None:
    item = run.translate(["the dog runs"])[0].hypotheses[0]
    text = "\n  the dog runs\t\r\n\r\n the dog runs \n"
    result = post(app, json=ask(text)).json()["translatedText"]
    assert result == f"\n  {item}\t\r\n\r\n {item} \n"
    for empty in ("", " \n ", []):
        assert post(app, json=ask(empty)).json()["translatedText"] == empty


def test_alternatives_are_others_and_the_best_stays_first(app: FastAPI, run: Run) -> None:
    own = run.translate(["the dog runs"], num_hypotheses=4)[0].hypotheses
    result = post(app, json=ask("the dog runs", alternatives=3)).json()
    assert [result["translatedText"], *result["alternatives"]] == list(dict.fromkeys(own))
    several = post(app, json=ask(["the dog runs", ""], alternatives="3")).json()
    assert several["alternatives"] == [result["alternatives"], []]


def test_alternatives_say_how_they_differ(app: FastAPI, run: Run) -> None:
    text = "the dog runs\nthe cat sleeps"
    result = post(app, json=ask(text, alternatives=3, quality=True)).json()
    own = [run.translate([part], num_hypotheses=4)[0] for part in text.splitlines()]
    best = sum(each.outputs[0].log_probability for each in own)
    for other, one in zip(result["alternatives"], result["differences"], strict=True):
        assert one["share"] == pytest.approx(exp(one["logProbability"] - best), rel=1e-4)
        assert one["changes"] and one["formality"] == ""
        for words, instead in one["changes"]:
            assert words in result["translatedText"] and instead in other and words != instead
    assert "differences" not in post(app, json=ask(text, alternatives=3)).json()


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Comment vas-tu ? Je t’écoute.", "fr", "informal"),
        ("Comment allez-vous ?", "fra", ""),
        ("Comment allez-vous ?", "fr-CA", "formal"),
        ("A-t-il faim ?", "fr", ""),
        ("Tu viens avec vous ?", "fr", ""),
        ("Haben Sie Zeit?", "de", "formal"),
        ("Sie geht. Sie schläft.", "de", ""),
        ("Lei è qui.", "it", ""),
        ("Come sta Lei?", "it", "formal"),
    ],
)
def test_words_of_address_tell_the_formality(text: str, language: str, expected: str) -> None:
    assert formality(text, language) == expected


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
        (ask("a", format="pdf"), "format"),
        (ask("a", alternatives=-1), "alternatives"),
        (ask("a", alternatives=11), "alternatives: at most 10"),
        (ask("a", source="de"), "source: de is not supported; there are: en"),
        (ask("a", target="de"), "target: de is not supported; there are: fr"),
        ([1, 2], "not a JSON object"),
    ],
)
def test_what_is_wrong_is_named(app: FastAPI, body: Any, message: str) -> None:
    answer = post(app, content=json.dumps(body).encode())
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"] and message in answer.json()["error"]


@pytest.mark.parametrize(
    "more", ['"q": "b"', '"target": "de"', '"glossary": {"a": "b", "a": "c"}', '"x": 1, "x": 2']
)
def test_what_is_there_twice_is_refused(app: FastAPI, more: str) -> None:
    body = f'{{"q": "a", "source": "en", "target": "fr", {more}}}'
    doubled = ask("a", memory='{"a": "b", "a": "c"}')  # in a field of a form
    for answer in (post(app, content=body.encode()), post(app, json=doubled)):
        assert answer.status_code == 400 and "twice" in answer.json()["error"]


def test_null_is_a_field_that_is_absent(app: FastAPI) -> None:
    absent = dict.fromkeys(("api_key", "format", "alternatives", "glossary", "fuzzy", "ban"))
    assert post(app, json=ask("a") | absent).json() == post(app, json=ask("a")).json()
    assert post(app, json=ask(None)).json() == {"error": "invalid request: q is missing"}
    text, nulls = {"text": ["a"], "target_lang": "FR"}, ("source_lang", "glossary_id", "formality")
    both = [post(app, "/v2/translate", json=text | dict.fromkeys(each)) for each in (nulls, ())]
    assert both[0].status_code == 200 and both[0].json() == both[1].json()


def test_a_page_has_a_head_and_a_refusal_names_the_methods(app: FastAPI) -> None:
    paths = ("/health", "/languages", "/nothing", "/translate")
    *heads, head = sent(app, *({"method": "HEAD", "url": path} for path in paths))
    [refused] = get(app, "/translate")
    assert [each.status_code for each in heads] == [200, 200, 404]
    assert not any(each.content for each in heads) and int(heads[0].headers["content-length"]) > 9
    assert refused.status_code == head.status_code == 405 and refused.headers["allow"] == "POST"


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"1e999", b"\0"])
def test_bodies_that_are_no_json_are_refused(app: FastAPI, body: bytes) -> None:
    for kind in ("application/json", "multipart/form-data; boundary=x", "x/y"):
        answer = post(app, content=body, headers={"content-type": kind})
        assert answer.status_code == 400 and list(answer.json()) == ["error"], kind


def test_other_pages(app: FastAPI) -> None:
    paths = ("/languages", "/health", "/ready", "/frontend/settings", "/openapi.json")
    result = get(app, *paths, "/nothing", "/translate")
    assert [item.status_code for item in result] == [200] * 5 + [404, 405]
    assert result[0].json() == [{"code": "en", "name": "English", "targets": ["fr"]}]
    assert result[1].json() == {"status": "ok"}
    settings = result[3].json()
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    assert not settings["keyRequired"] and settings["charLimit"] == 50_000
    assert list(result[5].json()) == list(result[6].json()) == ["error"]


def test_a_folder_that_does_not_translate_is_refused(run: Run, tmp_path: Path) -> None:

    with pytest.raises(ConfigError, match=r"set them with --as transformer=en:fr"):
        RunPool([run.path])
    with pytest.raises(ConfigError, match="is not a run"):
        RunPool([tmp_path])


def test_a_bug_is_no_mistake_of_the_client(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> list[object]:
        return list(zip([1], [], strict=True))

    monkeypatch.setattr(Run, "translate", broken)
    answer = post(app, json=ask("a"))
    assert answer.status_code == 500 and "ValueError" in answer.json()["error"]


# ---- Requests made from the OpenAPI document: never a fault, and every answer as it is described
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance
ROUTES = [("POST", f"/{name}") for name in ("translate", "detect", "translate_file")]
PAGES = ("languages", "frontend/settings", "health", "ready", "download_file/{name}", "metrics")
ROUTES += [("GET", f"/{name}") for name in PAGES]
OTHERS = [("POST", "/v1/chat/completions")]  # tests/test_serve_chats.py and test_serve_deepl.py
OTHERS += [("POST", f"/v2/{name}") for name in ("translate", "glossaries")]
OF_DEEPL = ("languages", "usage", "glossary-language-pairs", "glossaries", "glossaries/{id}")
OTHERS += [("GET", f"/v2/{name}") for name in (*OF_DEEPL, "glossaries/{id}/entries")]
OTHERS += [("DELETE", "/v2/glossaries/{id}")]


def test_every_route_is_in_the_document(run: Run) -> None:
    tree = served(run.path).openapi()
    listed = [(m.upper(), path) for path, methods in tree["paths"].items() for m in methods]
    assert sorted(listed) == sorted([*ROUTES, *OTHERS])
    page = (Path(__file__).parent.parent / "docs" / "guide" / "serving.md").read_text("utf-8")
    named = ((path, f"`{path.partition('{')[0]}") for _, path in [*ROUTES, *OTHERS])
    assert [path for path, name in named if name not in page] == []


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route[1])
def test_generated_requests_get_the_answers_that_are_described(run, route) -> None:
    app = served(run.path, hosts=None)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(schema[route[1]][route[0]].as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()
