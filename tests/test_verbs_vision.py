"""The verbs of pictures, from a training of two steps to a drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.cli.answers import pictures_of
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.run import Run, load
from foveate.training import train
from pictures import png, write_bars, write_squares
from tolerances import near

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
    (answer,) = again.classify([3])
    assert answer.label in ("0", "1")
    with pytest.raises(ValueError, match="has no attention over patches"):
        answer.record()
    assert "glimpse      x      y" in again.view(3).text()
    with pytest.raises(ConfigError, match="cannot caption"):
        again.caption([0])


def classify(run: Run, *words: object) -> list[str]:
    call = CliRunner().invoke(app, ["classify", str(run.path), *map(str, words)])
    assert call.exit_code == 0, call.output
    return call.stdout.splitlines()


def test_classify_pictures(labeller: Run, tmp_path: Path) -> None:
    image = tmp_path / "a b.png"
    image.write_bytes(png("red"))
    lines = classify(labeller, 3, image, 3)
    assert [line.split("\t")[0] for line in lines] == ["3", str(image), "3"]
    assert lines[0] == lines[2] != lines[1]
    _, label, p = lines[0].split("\t")
    assert label in ("0", "1")
    assert 0.5 <= float(p) <= 1
    (line,) = classify(labeller, image, "--scores", "--batch-tokens", 1)
    name, *pairs = line.split("\t")
    assert name == str(image)
    assert sorted(pairs[::2]) == ["0", "1"]
    assert sum(map(float, pairs[1::2])) == near(1)
    first, second = (json.loads(line) for line in classify(labeller, 0, 1, "--json"))
    assert (first["picture"], second["picture"]) == ("0", "1")
    assert max(first["probabilities"], key=first["probabilities"].__getitem__) == first["label"]


def test_a_bad_picture_is_named_before_a_line_is_written(labeller: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    for names, error, message in (
        ([3, bad], DataError, r"bad\.png cannot be read as a picture \(neither JPEG nor PNG\)"),
        ([3, "missing.png"], ConfigError, r"missing\.png: no such file; give a JPEG or PNG"),
        ([3, 24], ValueError, r"picture 24: the test data has 0 to 23"),
        ([], ConfigError, r"run labels pictures: name some behind it"),
        ([3, "--json", "--scores"], ConfigError, r"two forms of the output"),
    ):
        words = ["classify", str(labeller.path), *map(str, names)]
        call = CliRunner().invoke(app, words, input="3\n")
        assert isinstance(call.exception, error)
        assert re.search(message, str(call.exception))
        assert call.stdout == ""


def test_a_run_of_other_things_takes_no_pictures(captioner: Run) -> None:
    call = CliRunner().invoke(app, ["classify", str(captioner.path), "0"])
    assert "captioning: it cannot classify pictures" in str(call.exception)


def test_pictures_are_files_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(b"x")
    assert pictures_of(["7", str(tmp_path / "7")]) == [7, tmp_path / "7"]
    with pytest.raises(ConfigError, match=r"seven\.png: no such file; give a JPEG or PNG"):
        pictures_of(["seven.png"])
