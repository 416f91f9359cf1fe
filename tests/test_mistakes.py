"""Users' mistakes: each row of ``benchmarks/mistakes.toml`` is answered with one clear sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from small_runs import Once

ROOT = Path(__file__).parent.parent
TABLE = tomllib.loads((ROOT / "benchmarks" / "mistakes.toml").read_text("utf-8"))["mistake"]
PLACES = ("SOURCE", "TMP", "'", "--", " = ", "data.", "task.", "model.", "train.")
WITHOUT_RUNS = [row for row in TABLE if not any("{RUNS}" in part for part in row["command"])]


def test_the_table_is_large_and_names_each_mistake_once() -> None:
    names = [row["what"] for row in TABLE]
    assert len(names) >= 150 and len(set(names)) == len(names)


@pytest.fixture(scope="module")
def answers(once: Once) -> dict[str, dict[str, Any]]:
    """Exit code and output of each mistake that needs no trained run."""
    folder = once("mistakes", make_all)
    results: dict[str, dict[str, Any]] = json.loads((folder / "jobs.done").read_text("utf-8"))
    return {name: result | {"folder": str(folder)} for name, result in results.items()}


def make_all(folder: Path) -> None:
    """All these mistakes in one process; what it answers is in ``jobs.done``."""
    for row in TABLE:
        for name, content in row.get("files", {}).items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content.replace("{TMP}", str(folder)), encoding="utf-8")
    jobs = {
        row["what"]: (
            [part.replace("{TMP}", str(folder)) for part in row["command"]],
            row.get("stdin", ""),
        )
        for row in WITHOUT_RUNS
    }
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs), encoding="utf-8")
    path = os.pathsep.join([str(ROOT / "src"), str(folder), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"SAME_JOBS": str(listed), "PYTHONPATH": path, "COLUMNS": "100"}
    command = [sys.executable, str(ROOT / "benchmarks" / "same.py"), "work"]
    subprocess.run(command, env=environment, check=True, cwd=folder, timeout=240)


@pytest.mark.parametrize("row", WITHOUT_RUNS, ids=lambda row: row["what"])
def test_a_mistake_is_answered_with_one_sentence(
    row: dict[str, Any], answers: dict[str, dict[str, Any]]
) -> None:
    answer = answers[row["what"]]
    printed = answer["stderr"].replace(answer["folder"], "TMP")
    errors = [line for line in printed.splitlines() if line.lower().startswith("error: ")]
    assert answer["exit"] == 2, printed
    assert "traceback" not in printed.lower(), printed
    assert len(errors) == 1 and len(errors[0]) <= 400, printed
    named = {*(Path(part).name for part in row["command"]), *PLACES}
    assert any(name in errors[0] for name in named), "it names no file, key or option"
