"""Screens of the studio that need no run: demos with options, comparisons as on their pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")
from fastapi.testclient import TestClient

from foveate.bench.comparison import Chapter, Comparison
from foveate.draw.charts import line_chart
from foveate.draw.drawings import Drawing
from foveate.draw.sheets import sheet
from foveate.draw.texts import TableDrawing
from foveate.server.studio_api import application
from foveate.views.demos import DEMOS

API = "/api/v1"
Answer = dict[str, list[dict[str, str]]]


def comparison(names: list[str], places: int = 3) -> Comparison:
    line = np.array([1.0, np.nan, 0.5] * (places // 3))
    lines = line_chart(np.arange(float(places)), {"a": line}, bands={"a": (line - 1, line + 1)})
    table = TableDrawing(title="Sizes", columns=["model", "n"], rows=[["a</script>", 3.0]])
    long = sheet("large", np.arange(40_000.0).reshape(200, 200))
    chapters = [Chapter("Quality", [table, lines]), Chapter("Cost & time", [long])]
    return Comparison(names, {"models": ", ".join(names)}, chapters)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A studio without runs, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    with TestClient(application([]), base_url="http://127.0.0.1") as client:
        yield client


def test_demos_are_listed_with_the_options_of_their_functions(client: TestClient) -> None:
    demos = {each["name"]: each for each in client.get(f"{API}/demos").json()["demos"]}
    assert list(demos) == list(DEMOS)
    fields = {field["name"]: field for field in demos["lookup"]["fields"]}
    assert list(fields) == list(DEMOS["lookup"].options.model_fields)
    assert fields["blend"]["form"]["maximum"] == 1 and fields["key"]["description"]
    assert "file" not in {field["name"] for field in demos["beam"]["fields"]}


def test_a_demo_is_drawn_with_the_options_that_are_given(client: TestClient) -> None:
    def drawn(name: str, **options: object) -> Answer:
        return cast(Answer, client.post(f"{API}/demos/{name}", json=options).json())

    assert "beam of 3: A end" in drawn("beam", beam_size=3)["drawings"][0]["title"]
    whole = drawn("lookup", values=[1, 2, 3], temperature=[0.5])["drawings"]
    expected = DEMOS["lookup"].draw({"values": [1, 2, 3], "temperature": [0.5]}).drawings()
    assert [each["title"] for each in whole] == [each.title for each in expected]
    for name, options, message in (
        ("beam", {"file": "/etc/passwd"}, "a page names no files"),
        ("beam", {"beam_size": 0}, "greater than or equal to 1"),
        ("beam", {"beams": 2}, "beams"),
        ("lookup", {"key": 9}, "key 9 of 4"),
        ("beams", {}, "no demo 'beams'"),
    ):
        assert message in str(drawn(name, **options)["error"])


def test_a_comparison_is_drawn_as_on_its_page(client: TestClient, tmp_path: Path) -> None:
    assert client.get(f"{API}/comparisons").json() == {"comparisons": []}
    made = comparison(["a", "b"])
    (tmp_path / "inner").mkdir()
    made.save(tmp_path / "inner" / "x.html")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "other.html").write_text("")
    [info] = client.get(f"{API}/comparisons").json()["comparisons"]
    assert info == {"id": "x", "models": ["a", "b"], "chapters": ["Quality", "Cost & time"]}
    drawn = client.get(f"{API}/comparisons/x/1").json()["drawings"]
    assert drawn[0]["title"] == "Terms"
    originals: list[Drawing] = made.chapters[0].drawings
    assert drawn[1:] == [json.loads(each.model_dump_json(by_alias=True)) for each in originals]
    [large] = client.get(f"{API}/comparisons/x/2").json()["drawings"]
    bytes_ = client.get(large["values"]["url"]).content
    assert np.frombuffer(bytes_, "<f4").tolist() == np.arange(40_000.0).tolist()


def test_what_cannot_be_shown_says_why(client: TestClient, tmp_path: Path) -> None:
    comparison(["a", "b"]).save(tmp_path / "x.html")
    for place in ("x/0", "x/3", "y/1"):
        assert client.get(f"{API}/comparisons/{place}").status_code == 404
    page = (tmp_path / "x.html").read_text("utf-8")
    (tmp_path / "x.html").write_text(page.replace('"kind":"table"', '"kind":"grid"'), "utf-8")
    answer = client.get(f"{API}/comparisons/x/1")
    assert answer.status_code == 422
    assert "x.html was written by another version" in answer.json()["error"]
