"""The verbs of pictures, from a training of two steps to a drawing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import ConfigError
from foveate.run import Run, load
from foveate.training import train
from foveate.verbs.vision import classify_images, pictures_of
from pictures import write_bars, write_squares

TRAIN = """
[train]
batch_tokens = 64
max_steps = 2
precision = "fp32"
save = { every = 2 }
validation = { every = 2, samples = 1 }
"""


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = write_squares(tmp_path_factory.mktemp("captioner"))
    (folder / "c.toml").write_text(
        f"""
[task]
kind = "captioning"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[task.pictures]
kind = "files"
files = "{folder}/pictures.tar"
table = "{folder}/table.tsv"
size = 8

[model]
kind = "show-attend-tell"
encoder = {{ channels = [4, 4], hidden_size = 8 }}
decoder = {{ hidden_size = 8, embedding_size = 8, attention = {{ normalizer = "sampled" }} }}

[objective]
kind = "reinforce"
{TRAIN}""",
        encoding="utf-8",
    )
    return train(folder / "c.toml", folder=folder / "run")


@pytest.fixture(scope="module")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("labeller")
    pattern = write_bars(folder)
    (folder / "c.toml").write_text(
        f"""
[task]
kind = "image_classification"

[task.pictures]
kind = "idx"
images = "{pattern}-images"
labels = "{pattern}-labels"
held_out = 4

[model]
kind = "glimpse"
patch_size = 4
scales = 2
num_glimpses = 2
hidden_size = 8
glimpse_size = 6

[objective]
kind = "reinforce"
{TRAIN}""",
        encoding="utf-8",
    )
    return train(folder / "c.toml", folder=folder / "run")


def test_caption_and_look(captioner: Run, tmp_path: Path) -> None:
    image = captioner.path.parent / "pictures" / "deep" / "red.png"
    call = CliRunner().invoke(app, ["caption", str(captioner.path), str(image), "1", "--scores"])
    assert call.exit_code == 0, call.output
    lines = call.stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["red.png", "green.png"]
    float(lines[0].split("\t")[0])
    out = tmp_path / "x.svg"
    words = ["look", "picture", str(captioner.path), str(image), "--target", "A red square ."]
    call = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert call.exit_code == 0, call.output
    assert "square" in out.read_text(encoding="utf-8")


def test_a_run_of_labels(labeller: Run) -> None:
    again = load(labeller.path)
    assert 0 <= again.evaluate(split="test").figures["accuracy"] <= 100
    (line,) = classify_images(again, ["3"])
    assert line.split("\t")[1] in ("0", "1")
    assert "glimpse      x      y" in again.view(3).text()
    with pytest.raises(ConfigError, match="cannot caption"):
        again.caption([0])


def test_pictures_are_files_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(b"x")
    assert pictures_of(["7", str(tmp_path / "7")]) == [7, tmp_path / "7"]
    with pytest.raises(ConfigError, match=r"seven\.png: no such file; give a JPEG or PNG"):
        pictures_of(["seven.png"])
