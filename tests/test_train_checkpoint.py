"""Checkpoints and sessions: all comes back bit for bit, damage is passed over, the best is kept."""

import ctypes
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

from foveate.nn.native.kernels import X86
from foveate.train import checkpoint, stored
from foveate.train.checkpoint import path_of, read_chosen
from foveate.train.fit import keep_freed_memory
from foveate.train.journal import read
from foveate.train.optim import OptimizerConfig, average
from foveate.train.stored import WEIGHTS, TrainError, load_weights, verify
from train_toy import Toy, ToyModel, final, toy_config


def saved(run: Path, *steps: int) -> nn.Module:
    """A model with its optimiser in checkpoints of these steps."""
    model = ToyModel()
    optimizer = OptimizerConfig.parse("adamw").build(model)
    for step in steps:
        checkpoint.save(run, step, checkpoint.contents_of(model, optimizer), {}, "")
    return model


def test_tied_weights_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    model = saved(tmp_path, 1)
    folder, other = path_of(tmp_path, 1), ToyModel()
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        assert {"embedding.weight", "output.weight"} & {*file.keys()} == {"embedding.weight"}
    load_weights(other, folder / WEIGHTS)
    assert other.output.weight is other.embedding.weight and same(model, folder)
    assert {file.suffix for file in folder.iterdir()} == {".safetensors", ".json", ".toml"}


@pytest.mark.parametrize(
    ("part", "message"),
    [("norm", r"norm\.bias is \(8,\) there and \(9,\)"),
     ("extra", r"it lacks \['extra\.bias', 'extra\.weight'\]")],
)  # fmt: skip
def test_weights_of_another_model_are_refused_by_name(tmp_path, part: str, message: str) -> None:
    stored.write_tensors(stored.own_tensors(ToyModel()), tmp_path / "w")
    other = ToyModel()
    setattr(other, part, nn.LayerNorm(9))
    with pytest.raises(TrainError, match=message):
        load_weights(other, tmp_path / "w")


def test_chosen_is_the_best_or_else_the_newest(tmp_path: Path) -> None:
    assert checkpoint.chosen(tmp_path) is None
    saved(tmp_path, 1, 2)
    assert checkpoint.chosen(tmp_path) == path_of(tmp_path, 2)
    checkpoint.write_best(tmp_path, path_of(tmp_path, 1), {"loss": 1.0})
    assert checkpoint.chosen(tmp_path) == path_of(tmp_path, 1)
    stored.remove(path_of(tmp_path, 1))
    assert checkpoint.chosen(tmp_path) == path_of(tmp_path, 2)


# Weights that a training replaces while they are read are chosen anew.
def put(run: Path, step: int) -> Path:
    folder = path_of(run, step)
    folder.mkdir(parents=True)
    for name in (WEIGHTS, stored.MANIFEST):
        (folder / name).write_text(str(step))
    (run / "best.json").write_text(json.dumps({"folder": folder.relative_to(run).as_posix()}))
    return folder


def test_a_replaced_checkpoint_is_chosen_anew_and_other_errors_are_said(tmp_path: Path) -> None:
    first = put(tmp_path, 1)

    def read(folder: Path) -> str:
        if folder == first:
            put(tmp_path, 2)
            shutil.rmtree(first)
        return (folder / WEIGHTS).read_text()

    assert read_chosen(tmp_path, "best", read) == (path_of(tmp_path, 2), "2")
    with pytest.raises(ZeroDivisionError):
        read_chosen(tmp_path, "best", lambda folder: 1 // 0)


# Folders are whole or not there, whatever strikes while they are written.
def fill(target: Path, text: str) -> None:
    with stored.sealed_folder(target) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "b.txt").write_text("b" * 100)


@pytest.mark.parametrize(
    ("name", "damaged", "reason"),
    [
        ("b.txt", b"b" * 60, "60 bytes instead of 100"),
        ("b.txt", b"b" * 50 + b"c" + b"b" * 49, "sha256"),
        ("b.txt", None, "is missing"),
        (stored.MANIFEST, b"{", "cannot be read"),
        (stored.MANIFEST, b"", "cannot be read"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, damaged: bytes | None, reason: str) -> None:
    fill(tmp_path / "x", "one")
    file = tmp_path / "x" / name
    file.unlink() if damaged is None else file.write_bytes(damaged)
    with pytest.raises(stored.DamagedError, match=reason) as error:
        verify(tmp_path / "x")
    assert str(file) in str(error.value)


def test_what_fails_on_the_way_leaves_the_old_folder_and_no_new_one(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    with pytest.raises(KeyboardInterrupt), stored.sealed_folder(tmp_path / "x") as folder:
        (folder / "a.txt").write_text("two")
        raise KeyboardInterrupt
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_clean_undoes_what_a_kill_left(tmp_path: Path) -> None:
    fill(tmp_path / "whole", "kept")
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-whole")  # killed before it was removed
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-moved")  # killed between two renames
    (tmp_path / ".new-half").mkdir()
    (tmp_path / ".new-file").write_text("half")
    stored.clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moved", "whole"]
    verify(tmp_path / "moved")
    shutil.move(tmp_path / "moved", tmp_path / ".old-whole")  # in nobody's way without `clean`
    fill(tmp_path / "whole", "second")
    verify(tmp_path / "whole")
    assert (tmp_path / "whole" / "a.txt").read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


# ---- A session: rehearsal, averaging, precision kept, a full disk met, the best weights at hand
def average_lines(run: Path) -> list[dict[str, object]]:
    return [line for line in read(run) if line["event"] == "average"]


def same(model: nn.Module, folder: Path) -> bool:
    other = ToyModel()
    load_weights(other, folder / WEIGHTS)
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("better", [True, False])
def test_the_mean_is_taken_where_it_is_better(tmp_path: Path, better: bool, capsys) -> None:
    """A rate that is far too high makes the last weights jump about; their mean is calmer."""
    adam = {"kind": "adam", "lr": 0.3 if better else 1e-3}
    settings = {"average": 3, "optimizer": adam, "max_steps": 11, "clip_norm": 100}
    toy = Toy(tmp_path, toy_config(**settings))
    outcome = toy.train()
    assert outcome.state.best is not None
    record = json.loads((tmp_path / "averaged" / "state.json").read_text())
    assert record["steps"] == [6, 9, 11]
    mean = average([path_of(tmp_path, step) for step in record["steps"]])
    kept = ToyModel()
    load_weights(kept, tmp_path / "averaged" / WEIGHTS)
    assert torch.equal(kept.state_dict()["norm.weight"], mean["norm.weight"])
    assert (record["value"] < outcome.state.best.value) == better
    best = path_of(tmp_path, outcome.state.best.step)
    assert outcome.weights == (tmp_path / "averaged" if better else best)
    assert same(toy.model, outcome.weights)
    assert f"the {'mean' if better else 'single one'} is used" in capsys.readouterr().err

    assert toy.train().weights == outcome.weights
    assert len(average_lines(tmp_path)) == 1  # a finished run is measured no second time
    toy.config = toy_config(**settings, save={"every": 3, "best": "accuracy"})
    toy.train()  # its loss says nothing of another figure
    assert [line["figure"] for line in average_lines(tmp_path)] == ["loss", "accuracy"]


def test_an_interrupted_mean_is_made_up_for(tmp_path: Path) -> None:
    def send(what: str, number: int) -> None:
        if (what, number) == ("measure", 4):  # after those of steps 4, 8 and 12
            os.kill(os.getpid(), signal.SIGINT)

    toy = Toy(tmp_path, toy_config(average=2))
    outcome = toy.train(before=send)
    assert (outcome.reason, outcome.exit_code) == ("interrupted", 130)
    assert not (tmp_path / "averaged").exists() and not average_lines(tmp_path)
    assert toy.train().reason == "max_steps"
    assert len(average_lines(tmp_path)) == 1


def test_a_damaged_checkpoint_stays_out_of_the_mean(tmp_path: Path, capsys) -> None:
    def damage(what: str, number: int) -> None:
        if (what, number) == ("measure", 3):
            file = path_of(tmp_path, 9) / WEIGHTS
            file.write_bytes(file.read_bytes()[:-1])

    Toy(tmp_path, toy_config(average=3, save={"every": 3, "keep": 3})).train(before=damage)
    assert json.loads((tmp_path / "averaged" / "state.json").read_text())["steps"] == [6, 12]
    assert "left out of the mean" in capsys.readouterr().err


def test_a_model_comes_back_with_the_best_weights(tmp_path: Path) -> None:
    def spoil(what: str, number: int) -> None:
        if (what, number) == ("measure", 3):
            toy.model.output.bias.data += 100 * torch.randn(12)

    toy = Toy(tmp_path, toy_config(), before=spoil)
    outcome = toy.train()
    assert outcome.state.best is not None and outcome.state.best.step == 8
    assert outcome.weights == path_of(tmp_path, 8)
    assert same(toy.model, outcome.weights) and not toy.model.training


def test_auto_is_decided_once_in_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a machine measures may change from hour to hour; the weights of a run may not."""
    for other in ("bf16", "fp32"):  # one of them is not what "auto" would be now
        run, whole = tmp_path / other, tmp_path / f"{other} whole"
        Toy(run, toy_config(precision=other, max_steps=4)).train()
        Toy(run, toy_config(precision="auto", max_steps=6)).train()
        assert f"precision {other}, as when this run began" in capsys.readouterr().err
        assert [x["precision"] for x in read(run) if x["event"] == "start"] == [other] * 2
        Toy(whole, toy_config(precision=other, max_steps=6)).train()
        assert final(whole) == final(run)


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [(lambda: torch.empty(2**60, dtype=torch.uint8), TrainError,
      r"examples of up to 8 tokens does not fit .*batch_tokens"),
     (lambda: torch.ones(2) @ torch.ones(3), RuntimeError, "inconsistent tensor size")],
)  # fmt: skip
def test_only_a_lack_of_memory_in_the_rehearsal_is_called_so(tmp_path, harm, error, message):
    toy = Toy(tmp_path, toy_config(), before=lambda what, number: what == "loss" and harm())
    with pytest.raises(error, match=message):
        toy.train()
    assert checkpoint.steps(tmp_path) == []


def test_a_disk_that_fills_up_stops_training_with_the_last_checkpoint_whole(small_disk) -> None:
    run = small_disk / "run"

    def fill(what: str, number: int) -> None:
        if (what, number) == ("loss", 6):  # of step 5, after the rehearsal
            free = shutil.disk_usage(small_disk).free
            (small_disk / "ballast").write_bytes(bytes(max(0, free - 8192)))

    toy = Toy(run, toy_config(validation={"every": 100}))
    with pytest.raises(TrainError) as error:
        toy.train(before=fill)
    message = str(error.value)
    assert str(path_of(run, 6)) in message and "No space left" in message
    assert "It takes at least" in message and "MiB are free in" in message
    assert "step 3 is kept; the same command resumes from there" in message
    assert not list(run.glob("**/.new-*"))
    verify(path_of(run, 3))
    (small_disk / "ballast").unlink()
    assert toy.train().state.step == 12
    whole = replace(toy, folder=small_disk.parent / "whole")
    whole.train()
    assert final(run) == final(whole.folder)


def test_settings_of_torch_come_back(tmp_path: Path) -> None:
    small = torch.full((1 << 18,), 1e-39)
    kept: list[int] = []

    def settings() -> tuple[int, bool, int]:
        threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        return threads, exact, int((small * 1.0).count_nonzero())

    before = settings()
    toy = Toy(tmp_path, toy_config(threads=2, max_steps=1))
    toy.train(before=lambda event, number: kept.append(settings()[2]))
    assert settings() == before and before[2] == len(small)
    assert set(kept) == ({0} if X86 else {len(small)})


# Keeping freed memory: glibc takes both settings; elsewhere nothing is asked.
def test_the_settings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    libc: Any = ctypes.CDLL(None)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # another library is left alone
    keep_freed_memory()
    if not hasattr(libc, "mallopt"):
        pytest.skip("no glibc")
    output: list[int] = []
    watched = SimpleNamespace(mallopt=lambda *setting: output.append(libc.mallopt(*setting)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: watched)
    keep_freed_memory()
    assert output == [1, 1]
