"""The studio's API over small runs of every family: what it streams is what the runs answer."""

import base64
import gzip
import json
import math
import operator
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from foveate.data.tokenizer import EOS
from foveate.look.draw.parts import Numbers
from foveate.look.draw.sheets import SheetDrawing
from foveate.run import Run
from foveate.studio.api import studio_application
from foveate.studio.state import StudioState
from small_runs import CONFIGS, made
from tolerances import MODEL, ROW, near

API = "/api/v1"
GREEDY: dict[str, Any] = {"text": "the dog runs", "search": {"kind": "greedy"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return made(tmp_path_factory.mktemp("studio"), list(CONFIGS), steps=30)


def client_of(*folders: Path, **how: Any) -> TestClient:
    app = studio_application([*folders], **how)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(runs: dict[str, Run]) -> Iterator[TestClient]:
    with client_of(runs["rnn"].path.parent) as client:
        yield client


def streamed(client: TestClient, run: str, ask: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of an answer."""
    accept = {"accept": "text/event-stream"}
    with client.stream("POST", f"{API}/runs/{run}/answer", json=ask, headers=accept) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).strip().split("\n\n")
    result = []
    for block in blocks:
        name, data = block.split("\n")
        result.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {result[-1]['event']}"
    return result


def folded(client: TestClient, run: str, ask: dict[str, Any]) -> dict[str, Any]:
    """An answer all together."""
    answer = client.post(f"{API}/runs/{run}/answer", json=ask)
    assert answer.status_code == 200, answer.text
    return answer.json()


def best(client: TestClient, run: str, ask: dict[str, Any]) -> dict[str, Any]:
    """The first hypothesis of an answer."""
    return folded(client, run, ask)["done"]["hypotheses"][0]


def test_runs_are_listed_without_being_loaded(client: TestClient, runs: dict[str, Run]) -> None:
    result = {run["id"]: run for run in client.get(f"{API}/runs").json()["runs"]}
    assert set(result) == set(runs)
    ends = {name: (run["reads"], run["gives"]) for name, run in result.items()}
    assert (ends["rnn"], ends["vit"]) == (("text", "text"), ("picture", "label"))
    assert ends["forecaster"][1] == "forecast"
    for name, run in runs.items():
        assert result[name]["parameters"] == sum(p.numel() for p in run.model.parameters())
        assert result[name]["step"] == 30
        assert "step" not in result[name]["figures"] and result[name]["figures"]


def test_a_folder_that_cannot_be_read_takes_nothing_away(runs: dict[str, Run], tmp_path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.toml").write_text('[task]\nkind = "telepathy"\n')
    (tmp_path / "old" / "log.jsonl").write_text('{"event": "train", "step": 3, "loss": 1.0}\n')
    with client_of(tmp_path, runs["rnn"].path) as client:
        result = client.get(f"{API}/runs").json()
        assert [run["id"] for run in result["runs"]] == ["rnn"]
        assert "telepathy" in result["leftOut"]["old"]
        trainings = client.get(f"{API}/trainings").json()["trainings"]
        assert [(item["id"], item["step"]) for item in trainings] == [("old", 3), ("rnn", 30)]
        assert client.get(f"{API}/runs/old").status_code == 422


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_says_what_it_can_and_examples_can_be_asked(client: TestClient, name: str) -> None:
    result = client.get(f"{API}/runs/{name}").json()
    attends = name != "language"
    assert ("attention" in result["can"]) == ("silence" in result["can"]) == attends
    assert ("force" in result["can"]) == (name in ("rnn", "transformer", "language"))
    fits = {view["name"]: view["fits"] for view in result["views"]}
    assert fits["attention"] == attends
    assert fits["gates"] == ("gates" in result["can"])
    assert all(view["reason"] for view in result["views"] if not view["fits"])
    if result["search"]:
        assert {"beam", "greedy", "sample"} <= set(result["search"]["kinds"])
        assert result["search"]["kinds"]["sample"]["temperature"] == 1.0
    assert name != "classifier" or result["labels"] == ["animal", "human"]
    assert name != "forecaster" or result["channels"] == ["season", "other"]
    shown = client.get(f"{API}/runs/{name}/examples?most=2").json()
    assert len(shown["examples"]) == 2 and not shown["note"]
    for example in shown["examples"]:
        ask = {key: example[key] for key in ("text", "picture", "date")}
        ask |= {"search": {"maxExtra": 4}} if name == "language" else {}
        assert folded(client, name, ask)["done"]["event"] == "done"


@pytest.mark.parametrize("name", ["rnn", "transformer"])
@pytest.mark.parametrize("search", [{"kind": "greedy"}, {"kind": "beam", "beamSize": 3}])
def test_what_is_streamed_is_what_the_run_translates(client, runs, name, search) -> None:
    for sentence in ("the dog runs", "a girl sings"):
        [expected] = runs[name].translate([sentence], beam_size=search.get("beamSize", 1))
        events = streamed(client, name, {"text": sentence, "search": search})
        assert events[0]["event"] == "start" and events[-1]["event"] == "done"
        assert [token["text"].strip() for token in events[0]["source"]] == sentence.split()
        first = events[-1]["hypotheses"][0]
        own = first["tokens"]
        assert first["text"] == expected.hypotheses[0] == "".join(token["text"] for token in own)
        assert sum(token["logP"] for token in own) == near(first["logP"], terms=MODEL)
        assert [t["id"] for t in own if not t["special"]] == expected.outputs[0].ids
        tokens = [event for event in events if event["event"] == "token"]
        beams = [event for event in events if event["event"] == "beam"]
        if search["kind"] == "greedy":
            assert tokens == own and not beams
            continue
        assert first["score"] == near(expected.scores[0])
        nodes = {node["id"]: node for beam in beams for node in beam["nodes"]}
        path = [nodes[i]["text"] for i in first["path"]]
        assert path[:-1] == [token["text"] for token in own][:-1]
        assert nodes[first["path"][-1]]["state"] == "done"
        assert max(len(beam["nodes"]) for beam in beams) <= 2 * 3


def test_words_that_training_never_showed_are_named(client: TestClient) -> None:
    [start, *_] = streamed(client, "rnn", {"text": "The zebra runs , runs"})
    assert start["unknown"] == ["zebra"]


def test_probabilities_are_those_of_the_model(client: TestClient, runs: dict[str, Run]) -> None:
    answer = best(client, "rnn", GREEDY)
    [scored] = runs["rnn"].score([("the dog runs", answer["text"])])
    assert [token["logP"] for token in answer["tokens"]] == near(scored.token_log_probabilities)
    for token in answer["tokens"]:
        p = [item["p"] for item in token["alternatives"]]
        assert p == sorted(p, reverse=True) and len(p) == 8
        assert token["alternatives"][0]["id"] == token["id"]
        assert math.log(p[0]) == near(token["logP"])
        assert 0 <= token["entropy"] <= math.log(28) + 1e-5


def test_a_forced_alternative_stands_and_the_rest_follows(client, runs) -> None:
    first = best(client, "transformer", GREEDY)["tokens"]
    other = first[1]["alternatives"][1]
    prefix = [first[0]["id"], other["id"]]
    forced = best(client, "transformer", GREEDY | {"prefix": prefix})
    assert [token["id"] for token in forced["tokens"][:2]] == prefix
    for before, after in zip(first[:2], forced["tokens"], strict=False):
        again = {item["id"]: item["p"] for item in after["alternatives"]}
        p = {item["id"]: item["p"] for item in before["alternatives"]}
        assert again == pytest.approx(p), "what else might stand there is still to be had"
    assert forced["tokens"][1]["logP"] == near(math.log(other["p"]))
    begun = best(client, "transformer", GREEDY | {"beginning": "un chat"})
    [expected] = runs["transformer"].translate(["the dog runs"], beam_size=1, prefix="un chat")
    assert begun["text"] == expected.hypotheses[0] and begun["text"].startswith("un chat")


def test_a_silenced_head_changes_what_is_said(client: TestClient) -> None:
    heads = [{"block": "cross_attention", "layer": layer} for layer in (0, 1)]
    plain, silent, again = (
        best(client, "transformer", GREEDY | more) for more in ({}, {"silenced": heads}, {})
    )
    assert silent["tokens"][0]["logP"] != near(plain["tokens"][0]["logP"], terms=ROW)
    assert again == plain, "the head speaks again"
    other = best(client, "transformer", GREEDY | {"text": "a girl sings", "silenced": heads})
    assert other["text"] == silent["text"], "it cannot see its source"


def test_a_text_goes_on_as_the_run_generates(client: TestClient, runs: dict[str, Run]) -> None:
    search = {"kind": "sample", "seed": 5, "temperature": 0.8, "maxExtra": 12}
    *events, done = streamed(client, "language", {"text": "the d", "search": search})
    [expected] = runs["language"].generate(["the d"], max_length=12, seed=5, temperature=0.8)
    tokens = [event for event in events if event["event"] == "token"]
    text = "".join(token["text"] for token in tokens)
    assert done["hypotheses"][0]["text"] == expected.text == text
    assert len(tokens) == 12 and len({token["i"] for token in tokens}) == 12
    ends = [token for token in tokens if token["id"] == EOS]
    assert all(token["text"] == "\n" and not token["special"] for token in ends)
    other = best(client, "language", {"text": "the d", "search": search | {"seed": 6}})
    assert other["text"] != expected.text


def test_labels_and_pictures_and_forecasts(client: TestClient, runs: dict[str, Run]) -> None:
    result = folded(client, "classifier", {"text": "the dog runs"})["done"]
    [expected] = runs["classifier"].classify(["the dog runs"])
    p = {item["label"]: item["p"] for item in result["labels"]}
    assert p == pytest.approx(expected.probabilities)
    result = folded(client, "vit", {"picture": "3"})["done"]
    [expected] = runs["vit"].classify([3])
    assert result["labels"][0]["label"] == expected.label
    uri = result["drawings"][0]["image"]
    again = folded(client, "vit", {"picture": uri})["done"]
    assert again["labels"][0]["p"] == near(result["labels"][0]["p"], terms=MODEL)
    ahead = folded(client, "forecaster", {"channel": "season"})["done"]["drawings"]
    output = runs["forecaster"].answer([None])[0]
    assert len(ahead) == 1
    series, forecast = ahead[0]["curves"]
    assert forecast["y"][-4:] == near(output.values[:, 0].tolist())
    assert forecast["high"][-4:] == near(output.quantiles[:, 0, -1].tolist())
    assert series["y"][-4:] == [None] * 4, "nobody knows what will come"
    past = folded(client, "forecaster", {"channel": "season", "date": "2008-06-01"})
    series, forecast = past["done"]["drawings"][0]["curves"]
    assert series["y"][-4:] == [5, 6, 7, 8], "actual rows are shown beside"
    own = folded(client, "forecaster", {"csv": CSV})["done"]["drawings"]
    assert len(own) == 2 and own[0]["labels"][-4:] == ["2021-01", "2021-02", "2021-03", "2021-04"]


CSV = "date,season,other\n" + "".join(f"2020-{n:02d}-01,{n},1\n" for n in range(1, 13))
HOSTILE = "</script><img src=x onerror=alert(1)> \u202eevil\u2069 a\u200bb \U0001f642 \\u0000"


def test_hostile_text_is_only_text(client: TestClient) -> None:
    for name in ("rnn", "classifier", "language"):
        search = {"search": {"maxExtra": 3}} if name == "language" else {}
        answer = client.post(f"{API}/runs/{name}/answer", json={"text": HOSTILE} | search)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        source = answer.json()["start"]["source"]
        assert all(HOSTILE[t["start"] : t["end"]] == t["text"] for t in source)
    events = streamed(client, "classifier", {"text": "a\nevent: done\ndata: {}\n\n"})
    assert [event["event"] for event in events] == ["start", "done"], "no event is smuggled in"
    assert client.get(f"{API}/runs/%3Cscript%3E").status_code == 404
    json_ = {"headers": {"content-type": "application/json"}}
    surrogate = client.post(f"{API}/runs/rnn/answer", content=b'{"text": "\\ud800"}', **json_)
    assert surrogate.status_code == 422


@pytest.mark.parametrize("name", CONFIGS)
def test_every_view_that_fits_is_drawn(client: TestClient, name: str) -> None:
    detail = client.get(f"{API}/runs/{name}").json()
    example = client.get(f"{API}/runs/{name}/examples?most=1").json()["examples"][0]
    for view in detail["views"]:
        reads = {field["name"] for field in view["fields"]}
        question = {"text": example["text"] or example["date"], "image": example["picture"]}
        requested = {key: v for key, v in question.items() if v and key in reads}
        drawn = client.post(f"{API}/runs/{name}/views/{view['name']}", json=requested)
        assert drawn.status_code == (200 if view["fits"] else 422), (view["name"], drawn.text)
        if view["fits"]:
            assert drawn.json()["drawings"]
        else:
            assert view["reason"] in drawn.json()["error"]


def test_a_view_of_two_runs_and_one_with_a_silenced_head(client: TestClient) -> None:
    both = client.post(f"{API}/views/curves", json={"runs": ["rnn", "transformer"]}).json()
    assert len(both["drawings"][0]["curves"]) == 2
    head = {"block": "decoder.cross_attention", "layer": 1, "head": 0}
    question = {"text": "the dog runs", "target": "le chien"}
    ask = {"runs": ["transformer"], "question": question, "silenced": [head]}
    drawn = client.post(f"{API}/views/attention", json=ask).json()["drawings"][0]
    block = next(b for b in drawn["blocks"] if b["name"] == "decoder.cross_attention")
    layer = block["layers"][1]
    weights = np.frombuffer(base64.b64decode(layer["data"]), "<u2").reshape(layer["shape"])
    assert not weights[0].any() and weights[1].any()


SECRET = __file__  # no request names a file
ATTENTION = "runs/rnn/views/attention"
BAD = [
    (ATTENTION[:-5], {}, 404, "available: attention"),
    ("runs/none/views/attention", {}, 404, "available:"),
    (ATTENTION, {"text": "a", "block": "middle"}, 422, "middle"),
    (ATTENTION, {"texts": "a"}, 422, "texts is not a field"),
    ("runs/vit/views/attention", {"image": SECRET}, 422, "not a picture"),
    ("runs/vit/answer", {"picture": SECRET}, 422, "not a picture"),
    ("runs/vit/answer", {"picture": "data:image/png;base64,!"}, 422, "is damaged"),
    ("runs/rnn/views/growing", {"gold": SECRET}, 422, "gold"),
    ("runs/rnn/views/growing", {"hypotheses": [SECRET]}, 422, "hypotheses"),
    ("runs/rnn/answer", {"text": "a", "search": {"kind": "bean"}}, 422, "beam"),
    ("runs/rnn/answer", {"text": "a" * 10_001}, 413, "at most 10,000"),
    ("runs/rnn/answer", {"text": "a", "beam": 3}, 422, "beam"),
    ("runs/rnn/answer", {"text": "a", "search": {"temperature": 1.0}}, 422, "temperature"),
    ("runs/rnn/answer", GREEDY | {"prefix": [99999]}, 422, "ids end at 27"),
    ("runs/forecaster/answer", {"csv": CSV.replace("other", "b")}, 422,
     "the table:1: no column 'other'; the columns are:"),
    *(("runs/transformer/answer", {"text": "a", "silenced": [{"block": "cross_attention"} | head]},
       422, said) for head, said in (({"layer": 2}, "decoder.cross_attention (2)"),
                                     ({"layer": 1, "head": 99}, "no head 99"))),
]  # fmt: skip


@pytest.mark.parametrize(("path", "ask", "status", "said"), BAD)
def test_what_is_wrong_in_a_request_is_said(client, path, ask, status, said) -> None:
    answer = client.post(f"{API}/{path}", json=ask)
    assert answer.status_code == status and said in answer.json()["error"], answer.text


def test_the_snapshots_of_a_training(client: TestClient) -> None:
    drawing = client.get(f"{API}/trainings/transformer/snapshots").json()
    assert drawing["kind"] == "film" and drawing["frames"] == []  # it kept none
    assert client.get(f"{API}/trainings/none/snapshots").status_code == 404


def test_big_arrays_are_fetched_by_their_urls(client: TestClient) -> None:
    result: StudioState = client.app.state.studio
    values = np.random.default_rng(0).random((300, 300)).astype(np.float32)
    small = Numbers.exact(values[:100, :100])
    drawing = SheetDrawing(values=Numbers.exact(values), least=0, most=1)
    sent = result.linked(drawing)
    assert result.linked(SheetDrawing(values=small, least=0, most=1)).values == small
    assert sent.values.data == "" and sent.values.url.startswith(f"{API}/tensors/")
    answer = client.get(sent.values.url)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert np.array_equal(np.frombuffer(answer.content, "<f4").reshape(300, 300), values)
    assert len(gzip.compress(answer.content)) < values.nbytes
    for wrong in (sent.values.url[:-1], f"{API}/tensors/", f"{API}/tensors/..%2F..%2Fetc"):
        missing = client.get(wrong)
        assert missing.status_code == 404 and "not " in missing.json()["error"]


@pytest.mark.parametrize("name", CONFIGS)
def test_examples_are_judged_as_the_run_is(client, runs, name) -> None:
    result = client.get(f"{API}/runs/{name}/evaluation?split=test&most=5000")
    if name == "language":  # its test share is empty
        assert result.status_code == 422
        result = client.get(f"{API}/runs/{name}/evaluation?split=valid")
    judged = result.json()
    assert judged["count"] == len(judged["rows"]) and judged["rows"][0]["score"] is not None
    if name == "forecaster":
        scores = [row["score"] for row in judged["rows"]]
        assert np.mean(scores) == near(runs[name].evaluate().figures["mse"], terms=MODEL)
    elif name != "language":
        figure = "accuracy" if name in ("classifier", "vit") else "bleu"
        expected = runs[name].evaluate().figures[figure]
        assert judged["figures"][figure] == pytest.approx(expected)
    saved = client.get(f"{API}/runs/{name}/evaluation?split={judged['split']}&most=5000")
    assert saved.json()["rows"][0] == judged["rows"][0]


def test_a_bug_is_no_mistake_of_the_user(client: TestClient, monkeypatch, caplog) -> None:
    monkeypatch.setattr("foveate.studio.api.examples", operator.getitem)  # in no file of ours
    answer = client.get(f"{API}/runs/rnn/examples")
    assert answer.status_code == 500 and answer.json()["error"].endswith(": TypeError")
    assert "please report it" in caplog.text and "subscriptable" in caplog.text


def test_errors_have_one_form(client: TestClient) -> None:
    assert client.get(f"{API}/nothing").json() == {"error": "page not found"}
    assert client.delete(f"{API}/runs").status_code == 405
    events = streamed(client, "rnn", {"text": "a", "search": {"temperature": 1.0}})
    assert events[-1]["event"] == "error" and "temperature" in events[-1]["error"]


def test_a_run_made_later_is_there_without_a_restart(runs: dict[str, Run], tmp_path: Path) -> None:
    shutil.copytree(runs["rnn"].path, tmp_path / "b")
    with client_of(tmp_path) as client:
        assert [each["id"] for each in client.get(f"{API}/runs").json()["runs"]] == ["b"]
        shutil.copytree(runs["rnn"].path, tmp_path / "a")
        assert client.get(f"{API}/trainings/a").status_code == 200
        assert [each["id"] for each in client.get(f"{API}/runs").json()["runs"]] == ["b", "a"]


def test_the_page_says_how_it_is_built_where_it_is_missing(runs: dict[str, Run], tmp_path) -> None:
    with client_of(runs["rnn"].path, static=tmp_path / "none") as client:
        page = client.get("/")
        assert page.status_code == 503 and "make page" in page.text
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<p>built</p>")
    (tmp_path / "assets" / "app.js").write_text("1;" * 10_000)
    with client_of(runs["rnn"].path, static=tmp_path) as client:
        page = client.get("/")
        assert page.status_code == 200 and "built" in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        script = client.get("/assets/app.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert script.headers["content-encoding"] == "gzip"
        assert int(script.headers.get("content-length", 0)) < 1000 and len(script.text) == 20_000
        assert script.headers["cache-control"] == "max-age=31536000, immutable"
        assert client.get("/../app.py").status_code == 404
