"""A session: rehearsal, averaging, precision kept, a full disk met, the best weights at hand."""

import ctypes
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foveate.native.kernels import X86
from foveate.train import checkpoint
from foveate.train.fit import keep_freed_memory
from foveate.train.journal import read
from foveate.train.optim import average
from foveate.train.stored import WEIGHTS, TrainError, load_weights, verify
from train_toy import Toy, ToyModel, final, toy_config


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
    config = toy_config(average=3, optimizer=adam, max_steps=11, clip_norm=100)
    toy = Toy(tmp_path, config)
    outcome = toy.train()
    assert outcome.best is not None
    record = json.loads((tmp_path / "averaged" / "state.json").read_text())
    assert record["steps"] == [6, 9, 11]
    folders = [checkpoint.path_of(tmp_path, step) for step in record["steps"]]
    mean = average(folders)
    saved = ToyModel()
    load_weights(saved, tmp_path / "averaged" / WEIGHTS)
    assert torch.equal(saved.state_dict()["norm.weight"], mean["norm.weight"])
    assert (record["value"] < outcome.best.value) == better
    best = checkpoint.path_of(tmp_path, outcome.best.step)
    assert outcome.weights == (tmp_path / "averaged" if better else best)
    assert same(toy.model, outcome.weights)
    assert f"the {'mean' if better else 'single one'} is used" in capsys.readouterr().err

    measured = toy.train()  # a finished run is measured no second time
    assert measured.weights == outcome.weights and len(average_lines(tmp_path)) == 1

    other = {"every": 3, "best": "accuracy"}
    toy.config = toy_config(average=3, optimizer=adam, max_steps=11, clip_norm=100, save=other)
    toy.train()  # its loss says nothing of another figure
    assert [line["figure"] for line in average_lines(tmp_path)] == ["loss", "accuracy"]


def test_an_interrupted_mean_is_made_up_for(tmp_path: Path) -> None:
    import signal

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
            file = checkpoint.path_of(tmp_path, 9) / WEIGHTS
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
    assert outcome.best is not None and outcome.best.step == 8
    assert outcome.weights == checkpoint.path_of(tmp_path, 8)
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


def test_memory_runs_out_before_the_first_step(tmp_path: Path) -> None:
    def greedy(what: str, number: int) -> None:
        if what == "loss":
            torch.empty(2**60, dtype=torch.uint8)

    with pytest.raises(TrainError, match=r"examples of up to 8 tokens does not fit .*batch_tokens"):
        Toy(tmp_path, toy_config(), before=greedy).train()
    assert checkpoint.steps(tmp_path) == []


def test_other_errors_of_the_rehearsal_are_not_called_memory(tmp_path: Path) -> None:
    def fail(what: str, number: int) -> None:
        if what == "loss":
            raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        Toy(tmp_path, toy_config(), before=fail).train()


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
    assert str(checkpoint.path_of(run, 6)) in message and "No space left" in message
    assert "step 3 is kept; the same command resumes from there" in message
    assert not list(run.glob("**/.new-*"))
    verify(checkpoint.path_of(run, 3))
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
    if not hasattr(libc, "mallopt"):
        pytest.skip("no glibc")
    output: list[int] = []

    class Watched:
        def mallopt(self, name: int, value: int) -> int:
            output.append(libc.mallopt(name, value))
            return output[-1]

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Watched())
    keep_freed_memory()
    assert output == [1, 1]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep_freed_memory()
