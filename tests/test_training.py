"""What training refuses before it begins."""

import shutil
from pathlib import Path

import pytest

from foveate.cli.doctor import description, sessions
from foveate.config import ConfigError, Tree, parse_tree
from foveate.data.catalogue import DataError
from foveate.errors import UserError
from foveate.kinds import load_kinds
from foveate.run import RunConfig, load
from foveate.run.training import train
from foveate.train import checkpoint, journal
from foveate.train.stored import WEIGHTS, TrainError, sealed_folder

load_kinds()


def refuses(tmp_path: Path, tree: Tree, error: type[Exception], message: str) -> None:
    """Training a config ends with an error that says so, before there is a run."""
    with pytest.raises(error, match=message):
        train(parse_tree(RunConfig, tree), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


HIDDEN = {"kind": "masked_language", "source": "a.txt"}
SERIES = {"kind": "forecasting", "series": {"path": "a.csv", "rows": [9, 9, 9]}}
TEXT = {"kind": "language", "text": "missing.txt"}
SQUARED = {"kind": "squared_error"}
COSINE = {"max_steps": 2, "schedule": {"kind": "cosine", "warmup_steps": 50}}
FORCING = r"objective\.teacher_forcing.*"


@pytest.mark.parametrize(
    ("task", "model", "more", "message"),
    [
        (HIDDEN, "masked_language_model", {"objective": {"teacher_forcing": {"kind": "own"}}},
         FORCING + "writes nothing"),
        (SERIES, "linear_forecaster", {"objective": SQUARED | {"teacher_forcing": {"kind": "own"}}},
         FORCING + "forecasts all steps at once"),
        (SERIES, "rnn_forecaster",
         {"objective": SQUARED | {"teacher_forcing": {"kind": "scheduled", "choose": "sample"}}},
         FORCING + r"choose.*a forecast is a number"),
        (TEXT, "language_model", {"train": COSINE}, r"warmup_steps = 50 leaves nothing of 2"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_is_refused_before_data_is_read(
    tmp_path, task, model, more, message
) -> None:
    refuses(tmp_path, {"task": task, "model": {"kind": model}} | more, ConfigError, message)


@pytest.mark.parametrize("empty", ["train", "valid"])
def test_a_split_without_examples_is_refused_by_name(tmp_path: Path, small: Tree, empty) -> None:
    (tmp_path / f"{empty}.tsv").write_text("")
    tree = small | {"train": {"max_steps": 9}}
    refuses(tmp_path, tree, DataError, f"{empty} has no examples: its files are empty")


@pytest.fixture
def small(tmp_path: Path) -> Tree:
    """Four steps of a tiny translator, with a cosine schedule."""
    for split in ("train", "valid"):
        lines = "a dog runs\tun chien court\n" * 4
        (tmp_path / f"{split}.tsv").write_text(lines, encoding="utf-8")
    words, files = {"kind": "word", "min_frequency": 1}, str(tmp_path / "{split}.tsv")
    training = {"max_steps": 4, "precision": "fp32", "validation": {"every": "none"}}
    return {
        "task": {"kind": "translation", "source": files, "tokenizer": words},
        "model": {"kind": "transformer-tiny"},
        "train": training | {"schedule": {"kind": "cosine", "warmup_steps": 1}},
    }


def changed(small: Tree, **train: object) -> RunConfig:
    return parse_tree(RunConfig, small | {"train": small["train"] | train})


def test_changed_data_or_tokenizers_are_refused(tmp_path: Path, small: Tree, capsys) -> None:
    run, data = tmp_path / "run", tmp_path / "train.tsv"
    lines = [f"a dog runs {word}\tun chien {word}\n" for word in "abcdef"]
    data.write_text("".join(lines), encoding="utf-8")
    train(changed(small), folder=run)
    data.write_text("".join([*lines[1:], lines[0]]), encoding="utf-8")  # of the same lengths
    longer = changed(small, max_steps=6)
    with pytest.raises(UserError, match=r"the data changed: .*--changed-data"):
        train(longer, folder=run)
    train(longer, folder=run, changed_data=True)
    assert "the data changed: the new ones start with epoch" in capsys.readouterr().err
    train(changed(small, max_steps=7, validation={"every": 1}), folder=run)
    (tmp_path / "valid.tsv").write_text(lines[0], encoding="utf-8")
    longer = changed(small, max_steps=8, validation={"every": 1})
    with pytest.raises(UserError, match="the examples of valid are not those of"):
        train(longer, folder=run)
    train(longer, folder=run, changed_data=True)
    assert "the best is chosen again" in capsys.readouterr().err

    vocabulary = run / "target.tokenizer.json"
    text = vocabulary.read_text(encoding="utf-8")
    swapped = text.replace('"un"', '"?"').replace('"chien"', '"un"').replace('"?"', '"chien"')
    vocabulary.write_text(swapped, encoding="utf-8")
    for use in (lambda: load(run), lambda: train(changed(small, max_steps=9), folder=run)):
        with pytest.raises(UserError, match=r"target\.tokenizer\.json is not the file that"):
            use()


@pytest.mark.parametrize(
    ("gone", "kept"),
    [
        (["checkpoints"], "best.json"),
        (["checkpoints", "packed.safetensors"], "best.json"),
        (["checkpoints", "best.json"], "packed.safetensors"),
        (["checkpoints", "best.json", "packed.safetensors"], "averaged"),
        (["checkpoints", "config.toml"], "packed.safetensors"),
    ],
)
def test_a_run_without_its_checkpoints_never_begins_again(tmp_path, small, gone, kept) -> None:
    """Random weights take the place of trained ones only in another folder."""
    config = changed(small, average=2, save={"every": 2}, validation={"every": 2})
    run = train(config, folder=tmp_path / "run").path
    for name in gone:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    before = {file: file.read_bytes() for file in run.rglob("*.safetensors")}
    with pytest.raises(TrainError, match=rf"{kept}.*checkpoints are missing.*--run"):
        train(config, folder=run)
    assert before == {file: file.read_bytes() for file in run.rglob("*.safetensors")}


def test_weights_alone_are_begun_with_in_another_run_only(tmp_path: Path, small: Tree) -> None:
    run = train(changed(small), folder=tmp_path / "run").path
    for step in checkpoint.steps(run):
        folder = checkpoint.path_of(run, step)
        with sealed_folder(folder) as new:
            shutil.copy(folder / WEIGHTS, new / WEIGHTS)
    with pytest.raises(TrainError, match=r"weights without a training state.*start\.run"):
        train(changed(small), folder=run)
    other = small | {"start": {"run": str(run)}}
    train(parse_tree(RunConfig, other), folder=tmp_path / "other")


def test_files_of_others_in_a_run_may_change(tmp_path: Path, small: Tree) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text("what the shell writes\n", encoding="utf-8")
    train(changed(small), folder=run)
    (run / "train.log").write_text("more\n", encoding="utf-8")
    load(run)
    train(changed(small, max_steps=5), folder=run)


def test_each_continuation_is_recorded(tmp_path: Path, small: Tree, capsys) -> None:
    run, first = tmp_path / "run", changed(small)
    train(first, folder=run)
    weights = checkpoint.path_of(run, 4) / WEIGHTS
    before = weights.read_bytes(), (run / "config.toml").read_bytes()
    train(first, folder=run)
    assert before == (weights.read_bytes(), (run / "config.toml").read_bytes())
    assert not (run / "config.1.toml").exists(), "nothing has changed"

    capsys.readouterr()
    second = changed(small, max_steps=6)
    train(second, folder=run)
    assert "train.max_steps 4 → 6 (moves the cosine schedule)" in capsys.readouterr().err
    train(second, ["train.max_steps=7", "train.clip_norm=0.5"], folder=run)
    saved = [(run / f"config.{n}.toml").read_text(encoding="utf-8") for n in (1, 2)]
    assert saved == [first.toml(), second.toml()]
    assert load(run).config.train.max_steps == 7
    assert [line for line in journal.read(run) if line["event"] == "config"] == [
        {"event": "config", "step": 4, "before": "config.1.toml",
         "changes": {"train.max_steps": {"old": 4, "new": 6}}},
        {"event": "config", "step": 6, "before": "config.2.toml",
         "changes": {"train.clip_norm": {"old": 1.0, "new": 0.5},
                     "train.max_steps": {"old": 6, "new": 7}}},
    ]  # fmt: skip
    shown = description(load(run))
    assert "step 6: train.clip_norm 1.0 → 0.5" in shown
    assert "at the start\n  step           0\n" in shown
    whole = shown.partition("\nsessions\n")[2].splitlines()
    places = [f"  step {begin} to {end}" for begin, end in ((0, 4), (4, 6), (6, 7))]
    assert [line.split(" · ")[:3:2] for line in whole] == [[each, "max_steps"] for each in places]
    with pytest.raises(ConfigError, match=r"train\.batch_tokens is 4096 there and 9 now"):
        train(changed(small, max_steps=9, batch_tokens=9), folder=run)
    assert load(run).config.train.max_steps == 7, "a refused config is not recorded"


def test_each_session_of_a_log_has_its_line() -> None:
    valid = {"event": "valid", "epoch": 1, "samples": [], "best": True}
    log = [
        {"event": "start", "step": 0},
        valid | {"step": 8, "loss": 2.0, "bleu": 1.25, "seconds": 40.0},
        {"event": "train", "step": 9, "loss": 2.5, "seconds": 45.0},
        {"event": "start", "step": 8},  # after a kill
        {"event": "pace", "step": 9, "seconds": 900.0},
        {"event": "end", "step": 9, "reason": "interrupted", "seconds": 50.0},
        {"event": "config", "step": 9, "changes": {}},
        {"event": "start", "step": 9},
        valid | {"step": 1200, "loss": 1.5, "bleu": None, "seconds": 3665.0},
        {"event": "end", "step": 1200, "reason": "patience", "seconds": 3665.0},
    ]
    assert sessions(log) == [
        "  step 0 to 8 · 0:45 · killed, or still running · loss 2 · bleu 1.25",
        "  step 8 to 9 · 0:05 · interrupted",
        "  step 9 to 1,200 · 1:00:15 · patience · loss 1.5",
    ]
