"""Users' mistakes: each row of ``mistakes.toml`` is answered with one clear sentence."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from foveate.cli.export import Target
from foveate.exchange.base import targets
from foveate.run.training import train
from small_runs import Once, made, python

TESTS = Path(__file__).parent
TABLE = tomllib.loads((TESTS / "mistakes.toml").read_text("utf-8"))["mistake"]
PLACES = ("SOURCE", "TMP", "'", "--", " = ", "data.", "task.", "model.", "train.", "decode.")
PLACES += ("line ", "the task ", "the tokenizer ")
RUNS = {  # what the table calls the runs of `small_runs`
    "transformer": "transformer", "shakespeare": "language", "sst2": "classifier", "vit": "vit",
    "patch": "forecaster", "caption": "captioner",
}  # fmt: skip


def test_the_table_is_large_and_names_each_mistake_once() -> None:
    names = [row["what"] for row in TABLE]
    assert len(names) >= 200 and len(set(names)) == len(names)


@pytest.fixture(scope="module")
def answers(once: Once) -> dict[str, dict[str, Any]]:
    """Exit code and output of each mistake, all of them made in one process."""
    folder = once("mistakes", make_all)
    results: dict[str, dict[str, Any]] = json.loads((folder / "jobs.done").read_text("utf-8"))
    return {name: result | {"folder": str(folder)} for name, result in results.items()}


def make_all(folder: Path) -> None:
    """Write the files of the table, train the runs, and type the commands."""
    runs, place = folder / "small", folder / "files"
    names = {"{TMP}": place, "{CONFIGS}": TESTS.parent / "configs"}
    runs.mkdir()
    made(runs, [*RUNS.values(), "rnn"], steps=2)
    other = ["task.tokenizer={kind=character}"]  # another vocabulary
    names["{RUNS}/rnnsearch"] = train(runs / "rnn.toml", other, folder=runs / "rnnsearch").path
    names |= {f"{{RUNS}}/{name}": runs / "runs" / small for name, small in RUNS.items()}

    def filled(text: str) -> str:
        for name, path in names.items():
            text = text.replace(name, str(path))
        return text

    for row in TABLE:
        for name, content in row.get("files", {}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(filled(content), encoding="utf-8")
    jobs = {row["what"]: ([*map(filled, row["command"])], row.get("stdin", "")) for row in TABLE}
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    typed(folder, str(TESTS / "command_lines.py"), str(folder / "jobs.json"))


def typed(folder: Path, *command: str) -> None:
    path = os.pathsep.join([str(TESTS.parent / "src"), str(folder / "files")])
    environment = {"PYTHONPATH": path, "COLUMNS": "100"}
    python(*command, env=environment, check=True, cwd=folder / "files")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["what"])
def test_a_mistake_is_answered_with_one_sentence(row, answers) -> None:
    answer = answers[row["what"]]
    printed = answer["stderr"].replace(answer["folder"], "TMP")
    errors = [line for line in printed.splitlines() if line.lower().startswith("error: ")]
    assert answer["exit"] == 2, printed
    assert "traceback" not in printed.lower(), printed
    assert len(errors) == 1 and len(errors[0]) <= 400, printed
    named = {*(Path(part).name for part in row["command"]), *PLACES}
    assert any(name in errors[0] for name in named), "it names no file, key or option"


# Mistakes in the command itself: a path, a file that cannot be read, an option, an override. The
# keys and kinds of a config are those of classes that import PyTorch.
PLAIN = re.compile(
    r"^Usage|is not a run:|cannot read|not TOML|is not an override|is not a TOML|no such model is",
    re.M,
)
WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_mistake_in_the_command_is_answered_before_pytorch_is_imported(answers, tmp_path) -> None:
    folder = Path(next(iter(answers.values()))["folder"])
    plain = {n for n, each in answers.items() if PLAIN.search(each["stderr"]) and "look" not in n}
    assert len(plain) >= 35  # `look` imports PyTorch to list its views
    jobs = json.loads((folder / "jobs.json").read_text("utf-8"))
    chosen = tmp_path / "plain.json"
    chosen.write_text(json.dumps({name: jobs[name] for name in plain}), encoding="utf-8")
    typed(folder, "-c", WITHOUT_TORCH, str(TESTS / "command_lines.py"), str(chosen))
    without = json.loads(chosen.with_suffix(".done").read_text("utf-8"))
    expected = {name: answers[name]["stderr"] for name in plain}
    assert {name: answer["stderr"] for name, answer in without.items()} == expected


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["look", "heads", "nothing"], "nothing: no run or file of that name is here"),
        (["look", "heads", "nothing", "--layer", "x"], "nothing: no run or file of that name"),
        (["import", "nothing", "x"], "nothing: no such file or folder"),
        (["compare", "nothing", "other.toml"], "nothing: no such config or run"),
    ],
)
def test_what_is_not_there_is_named_before_pytorch_is_imported(words, answer, tmp_path) -> None:
    code = "import sys; sys.modules['torch'] = None; from foveate.cli import main; main()"
    done = python("-c", code, *words, cwd=tmp_path)
    assert done.returncode == 2 and f"error: {answer}" in done.stderr, done.stderr


def test_the_targets_of_the_command_line_are_those_of_the_exporters() -> None:
    assert tuple(targets()) == get_args(Target)
