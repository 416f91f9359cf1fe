"""Checkpoints: all comes back bit for bit, ties once, damage is passed over, the best is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from foveate.train import checkpoint
from foveate.train.checkpoint import TrainError
from foveate.train.optim import OptimizerConfig
from train_toy import ToyModel


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
    checkpoint.save(tmp_path, 2, checkpoint.Contents.of(*saved), {"step": 2}, "a = 1\n")
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
    checkpoint.save_weights(model, tmp_path / "w")
    with safe_open(tmp_path / "w", framework="pt") as file:
        assert "embedding.weight" in file.keys()  # noqa: SIM118
        assert "output.weight" not in file.keys()  # noqa: SIM118
    other = ToyModel()
    checkpoint.load_weights(other, tmp_path / "w")
    assert other.output.weight is other.embedding.weight
    assert torch.equal(other.output.weight, model.output.weight)


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    model, _ = trained()
    for name in "ab":
        checkpoint.save_weights(model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    checkpoint.save_weights(ToyModel(), tmp_path / "w")
    wide = ToyModel()
    wide.norm = nn.LayerNorm(9)
    with pytest.raises(TrainError, match=r"norm\.bias is \(8,\) there and \(9,\)"):
        checkpoint.load_weights(wide, tmp_path / "w")
    more = ToyModel()
    more.extra = nn.Linear(2, 2)
    with pytest.raises(TrainError, match=r"it lacks \['extra\.bias', 'extra\.weight'\]"):
        checkpoint.load_weights(more, tmp_path / "w")


def test_the_newest_sound_one_is_found_and_damage_is_named(tmp_path: Path) -> None:
    saved = trained()
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, step, checkpoint.Contents.of(*saved), {}, "")
    assert checkpoint.newest_sound(tmp_path) == (10, [])
    weights = checkpoint.path_of(tmp_path, 10) / checkpoint.WEIGHTS
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
        checkpoint.save(tmp_path, step, checkpoint.Contents.of(*saved), {}, "")
    checkpoint.prune(tmp_path, {2, 5, 77})
    assert checkpoint.steps(tmp_path) == [2, 5]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir())[0].startswith("step-")


def test_chosen_is_the_best_or_else_the_newest(tmp_path: Path) -> None:
    assert checkpoint.chosen(tmp_path) is None
    saved = trained()
    for step in (1, 2):
        checkpoint.save(tmp_path, step, checkpoint.Contents.of(*saved), {}, "")
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 2)
    checkpoint.point(tmp_path, checkpoint.path_of(tmp_path, 1), {"loss": 1.0})
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 1)
    checkpoint.prune(tmp_path, {2})
    assert checkpoint.chosen(tmp_path) == checkpoint.path_of(tmp_path, 2)
