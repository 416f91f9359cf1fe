"""Adapters: their equations, what is trained and saved, and the run that they belong to."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from foveate.config import ConfigError, parse_tree
from foveate.nn.adapters import DoRA, LoRA, adapt, freeze, merged
from foveate.run import Run, RunConfig, load
from foveate.run.training import train
from laws.conftest import defaults
from test_start import tree
from tolerances import ROW, close

KINDS = defaults("adapter")
ADAPTER = {"kind": "lora", "rank": 2, "parts": ["decoder.readout"]}
BPE = {"kind": "bpe", "vocab_size": 265}


def network() -> nn.Module:
    attention = nn.ModuleDict({"query": nn.Linear(6, 4)})
    return nn.ModuleDict({"attention": attention, "last": nn.Linear(4, 3)})


def of(config: Any, **fields: Any) -> Any:
    return config.model_copy(update={"rank": 2, "parts": ("attention.*",), **fields})


def outputs(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model["last"](model["attention"]["query"](x))


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_changes_nothing_at_first_and_merges_exactly(kind: str) -> None:
    torch.manual_seed(0)
    model, x = network(), torch.randn(5, 6)
    before, frozen = outputs(model, x), model["attention"]["query"].weight.detach().clone()
    adapt(model, of(KINDS[kind]))
    close(outputs(model, x), before, terms=ROW)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        outputs(model, x).square().mean().backward()
        optimizer.step()
    layer = model["attention"]["query"]
    assert torch.equal(layer.parametrizations.weight.original, frozen)
    after = outputs(model, x)
    assert (after - before).abs().max() > 1e-3
    close(outputs(merged(model), x), after, terms=ROW)
    assert type(model["attention"]["query"]) is nn.Linear
    assert all(p.requires_grad for p in model.parameters())


def test_the_equations() -> None:
    weight = torch.randn(4, 6)
    low, full = (kind.Config(rank=2, alpha=3.0).build(weight) for kind in (LoRA, DoRA))
    nn.init.normal_(low.up)
    full.load_state_dict({**low.state_dict(), "magnitude": torch.rand(4, 1) + 1})
    v = weight.double() + 1.5 * low.up.double() @ low.down.double()
    close(low(weight), v.float(), terms=ROW)
    length = (v**2).sum(dim=1, keepdim=True).sqrt()
    close(full(weight), (full.magnitude.double() * v / length).float(), terms=ROW)


@pytest.mark.parametrize("field", ["parts", "whole"])
def test_patterns_that_fit_nothing_are_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=r"'nowhere' fits nothing; names are such as attention"):
        adapt(network(), of(LoRA.Config(), **{field: ("nowhere",)}))


def test_patterns_freeze_and_train_whole() -> None:
    def trained() -> set[str]:
        return {name for name, p in model.named_parameters() if p.requires_grad}

    model = network()
    freeze(model, ("attention.*",))
    assert trained() == {"last.weight", "last.bias"}
    text = adapt(model, of(LoRA.Config(), whole=("last.bias",)))
    adapter = "attention.query.parametrizations.weight.0"
    assert trained() == {"last.bias", f"{adapter}.down", f"{adapter}.up"}
    assert f"{2 * (6 + 4) + 3} of" in text
    model = network()
    model["tied"] = nn.Linear(6, 4)
    model["tied"].weight = model["attention"]["query"].weight
    with pytest.raises(ConfigError, match="shares its weight"):
        adapt(model, of(LoRA.Config()))
    freeze(model, ("*",), but=("tied.weight",))  # it has all its names
    assert model["attention"]["query"].weight.requires_grad and len(trained()) == 1


@pytest.fixture
def base(tmp_path: Path) -> Run:
    return train(tree(tmp_path, "old", BPE, {}), folder=tmp_path / "base")


def config_of(folder: Path, base: Run, steps: int, **changes: Any) -> Any:
    config = tree(folder, "old", BPE, {"run": str(base.path), **changes.pop("start", {})})
    fast = config.train.tree() | {"max_steps": steps, "optimizer": {"kind": "sgd", "lr": 0.5}}
    parsed = type(config.train).parse(fast | {"adapter": ADAPTER, "save": {"every": 2}} | changes)
    return config.model_copy(update={"train": parsed})


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path / run.checkpoint / "model.safetensors")


def test_a_run_saves_its_adapter_alone_and_answers_merged(base: Run, tmp_path: Path) -> None:
    run = train(config_of(tmp_path, base, 4), folder=tmp_path / "run")
    saved, state, theirs = weights_of(run), run.model.state_dict(), base.model.state_dict()
    adapter = ".parametrizations.weight.0."
    assert all(adapter in name for name in saved) and state.keys() == theirs.keys()
    changed = {name for name in state if not torch.equal(state[name], theirs[name])}
    assert changed == {f"{name.partition(adapter)[0]}.weight" for name in saved}
    assert run.translate(["the dog runs"]) == load(tmp_path / "run").translate(["the dog runs"])


def test_a_stopped_training_resumes_to_the_same_weights(base: Run, tmp_path: Path) -> None:
    for name, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        train(config_of(tmp_path, base, steps), folder=tmp_path / name)
    first, second = (weights_of(load(tmp_path / name)) for name in ("whole", "parts"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_frozen_weights_keep_their_values(base: Run, tmp_path: Path) -> None:
    config = config_of(tmp_path, base, 2, adapter=None, freeze=["encoder.*"])
    run, theirs = train(config, folder=tmp_path / "run"), base.model.state_dict()
    state = run.model.state_dict()
    same = {name for name in state if torch.equal(state[name], theirs[name])}
    assert {name for name in state if name.startswith("encoder.")} <= same < state.keys()


def test_an_adapter_of_an_adapter_and_one_without_a_base(base: Run, tmp_path: Path) -> None:
    config = config_of(tmp_path, base, 2)
    first = train(config, folder=tmp_path / "first")
    second = train(config_of(tmp_path, first, 2), folder=tmp_path / "second")
    assert second.model.state_dict().keys() == base.model.state_dict().keys()
    plain = config.tree()
    del plain["model"]
    assert parse_tree(RunConfig, plain).model == base.config.model  # that of the start
    with pytest.raises(ConfigError, match=r"train.adapter: an adapter needs a base: set start.run"):
        train(config.model_copy(update={"start": None}), folder=tmp_path / "run")


def test_another_base_is_refused(base: Run, tmp_path: Path) -> None:
    train(config_of(tmp_path, base, 2), folder=tmp_path / "run")
    shutil.rmtree(base.path)
    other = tree(tmp_path, "old", BPE, {}).model_copy(update={"seed": 2})
    train(other, folder=base.path)
    with pytest.raises(ConfigError, match="has other weights than when"):
        load(tmp_path / "run")
