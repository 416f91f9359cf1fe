"""Checkpoints and sessions: all comes back bit for bit, damage is passed over, the best is kept."""

import ctypes
import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from foveate.nn.native.kernels import X86
from foveate.train import checkpoint
from foveate.train.checkpoint import path_of, read_chosen
from foveate.train.fit import keep_freed_memory
from foveate.train.journal import read
from foveate.train.optim import OptimizerConfig, average
from foveate.train.stored import (
    MANIFEST,
    WEIGHTS,
    DamagedError,
    TrainError,
    clean,
    load_weights,
    remove,
    save_weights,
    sealed_folder,
    verify,
)
from train_toy import Toy, ToyModel, final, toy_config


def trained(kind: str = "adamw", steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = ToyModel()
    optimizer = OptimizerConfig.parse(kind).build(model)
    for _ in range(steps):
        model(torch.arange(8).view(2, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def states(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor | None]:
    names = {p: name for name, p in model.named_parameters()}
    own = {f"{names[p]}:{k}": v for p, s in optimizer.state.items() for k, v in s.items()}
    return dict(model.state_dict()) | own


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_model_and_optimizer_come_back_bit_for_bit(tmp_path: Path, kind: str) -> None:
    saved = trained(kind)
    checkpoint.save(tmp_path, 2, checkpoint.contents_of(*saved), {"step": 2}, "a = 1\n")
    model = ToyModel()
    other = model, OptimizerConfig.parse(kind).build(model)
    assert checkpoint.load(tmp_path, 2, *other) == {"step": 2}
    before, after = states(*saved), states(*other)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value is after[name] is None or torch.equal(value, after[name]), name
    folder = checkpoint.path_of(tmp_path, 2)
    assert (folder / "config.toml").read_text() == "a = 1\n"
    assert {p.suffix for p in folder.iterdir()} == {".safetensors", ".json", ".toml"}


def test_tied_weights_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    model, _ = trained()
    save_weights(model, tmp_path / "w")
    with safe_open(tmp_path / "w", framework="pt") as file:
        assert "embedding.weight" in file.keys()  # noqa: SIM118
        assert "output.weight" not in file.keys()  # noqa: SIM118
    other = ToyModel()
    load_weights(other, tmp_path / "w")
    assert other.output.weight is other.embedding.weight
    assert torch.equal(other.output.weight, model.output.weight)


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    model, _ = trained()
    for name in "ab":
        save_weights(model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    save_weights(ToyModel(), tmp_path / "w")
    wide = ToyModel()
    wide.norm = nn.LayerNorm(9)
    with pytest.raises(TrainError, match=r"norm\.bias is \(8,\) there and \(9,\)"):
        load_weights(wide, tmp_path / "w")
    more = ToyModel()
    more.extra = nn.Linear(2, 2)
    with pytest.raises(TrainError, match=r"it lacks \['extra\.bias', 'extra\.weight'\]"):
        load_weights(more, tmp_path / "w")


def test_the_newest_sound_one_is_found_and_damage_is_named(tmp_path: Path) -> None:
    saved = trained()
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, step, checkpoint.contents_of(*saved), {}, "")
    assert checkpoint.newest_sound(tmp_path) == (10, [])
    weights = checkpoint.path_of(tmp_path, 10) / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-7])
    (checkpoint.path_of(tmp_path, 2) / "optimizer.json").unlink()
    step, complaints = checkpoint.newest_sound(tmp_path)
    assert step == 1
    assert [str(weights) in complaints[0], "optimizer.json is missing" in complaints[1]] == [
        True
    ] * 2
    assert checkpoint.newest_sound(tmp_path / "nowhere") == (None, [])


def test_prune_keeps_what_is_named(tmp_path: Path) -> None:
    saved = trained()
    for step in range(1, 6):
        checkpoint.save(tmp_path, step, checkpoint.contents_of(*saved), {}, "")
    checkpoint.prune(tmp_path, {2, 5, 77})
    assert checkpoint.steps(tmp_path) == [2, 5]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir())[0].startswith("step-")


def test_chosen_is_the_best_or_else_the_newest(tmp_path: Path) -> None:
    assert checkpoint.chosen(tmp_path) is None
    saved = trained()
    for step in (1, 2):
        checkpoint.save(tmp_path, step, checkpoint.contents_of(*saved), {}, "")
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 2)
    checkpoint.write_best(tmp_path, checkpoint.path_of(tmp_path, 1), {"loss": 1.0})
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 1)
    checkpoint.prune(tmp_path, {2})
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 2)


# Weights that a training replaces while they are read are chosen anew.


def put(run: Path, step: int) -> Path:
    folder = path_of(run, step)
    folder.mkdir(parents=True)
    for name in (WEIGHTS, MANIFEST):
        (folder / name).write_text(str(step))
    (run / "best.json").write_text(json.dumps({"folder": folder.relative_to(run).as_posix()}))
    return folder


def test_a_replaced_checkpoint_is_chosen_anew(tmp_path: Path) -> None:
    first = put(tmp_path, 1)

    def read(folder: Path) -> str:
        if folder == first:
            put(tmp_path, 2)
            shutil.rmtree(first)
        return (folder / WEIGHTS).read_text()

    assert read_chosen(tmp_path, "best", read) == (path_of(tmp_path, 2), "2")


def test_what_is_wrong_with_the_chosen_one_is_said(tmp_path: Path) -> None:
    put(tmp_path, 1)

    def read(folder: Path) -> str:
        raise ValueError(f"{folder} is of another model")

    with pytest.raises(ValueError, match="of another model"):
        read_chosen(tmp_path, "best", read)


# Folders are whole or not there, whatever strikes while they are written.


def fill(target: Path, text: str) -> None:
    with sealed_folder(target) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "b.txt").write_text("b" * 100)


def test_a_sealed_folder_verifies_and_replaces_the_one_before(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    fill(tmp_path / "x", "two")
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "missing", "manifest", "empty manifest"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    fill(tmp_path / "x", "one")
    file = tmp_path / "x" / ("manifest.json" if "manifest" in damage else "b.txt")
    content = file.read_bytes()
    if damage == "flip":
        file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty manifest" else content[:60])
    reasons = {"truncate": "60 bytes instead of 100", "flip": "sha256", "missing": "is missing"}
    with pytest.raises(DamagedError, match=reasons.get(damage, "cannot be read")) as error:
        verify(tmp_path / "x")
    assert str(file) in str(error.value)


def test_what_fails_on_the_way_leaves_the_old_folder_and_no_new_one(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    with pytest.raises(KeyboardInterrupt), sealed_folder(tmp_path / "x") as folder:
        (folder / "a.txt").write_text("two")
        raise KeyboardInterrupt
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_is_named_and_what_was_there_is_kept(small_disk: Path) -> None:
    fill(small_disk / "x", "one")
    with pytest.raises(TrainError) as error, sealed_folder(small_disk / "y") as folder:
        (folder / "big").write_bytes(bytes(2**21))
    message = str(error.value)
    assert str(small_disk / "y") in message and os.strerror(errno.ENOSPC) in message
    assert "It takes at least" in message and "MiB are free in" in message
    verify(small_disk / "x")
    assert [p.name for p in small_disk.iterdir()] == ["x"]


def test_clean_undoes_what_a_kill_left(tmp_path: Path) -> None:
    fill(tmp_path / "whole", "kept")
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-whole")  # killed before it was removed
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-moved")  # killed between two renames
    (tmp_path / ".new-half").mkdir()
    (tmp_path / ".new-file").write_text("half")
    clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moved", "whole"]
    verify(tmp_path / "moved")


def test_what_a_kill_left_is_in_nobodys_way(tmp_path: Path) -> None:
    fill(tmp_path / "whole", "first")
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-whole")  # killed before it was removed
    fill(tmp_path / "whole", "second")
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]
    verify(tmp_path / "whole")


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    remove(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


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
    config = toy_config(average=3, optimizer=adam, max_steps=11, clip_norm=100)
    toy = Toy(tmp_path, config)
    outcome = toy.train()
    assert outcome.state.best is not None
    record = json.loads((tmp_path / "averaged" / "state.json").read_text())
    assert record["steps"] == [6, 9, 11]
    folders = [checkpoint.path_of(tmp_path, step) for step in record["steps"]]
    mean = average(folders)
    saved = ToyModel()
    load_weights(saved, tmp_path / "averaged" / WEIGHTS)
    assert torch.equal(saved.state_dict()["norm.weight"], mean["norm.weight"])
    assert (record["value"] < outcome.state.best.value) == better
    best = checkpoint.path_of(tmp_path, outcome.state.best.step)
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
    assert outcome.state.best is not None and outcome.state.best.step == 8
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
