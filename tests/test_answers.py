"""Answers: every task answers with one of them; as a line, as JSON and drawn."""

import json
from pathlib import Path

import pytest

from foveate.run import Run
from small_runs import CONFIGS, invoked

INPUTS = {"text": ["the dog runs", "", "a girl"], "picture": ["0", "1"], "series": []}


def answered(run: Path, inputs: list[str], reads: str, *options: str) -> list[str]:
    arguments = inputs if reads != "text" else []
    stdin = "".join(f"{line}\n" for line in inputs) if reads == "text" else None
    result = invoked("answer", run, *arguments, *options, text=stdin)
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", [*CONFIGS, "captioner", "masked"])
def test_every_task_answers(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    reads = run.task.reads
    inputs = INPUTS[reads]
    lines = answered(run.path, inputs, reads)
    assert reads == "series" or len(lines) == len(inputs)
    records = [json.loads(line) for line in answered(run.path, inputs, reads, "--json")]
    answers = run.answer([int(i) for i in inputs] if reads == "picture" else inputs or [None])
    assert records == [json.loads(json.dumps(answer.json())) for answer in answers]
    if name != "language":  # sampled
        assert "\n".join(lines) == "\n".join(str(answer) for answer in answers)
    assert json.loads(answers[0].drawing().drawings()[0].model_dump_json())["kind"]
