"""Optimisers: the equations by hand, which parameters decay, and equal bits in equal runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from foveate.config import ConfigError, kinds
from foveate.train import checkpoint, optim
from foveate.train.stored import WEIGHTS, TrainError, write_tensors
from foveate.train.trainer import Trainer
from tolerances import ROW, close, near
from train_toy import Toy, ToyModel, toy_config


class Little(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.hidden = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.output = nn.Linear(3, 5)
        self.output.weight = self.embedding.weight


def one_weight(value: float, gradient: float) -> tuple[nn.Linear, Tensor]:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    model.weight.grad = torch.full((1, 1), gradient)
    return model, model.weight


def test_adamw_spares_biases_norms_and_embeddings_even_tied_ones() -> None:
    model = Little()
    names = {id(p): name for name, p in model.named_parameters()}
    for frozen in (False, True):
        model.hidden.weight.requires_grad = not frozen
        groups = optim.AdamWConfig(weight_decay=0.1).build(model).param_groups
        found = {g["weight_decay"]: {names[id(p)] for p in g["params"]} for g in groups}
        decayed = {} if frozen else {0.1: {"hidden.weight"}}
        assert found == decayed | {0.0: {*names.values()} - {"hidden.weight"}}


def test_adam_takes_the_step_of_its_equation() -> None:
    model, weight = one_weight(1.0, 0.5)
    optimizer = optim.AdamConfig(lr=0.1, betas=(0.9, 0.98), eps=1e-9).build(model)
    optimizer.step()
    assert weight.item() == near(1.0 - 0.1, terms=ROW)  # m̂/√v̂ = g/|g| at first
    weight.grad = torch.full((1, 1), -1.0)
    optimizer.step()
    m = (0.9 * 0.1 * 0.5 + 0.1 * -1) / (1 - 0.9**2)
    v = (0.98 * 0.02 * 0.25 + 0.02 * 1) / (1 - 0.98**2)
    assert weight.item() == near(0.9 - 0.1 * m / v**0.5)


def test_adamw_decays_apart_from_the_gradient_and_sgd_has_momentum() -> None:
    model, weight = one_weight(2.0, 0.0)
    optim.AdamWConfig(lr=0.1, weight_decay=0.5).build(model).step()
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))
    model, weight = one_weight(1.0, 0.5)
    optimizer = optim.SGDConfig(lr=0.1, momentum=0.9).build(model)
    optimizer.step()
    optimizer.step()
    assert weight.item() == pytest.approx(1.0 - 0.1 * 0.5 - 0.1 * (0.9 * 0.5 + 0.5))


@pytest.mark.parametrize("shape", [(8, 8), (5, 32), (32, 5)])
def test_orthogonal_matrices_have_singular_values_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    turned = optim.orthogonalize(matrices)
    singular = torch.linalg.svdvals(turned)
    assert singular.min() > 0.6 and singular.max() < 1.3
    assert ((turned - u @ v).norm() / (u @ v).norm()) < 0.3
    exact = optim.orthogonalize(matrices.double()).float()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = optim.orthogonalize(matrices)
    assert rounded.dtype == torch.float32 and not torch.allclose(rounded, exact, atol=1e-3)
    assert torch.allclose(turned, exact, atol=1e-3)
    assert torch.allclose(rounded, exact, atol=0.1)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
def test_muon_steps_matrices_as_pytorch_does_and_spares_what_adamw_spares() -> None:
    torch.manual_seed(2)
    model, other = Little(), Little()
    other.load_state_dict(model.state_dict())
    optimizer = optim.MuonConfig(lr=0.1, weight_decay=0.2).build(model)
    matrix = other.hidden.weight
    rest = [p for p in other.parameters() if p is not matrix]
    both = [
        torch.optim.Muon([matrix], lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=0.1, betas=(0.9, 0.98), eps=1e-9, weight_decay=0),
    ]
    for _ in range(3):
        for own, right in zip(model.parameters(), other.parameters(), strict=True):
            own.grad = right.grad = torch.randn_like(own)
        with torch.autocast("cpu", torch.bfloat16):  # PyTorch's Muon always computes in bfloat16
            optimizer.step()
        for each in both:
            each.step()
        optimizer.load_state_dict(optimizer.state_dict())  # as a run goes on
    for own, right in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(own, right, atol=5e-3 if own is model.hidden.weight else 1e-6)


@pytest.mark.parametrize("kind", sorted(kinds("optimizer")["optimizer"]))
def test_equal_gradients_give_equal_bits_and_the_steps_are_fused(kind: str) -> None:
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        model = nn.Linear(67, 43)
        optimizer = optim.OptimizerConfig.parse(kind).build(model)
        for _ in range(5):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        assert optimizer.param_groups[0]["fused"]
        results.append(model.weight.detach().clone())
    assert torch.equal(*results)


# Schedules against the closed forms of their papers.
SCHEDULES: list[tuple[optim.Schedule.Config, float, dict[int, float]]] = [  # with the peak
    (optim.Noam.Config(hidden_size=256, warmup_steps=100), 1.0,  # 1/16 · min(1/√n, n/1000)
     {1: 1 / 16_000, 99: 0.0061875, 100: 0.00625, 101: 101**-0.5 / 16, 400: 0.003125}),
    (optim.InverseSqrt.Config(warmup_steps=100), 2e-3, {1: 2e-5, 50: 1e-3, 100: 2e-3, 400: 1e-3}),
    (optim.Cosine.Config(warmup_steps=10, final_ratio=0.1), 1.0,
     {5: 0.5, 10: 1.0, 35: 0.1 + 0.9 * (1 + 0.5**0.5) / 2, 60: 0.1 + 0.9 / 2, 110: 0.1}),
    (optim.LinearSchedule.Config(warmup_steps=10, total_steps=110), 1.0,
     {5: 0.5, 10: 1.0, 35: 0.75, 110: 0.0, 500: 0.0}),
    (optim.Constant.Config(), 0.3, {1: 0.3}),
    (optim.Constant.Config(warmup_steps=4), 0.3, {1: 0.075, 2: 0.15, 4: 0.3, 5: 0.3}),
    (optim.WarmupStableDecay.Config(warmup_steps=10, decay_share=0.25, final_ratio=0.2), 1.0,
     {5: 0.5, 10: 1.0, 40: 1.0, 85: 1.0, 97: 0.2 + 0.8 * 13 / 25, 110: 0.2}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "peak", "rates"), SCHEDULES)
def test_rates_are_those_of_the_closed_form(config, peak: float, rates: dict[int, float]) -> None:
    schedule = config.build(peak, 110)
    assert {step: schedule.rate(step) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("kind", sorted(kinds("schedule")["schedule"]))
@given(step=st.integers(1, 100_000))
def test_rates_are_never_negative_nor_above_the_peak(kind: str, step: int) -> None:
    tree = {"kind": kind} | ({"hidden_size": 1} if kind == "noam" else {})
    rate = optim.Schedule.Config.parse(tree).build(1.0, 5000).rate(step)
    assert 0 <= rate <= 1


def test_a_schedule_that_ends_has_to_know_where() -> None:
    with pytest.raises(ConfigError, match=r"cosine.*set train\.max_steps"):
        optim.Cosine.Config().build(1.0)


# The moving mean of weights: the equation, and apart from training; resumed: test_train_waits.py.
def tensors(run: Path, step: int, file: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.path_of(run, step) / file)


def config(**changes: object) -> Any:
    return toy_config(ema={"decay": 0.7}, save={"every": 1, "keep": 99}, **changes)


def test_the_mean_is_its_equation(tmp_path: Path) -> None:
    Toy(tmp_path, config(max_steps=5)).train()
    torch.manual_seed(11)  # the first weights of a toy
    mean = {n: t.detach().clone() for n, t in ToyModel().state_dict().items()}
    del mean["output.weight"]  # tied to the embedding
    for step in range(1, 6):
        trained = tensors(tmp_path, step, checkpoint.TRAINED)
        decay = min(0.7, (1 + step) / (10 + step))
        for name, tensor in mean.items():
            mean[name] = decay * tensor + (1 - decay) * trained[name]
        mean["seen"] = trained["seen"]  # a buffer is no weight
        for name, tensor in tensors(tmp_path, step, WEIGHTS).items():
            close(tensor, mean[name], why=name)


def test_a_moving_mean_does_not_change_training(tmp_path: Path) -> None:
    Toy(tmp_path / "with", config()).train()
    Toy(tmp_path / "without", config().model_copy(update={"ema": None})).train()
    for step in (1, 7, 12):
        ours = tensors(tmp_path / "with", step, checkpoint.TRAINED)
        theirs = tensors(tmp_path / "without", step, WEIGHTS)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_validation_measures_the_mean_and_gives_the_weights_back(tmp_path, monkeypatch) -> None:
    measured = []
    plain = Trainer.measure

    def spy(trainer: Trainer, model: torch.nn.Module) -> object:
        own = trainer.job.model.state_dict()
        measured.append(all(torch.equal(own[n], t) for n, t in trainer.mean.tensors.items()))
        return plain(trainer, model)

    monkeypatch.setattr(Trainer, "measure", spy)
    toy = Toy(tmp_path, config())
    outcome = toy.train()
    assert measured == [True] * 3
    chosen = load_file(outcome.weights / WEIGHTS)
    own = toy.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in chosen.items())


def test_applied_gives_back_the_same_bits() -> None:
    model = ToyModel()
    mean = optim.MovingMean.Config().build(model)
    with torch.no_grad():
        model.output.weight.add_(1.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match="inside"), mean.applied():
        assert not torch.equal(model.output.weight, before["output.weight"])
        raise ValueError("inside")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


# Averaging: the mean of each weight, and a refusal of what cannot be averaged.
def stored(folder: Path, **tensors: Tensor) -> Path:
    folder.mkdir()
    write_tensors(tensors, folder / WEIGHTS)
    return folder


def test_the_mean_in_fp64_and_counters_from_the_last(tmp_path: Path) -> None:
    parts = [torch.randn(3, 4, dtype=torch.float32) for _ in range(5)]
    folders = [stored(tmp_path / str(i), w=w, n=torch.tensor(i)) for i, w in enumerate(parts)]
    mean = optim.average(folders)
    assert torch.equal(mean["w"], torch.stack(parts).double().mean(0).float())
    assert mean["n"].item() == 4
    assert torch.equal(optim.average(folders[2:3])["w"], parts[2])


def test_other_models_are_refused(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", w=torch.ones(2)), stored(tmp_path / "b", w=torch.ones(3))
    c = stored(tmp_path / "c", v=torch.ones(2))
    for folders, message in (
        ([a, b], r"w is \(2,\) there and \(3,\)"), ([a, c], "another model"), ([], "no checkpoint"),
    ):  # fmt: skip
        with pytest.raises(TrainError, match=message):
            optim.average(folders)
