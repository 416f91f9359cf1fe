"""``foveate new`` on real data: the guess, a config that trains, and refusals."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.train.checkpoint import steps
from foveate.training import train

TINY = ("train.max_steps=2", "train.save.every=2", "train.validation.every=none")
PAIRS = (*TINY, "train.average=none", "train.batch_tokens=256")


@pytest.mark.parametrize(
    ("names", "task"),
    [
        ("multi30k/val.en multi30k/val.fr", "translation"),
        ("inflection-german/german-dev.tsv", "transduction"),
        ("sst2/train.tsv", "classification"),
        ("tiny-shakespeare/input.txt", "language"),
        ("time-series/airline-passengers.csv", "forecasting"),
        ("flickr8k-1000/images.tar flickr8k-1000/captions.tsv", "captioning"),
        ("mnist/train-images-idx3-ubyte mnist/train-labels-idx1-ubyte", "vision"),
    ],
)
def test_the_guessed_config_trains(
    names: str, task: str, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(data_folder))
    files = [str(data_folder / name) for name in names.split()]
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["new", "auto", *files, "--out", "c.toml"])
    assert result.exit_code == 0, result.exception
    assert f"c.toml: {task};" in result.stdout
    assert "foveate train c.toml --run runs/c" in result.stdout
    if task not in ("captioning", "vision"):  # whole albums take long to read
        train("c.toml", PAIRS, "runs/c")
        assert steps(Path("runs/c")) == [2]
        _, _, use = result.stdout.rpartition("foveate ")
        arguments = shlex.split(use) + (["--max-length", "5"] if task == "language" else [])
        answered = CliRunner().invoke(app, arguments, input="Hahn<N><GEN><SG>\n")
        assert answered.exit_code == 0, (use, answered.exception, answered.output)


def test_masked_text_trains(tmp_path: Path, data_folder: Path) -> None:
    out = tmp_path / "c.toml"
    file = str(data_folder / "sst2" / "train.tsv.gz")
    assert CliRunner().invoke(app, ["new", "masked", file, "--out", str(out)]).exit_code == 0
    train(out, PAIRS, tmp_path / "run")
    assert steps(tmp_path / "run") == [2]


def test_mistakes_are_refused(tmp_path: Path) -> None:
    text, out = tmp_path / "a.txt", tmp_path / "c.toml"
    text.write_text("one\ntwo\n")

    def refusal(*arguments: str) -> str:
        return str(CliRunner().invoke(app, ["new", *arguments, "--out", str(out)]).exception)

    assert "20 are the least" in refusal("auto", str(text))
    assert "no file" in refusal("language", str(tmp_path / "none.txt"))
    assert "pictures need" in refusal("vision", str(text))
    assert not out.exists()
    out.write_text("mine")
    assert "--force" in refusal("auto", str(text))
    assert out.read_text() == "mine"
