"""Answers: every task answers with one of them; as a line, as JSON and drawn."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import _FAMILIES
from foveate.run import Run, load
from foveate.studio.api import studio_application
from small_runs import CONFIGS, invoked
from test_docs import blocks

INPUTS = {"text": ["the dog runs", "", "a girl"], "picture": ["0", "1"], "series": []}


def answered(run: Path, inputs: list[str], reads: str, *options: str) -> list[str]:
    """The lines that ``foveate answer`` prints."""
    arguments = inputs if reads != "text" else []
    stdin = "".join(f"{line}\n" for line in inputs) if reads == "text" else None
    result = invoked("answer", run, *arguments, *options, text=stdin)
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", [*CONFIGS, "captioner", "masked"])
def test_every_task_answers(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    reads = run.task.reads
    inputs: list[str] = INPUTS[reads]
    count = max(1, len(inputs))
    lines = answered(run.path, inputs, reads)
    assert reads == "series" or len(lines) == count
    records = [json.loads(line) for line in answered(run.path, inputs, reads, "--json")]
    pictures_or_lines = [int(i) for i in inputs] if reads == "picture" else inputs or [None]
    answers = run.answer(pictures_or_lines)
    assert records == [json.loads(json.dumps(answer.json())) for answer in answers]
    if name != "language":  # sampled
        assert "\n".join(lines) == "\n".join(str(answer) for answer in answers)
    assert json.loads(answers[0].drawing().drawings()[0].model_dump_json())["kind"]


def test_inputs_of_another_form_are_refused(runs: dict[str, Run]) -> None:
    for name, inputs in (("rnn", ["x"]), ("vit", [])):
        result = CliRunner().invoke(app, ["answer", str(runs[name].path), *inputs])
        assert f"reads {runs[name].task.reads}" in str(result.exception)


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the files that docs/guide/add-a-task.md shows, and of texts with numbers."""
    (tmp_path / "my_task.py").write_text(blocks("add-a-task.md", "python")[0])
    (tmp_path / "reviews.toml").write_text(blocks("add-a-task.md", "toml")[0])
    texts = {"a warm and clever film": 5, "we loved it": 5, "what a bore": 1, "a dull film": 1}
    rows = "".join(f"{text}\t{number}\n" for text, number in texts.items())
    for split in ("train", "valid"):
        (tmp_path / f"reviews.{split}.tsv").write_text(rows)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    _FAMILIES["task"].pop("regression", None)


def test_a_task_of_ones_own_is_trained_answered_and_shown(own_task: Path) -> None:
    command = ["train", "reviews.toml", "--run", "runs/reviews"]
    invoked(*command)
    line = "a warm and clever film"
    [record] = map(json.loads, answered(Path("runs/reviews"), [line], "text", "--json"))
    assert record["text"] == line and record["value"] > 3.5
    [answer] = load("runs/reviews").answer([line])
    assert answered(Path("runs/reviews"), [line], "text") == [str(answer)]
    with TestClient(studio_application([Path("runs")]), base_url="http://127.0.0.1") as client:
        done = client.post("/api/v1/runs/reviews/answer", json={"text": line})
        assert done.status_code == 200, done.text
        [drawing] = done.json()["done"]["drawings"]
        assert [word["text"] for word in drawing["words"]] == [str(answer)]
