"""The five lectures: their pages are current, their commands exist, the studio draws them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from foveate.cli import app
from foveate.cli.options import VerbGroup
from foveate.config import read
from foveate.run import Run, RunConfig

pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")
from fastapi.testclient import TestClient

import lectures as lecture_pages
from foveate.server.lectures import FOLDER, LOOK, Lecture, LectureStep, lectures, look_line
from foveate.server.studio_api import application
from foveate.views import VIEWS
from small_runs import made

ROOT = Path(__file__).parent.parent

COMMAND = typer.main.get_command(app)
STEPS = [(each, k, step) for each in lectures().lectures for k, step in enumerate(each.steps, 1)]


def check(line: str) -> None:
    """Parse ``foveate …`` by the command itself, without executing it."""
    program, *words = shlex.split(line)
    assert program == "foveate", line
    command, context = COMMAND, COMMAND.make_context("foveate", list(words))
    while isinstance(command, VerbGroup):
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None, line
        command, context = inner, inner.make_context(str(name), list(words), parent=context)


def test_every_lecture_has_all_its_steps() -> None:
    counts = {each.name: len(each.steps) for each in lectures().lectures}
    expected = {"romac": 18, "temirkhanov": 16, "lerner": 20, "inouye": 14, "chakraborty": 12}
    assert counts == expected


def test_the_pages_are_what_the_tool_writes() -> None:
    written = {path.name: path.read_text("utf-8") for path in lecture_pages.PAGES.glob("*.md")}
    assert written == lecture_pages.pages(), "write them anew: make lectures"


@pytest.mark.parametrize(("lecture", "number", "step"), STEPS)
def test_each_command_parses(lecture: Lecture, number: int, step: LectureStep) -> None:
    for line in (step.command, step.view, *re.findall(r"`(foveate [^`]+)`", step.notes)):
        for part in filter(None, line.split(" | ")):
            if not part.startswith("echo "):
                check(part)
    if step.drawn.startswith(LOOK):
        line = look_line(step.drawn)
        assert line.runs and not line.question.model_fields_set - set(VIEWS[line.view].reads)
    assert not step.picture or (ROOT / "docs" / step.picture).is_file()
    assert step.title and step.equation and step.notes.strip() and "\n\n" not in step.notes


def test_each_run_has_a_command_that_makes_it(tmp_path: Path) -> None:
    template = (ROOT / "src" / "foveate" / "quickstart.toml").read_text("utf-8")
    quickstart = tmp_path / "quickstart.toml"
    quickstart.write_text(template.replace("{folder}", "runs/quickstart"))
    runs = lectures().runs
    assert {name for _, _, step in STEPS for name in step.runs} <= {*runs, "quickstart"}
    for name, run in runs.items():
        assert f"runs/{name}" in run.command
        for line in run.command.split(" && "):
            if line.startswith("foveate "):
                check(line)
            if line.startswith("foveate train "):
                config, *words = shlex.split(line)[2:]
                path = quickstart if config.startswith("runs/") else ROOT / config
                read(RunConfig, path, [word for word in words if "=" in word])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return made(tmp_path_factory.mktemp("lectures"), ["transformer"], steps=4)


@pytest.fixture(scope="module")
def client(runs: dict[str, Run]) -> Iterator[TestClient]:
    folder = runs["transformer"].path
    folder.rename(folder.parent / "en-fr")
    with TestClient(application([folder.parent]), base_url="http://127.0.0.1") as client:
        yield client


def test_the_studio_serves_a_lecture_and_draws_its_steps(client: TestClient) -> None:
    served = client.get("/api/v1/lectures").json()
    assert [each["name"] for each in served["lectures"]] == sorted(
        path.stem for path in FOLDER.glob("*.toml") if path.stem != "runs"
    )
    drawn = client.get("/api/v1/lectures/romac/17").json()["drawings"]
    assert drawn[0]["kind"] == "attention"
    drawn = client.get("/api/v1/lectures/romac/7").json()["drawings"]  # foveate demo lookup
    assert drawn[0]["title"].startswith("A lookup")
    answer = client.get("/api/v1/lectures/temirkhanov/3").json()
    assert answer.get("drawings"), answer
    drawn = answer["drawings"]
    assert drawn[0]["kind"] == "steps"


def test_a_step_that_cannot_be_drawn_says_why(client: TestClient) -> None:
    problem = client.get("/api/v1/lectures/romac/1").json()["error"]
    assert "no run 'passengers'" in problem and "en-fr" in problem
    for place in ("nobody/1", "romac/0", "romac/19"):
        assert client.get(f"/api/v1/lectures/{place}").status_code == 404
