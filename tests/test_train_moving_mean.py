"""The moving mean of weights: the equation, apart from training, and bit for bit after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from foveate.train import checkpoint
from foveate.train.optim import MovingMean
from foveate.train.trainer import Trainer
from tolerances import close
from train_toy import Toy, ToyModel, content, toy_config


def tensors(run: Path, step: int, file: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.path_of(run, step) / file)


def config(**changes: object) -> object:
    return toy_config(ema={"decay": 0.7}, save={"every": 1, "keep": 99}, **changes)


def test_the_mean_is_its_equation(tmp_path: Path) -> None:
    Toy(tmp_path, config(max_steps=5)).train()  # type: ignore[arg-type]
    torch.manual_seed(11)  # the first weights of a toy
    mean = {n: t.detach().clone() for n, t in ToyModel().state_dict().items()}
    del mean["output.weight"]  # tied to the embedding
    for step in range(1, 6):
        trained = tensors(tmp_path, step, checkpoint.TRAINED)
        decay = min(0.7, (1 + step) / (10 + step))
        for name, tensor in mean.items():
            mean[name] = decay * tensor + (1 - decay) * trained[name]
        mean["seen"] = trained["seen"]  # a buffer is no weight
        for name, tensor in tensors(tmp_path, step, checkpoint.WEIGHTS).items():
            close(tensor, mean[name], why=name)


def test_it_changes_nothing_of_the_training(tmp_path: Path) -> None:
    Toy(tmp_path / "with", config()).train()  # type: ignore[arg-type]
    plain = toy_config(save={"every": 1, "keep": 99})
    Toy(tmp_path / "without", plain).train()
    for step in (1, 7, 12):
        ours = tensors(tmp_path / "with", step, checkpoint.TRAINED)
        theirs = tensors(tmp_path / "without", step, checkpoint.WEIGHTS)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("crash", [1, 5, 9])
def test_a_run_goes_on_bit_for_bit(tmp_path: Path, crash: int) -> None:
    Toy(tmp_path / "whole", config()).train()  # type: ignore[arg-type]

    def stop(what: str, number: int) -> None:
        if (what, number) == ("loss", crash):
            raise KeyboardInterrupt

    toy = Toy(tmp_path / "parts", config())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        toy.train(before=stop)
    toy.train()
    for step in (crash, 12):
        one, other = (checkpoint.path_of(tmp_path / n, step) for n in ("whole", "parts"))
        assert content(one) == content(other)
        assert (one / checkpoint.TRAINED).read_bytes() == (other / checkpoint.TRAINED).read_bytes()


def test_validation_measures_the_mean_and_gives_the_weights_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    plain = Trainer.measure

    def spy(trainer: Trainer, model: torch.nn.Module) -> object:
        before = trainer.tools.mean
        assert before is not None
        own = trainer.job.model.state_dict()
        measured.append(all(torch.equal(own[n], t) for n, t in before.tensors.items()))
        return plain(trainer, model)

    monkeypatch.setattr(Trainer, "measure", spy)
    toy = Toy(tmp_path, config())  # type: ignore[arg-type]
    outcome = toy.train()
    assert measured == [True] * 3
    chosen = load_file(outcome.weights / checkpoint.WEIGHTS)
    own = toy.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in chosen.items())


def test_applied_gives_back_the_same_bits() -> None:
    model = ToyModel()
    mean = MovingMean.Config().build(model)
    with torch.no_grad():
        model.output.weight.add_(1.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match="inside"), mean.applied():
        assert not torch.equal(model.output.weight, before["output.weight"])
        raise ValueError("inside")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
