"""What the studio keeps: its runs, its trainings, its screens."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from foveate.config import Config
from foveate.look.draw.charts import line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.sheets import sheet
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.demos import DEMOS, DemoEntry
from foveate.measure.comparison import Comparison
from foveate.serve.common import RequestError
from foveate.studio.answers import Send
from foveate.studio.api import studio_application
from foveate.studio.state import StudioState
from foveate.studio.trainings import LogTail, event, keys, samples, series, thinned, training
from foveate.train.journal import Journal
from own_loop import run


# ---- One computation at a time: a bounded queue, events as they are said, a stop that stops
def at_work(act: Callable[[StudioState], Coroutine[Any, Any, Any]], waiting: int = 2) -> Any:
    async def main() -> Any:
        jobs = StudioState([], waiting=waiting)
        result = await act(jobs)
        jobs.queue.close(0)
        return result

    return run(main())


def test_events_come_as_they_are_said_and_then_what_came_of_it() -> None:
    async def main(jobs: StudioState) -> list[Any]:
        gate = threading.Event()

        def work(send: Send) -> str:
            send(1)
            gate.wait(10)
            send(2)
            return "done"

        result = []
        async for each in jobs.start(work).events(0.05, "ping"):
            result.append(each)
            if each == "ping":
                gate.set()
        return result

    result = at_work(main)
    assert [event for event in result if event != "ping"] == [1, 2, "done"]
    assert "ping" in result[1:-2]


def test_runs_are_listed_while_one_is_loaded(tmp_path: Path) -> None:
    begun, gate = threading.Event(), threading.Event()
    state = StudioState([])

    def slow(folder: Path) -> Any:
        begun.set()
        assert gate.wait(10)
        return object()

    state.runs._loader = slow
    thread = threading.Thread(target=state.runs.run, args=["en-fr"])
    thread.start()
    assert begun.wait(10)
    listed = threading.Thread(target=state.runs.names)
    listed.start()
    listed.join(5)
    assert not listed.is_alive(), "the list waits for the run"
    gate.set()
    thread.join()


def test_one_at_a_time_and_no_more_than_may_wait() -> None:
    together, most, gate = list[int](), list[int](), threading.Event()

    def work(send: Send) -> None:
        together.append(1)
        most.append(len(together))
        gate.wait(10)
        together.pop()

    async def main(jobs: StudioState) -> None:
        waiting = [asyncio.ensure_future(jobs.start(work).result()) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError, match="the queue is full") as refused:
            await jobs.start(work).result()
        assert refused.value.status == 429
        gate.set()
        await asyncio.gather(*waiting)
        await jobs.start(work).result()

    at_work(main)
    assert most == [1] * 4


# ---- Screens of the studio that need no run: demos with options, comparisons as on their pages
API = "/api/v1"
Answer = dict[str, list[dict[str, str]]]


def comparison(names: list[str], places: int = 3) -> Comparison:
    line = np.array([1.0, np.nan, 0.5] * (places // 3))
    lines = line_chart(np.arange(float(places)), {"a": line}, bands={"a": (line - 1, line + 1)})
    table = TableDrawing(title="Sizes", columns=["model", "n"], rows=[["a</script>", 3.0]])
    long = sheet("large", np.arange(40_000.0).reshape(200, 200))
    chapters = {"Quality": [table, lines], "Cost & time": [long]}
    return Comparison(names, {"models": ", ".join(names)}, chapters)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A studio without runs, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    with TestClient(studio_application([]), base_url="http://127.0.0.1") as client:
        yield client


def test_demos_are_listed_with_the_options_of_their_functions(client: TestClient) -> None:
    demos = {each["name"]: each for each in client.get(f"{API}/demos").json()["demos"]}
    assert list(demos) == list(DEMOS)
    fields = {field["name"]: field for field in demos["lookup"]["fields"]}
    assert list(fields) == list(DEMOS["lookup"].options.model_fields)
    assert fields["blend"]["form"]["maximum"] == 1 and fields["blend"]["description"]


class FileDemo(DemoEntry):
    """A demo of one's own that reads a file."""

    options = create_model("FileOptions", __base__=Config, file=(Path | None, None))


def test_a_demo_is_drawn_with_the_options_that_are_given(client, monkeypatch) -> None:
    monkeypatch.setitem(DEMOS, "own", FileDemo("own", "", ""))

    def drawn(name: str, **options: object) -> Answer:
        return cast(Answer, client.post(f"{API}/demos/{name}", json=options).json())

    assert "beam of 3: A end" in drawn("beam", beam_size=3)["drawings"][0]["title"]
    whole = drawn("lookup", blend=0.1, temperature=[0.5])["drawings"]
    expected = DEMOS["lookup"].draw({"blend": 0.1, "temperature": [0.5]}).drawings()
    assert [each["title"] for each in whole] == [each.title for each in expected]
    for name, options, message in (
        ("own", {"file": "/etc/passwd"}, "a page cannot name files"),
        ("beam", {"beam_size": 0}, "greater than or equal to 1"),
        ("beam", {"beams": 2}, "beams"),
        ("beams", {}, "demo 'beams' not found"),
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
    originals: list[Drawing] = made.chapters["Quality"]
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
    assert "x.html was written by a different version" in answer.json()["error"]


# ---- Trainings by their logs: curves that keep their shape, and a log that grows while it is read
def write(run: Path, steps: range, at: int = 0) -> None:
    """What a training writes from a step on, a validation every ten steps."""
    run.mkdir(exist_ok=True)
    journal = Journal(run, at)
    for step in steps:
        journal.write("train", step, loss=10 / step + at, lr=0.1, seconds=float(step), epoch=0)
        if step % 10 == 0:
            messages = {"source": "a", "reference": "b", "output": f"{step}"}
            more = {"loss": 1.0, "best": True, "seconds": step + 0.5, "samples": [messages]}
            journal.write("valid", step, **more)
    journal.close()


def places(tail: LogTail) -> list[str]:
    return [place for place, _ in tail.news()]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=300), st.integers(3, 40))
def test_a_thinned_curve_has_its_ends_and_no_point_of_its_own(values, most) -> None:
    y = np.array(values)
    shown = thinned(y, most)
    assert len(shown) == min(len(values), most)
    assert (np.diff(shown) > 0).all()
    if values:
        assert shown[0] == 0 and shown[-1] == len(values) - 1


def test_a_peak_is_kept() -> None:
    y, x = np.zeros(10_000), np.arange(10_000.0)
    y[6_543] = 50
    assert 6_543 in thinned(y, 100)
    wave = np.sin(x[:1000] / 20)
    saved = thinned(wave, 60)
    assert np.abs(np.interp(x[:1000], saved, wave[saved]) - wave).max() < 0.1


def test_curves_of_a_log(tmp_path: Path) -> None:
    write(tmp_path / "run", range(1, 101))
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    log: list[Any] = [*map(json.loads, lines)]
    assert keys(log) == ["train.loss", "train.lr", "valid.loss"]
    result = series(log, 20)
    assert result.last == 100 and [curve.key for curve in result.curves] == keys(log)
    assert result.curves[0].steps[0] == 1 and result.curves[0].steps[-1] == 100
    assert len(result.curves[0].steps) == 20
    assert (result.curves[0].values[-1], result.curves[0].seconds[-1]) == (0.1, 100)
    assert result.curves[2].steps == list(range(10, 101, 10))
    assert [item.output for item in samples(log).samples] == [f"{n}" for n in range(10, 101, 10)]
    messages = event(log[10])
    assert (messages.event, messages.step, messages.values) == ("valid", 10, {"loss": 1.0})
    where = training("r", tmp_path / "run", 100, log)
    assert where.step == 100 and not where.running
    assert training("r", tmp_path / "run", 200, log).running
    ended: Any = {"event": "end", "step": 100, "reason": "max_minutes"}
    assert not training("r", tmp_path / "run", 200, [*log, ended]).running
    os.utime(tmp_path / "run" / "log.jsonl", (0, 0))
    assert not training("r", tmp_path / "run", 200, log).running


def test_a_tail_tells_each_line_once(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "run" / "log.jsonl")
    assert places(tail) == [], "there is no log yet"
    write(tmp_path / "run", range(9, 11))
    assert places(tail) == ["9.0", "10.0", "10.1"]
    assert places(tail) == []
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"event": "train", "step": 11')
        file.flush()
        assert places(tail) == [], "half a line is none"
        file.write("}\n")
    assert places(tail) == ["11.0"]


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    write(tmp_path / "run", range(9, 12))
    whole = ["9.0", "10.0", "10.1", "11.0"]
    for after, told in {"": 0, "10.0": 2, "10": 3, "10.1": 3, "11.0": 4}.items():
        assert places(LogTail(tmp_path / "run" / "log.jsonl", after)) == whole[told:]
    with pytest.raises(ValueError, match="not a position"):
        LogTail(tmp_path, "ten")


def test_a_training_that_goes_on_from_a_checkpoint_cuts_what_was_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run, range(1, 8))
    tail = LogTail(run / "log.jsonl")
    list(tail.news())
    write(run, range(5, 12), at=4)
    messages = list(tail.news())
    assert messages[0] == ("4.0", {"event": "cut", "step": 4})
    expected = ["5.0", "6.0", "7.0", "8.0", "9.0", "10.0", "10.1", "11.0"]
    assert [place for place, _ in messages[1:]] == expected
    later = list(LogTail(run / "log.jsonl", "40.0").news())
    assert later == [("11.0", {"event": "cut", "step": 11})]
