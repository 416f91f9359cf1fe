"""Steps in flight: a host that never waits trains the same, and a failed step changes nothing."""

import contextlib
import os
import signal
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from foveate.run.training import train
from foveate.train import checkpoint, fit
from foveate.train.distributed import RankGroup, Ranks
from foveate.train.feed import AHEAD, steps_ahead
from foveate.train.journal import read
from foveate.train.optim import OptimizerConfig
from foveate.train.stored import TrainError
from foveate.train.trainer import Trainer
from small_runs import CONFIGS, MORE, TRAIN, write_data
from train_toy import Toy, ToyBatch, ToyCopy, ToyModel, content, toy_config

WAITS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "is_nonzero", "_unique2"}
CPU_ONLY = {"linear.py:forward", "context.py:blind"}  # a seed and a mask, read where a CPU has them


class Waits(TorchDispatchMode):
    """Counts, by its place in our code, what makes a host wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        masks = args[1] if name.startswith("index") and len(args) > 1 else ()
        by_mask = isinstance(masks, list | tuple) and any(
            isinstance(x, Tensor) and x.dtype == torch.bool for x in masks
        )
        moves = name == "_to_copy" and args[0].device != kwargs.get("device", args[0].device)
        if name in WAITS or by_mask or (moves and not kwargs.get("non_blocking")):
            self.note(name)
        return func(*args, **kwargs)

    def note(self, name: str) -> None:
        """Count a wait; batches are made in another thread."""
        if threading.current_thread() is threading.main_thread():
            frames = [f for f in traceback.extract_stack() if "/src/foveate/" in f.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].name}"
            if place not in CPU_ONLY:
                self.found[f"{name} in {place}"] += 1


@pytest.fixture
def in_flight(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps are launched as on a GPU; the list has how many were in flight after each launch."""
    depths: list[int] = []
    launch = Trainer.launch

    def launched(self: Trainer, step: Any) -> None:
        launch(self, step)
        depths.append(len(self._in_flight))

    monkeypatch.setattr(fit, "steps_ahead", lambda *_: AHEAD)
    monkeypatch.setattr(Trainer, "launch", launched)
    return depths


@pytest.fixture
def waits(in_flight: list[int], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The waits of all launches, also those that do not pass PyTorch's dispatcher."""
    launch, waits = Trainer.launch, Waits()

    def watched(self: Trainer, step: Any) -> None:
        with waits, pytest.MonkeyPatch.context() as patch:
            for name in ("tolist", "numpy", "item"):
                own = getattr(Tensor, name)

                def noted(tensor: Tensor, own: Any = own, name: str = name) -> Any:
                    waits.note(name)
                    return own(tensor)

                patch.setattr(Tensor, name, noted)
            launch(self, step)

    monkeypatch.setattr(Trainer, "launch", watched)
    return waits.found


SETTINGS = {
    "accumulate": ["train.accumulate=3"],
    "clip off": ["train.clip_norm=none"],
    "mean": ["train.ema={decay=0.9}"],
    "bf16": ['train.precision="bf16"'],
    "sgd": ['train.optimizer={kind="sgd",lr=0.1,momentum=0.9}'],
    "muon": ['train.optimizer={kind="muon",lr=0.01}'],
    "learned": [f'model.{side}.position={{kind="learned"}}' for side in ("encoder", "decoder")],
    "scheduled": ['objective={teacher_forcing={kind="scheduled"}}'],
}
CASES = [(name, name, list[str]()) for name in CONFIGS | MORE]
CASES += [("transformer", name, changes) for name, changes in SETTINGS.items()]
families = pytest.mark.parametrize(
    ("family", "name", "changes"), CASES, ids=[name for _, name, _ in CASES]
)


def config_of(folder: Path, family: str) -> Path:
    """The config of a family, with data of unequal lengths."""
    write_data(folder)
    for name, line in {"pairs": "le chien dort", "labelled": "animal"}.items():
        with (folder / f"{name}.train.tsv").open("a", encoding="utf-8") as file:
            file.write(9 * f"the dog\t{line}\n")
    text = (CONFIGS | MORE)[family].format(folder=folder.as_posix())
    (folder / "run.toml").write_text(text + TRAIN.format(steps=7, half=7), "utf-8")
    return folder / "run.toml"


@families
def test_no_step_waits(tmp_path, waits, in_flight, family, name, changes) -> None:
    train(config_of(tmp_path, family), changes, folder=tmp_path / "run")
    assert not waits, f"{name} waits"
    assert max(in_flight) == AHEAD + 1 and len(in_flight) == 7


@families
def test_no_loss_waits_where_tensors_have_no_values(
    tmp_path, monkeypatch, family, name, changes
) -> None:
    """On the device "meta", for which the code of a GPU runs, a value that is read is an error."""
    run = train(config_of(tmp_path, family), changes, folder=tmp_path / "run")
    enabled, autocast, waits = torch.is_autocast_enabled, torch.autocast, Waits()
    none = contextlib.nullcontext()
    for name, replaced in {
        "is_autocast_enabled": lambda kind=None: kind != "meta" and enabled(kind),
        "autocast": lambda kind, **kw: none if kind == "meta" else autocast(kind, **kw),
    }.items():
        monkeypatch.setattr(torch, name, replaced)
    model, objective = run.model.train().to("meta"), run.config.objective.build()
    objective.advance(1)
    batch = run.task.batch("train", range(min(9, len(run.task.lengths("train")))))
    with waits:
        loss = objective.loss(run.task, model, batch)
        loss.total.backward()
    assert loss.total.device.type == "meta" and loss.count > 0
    assert not waits.found


@pytest.mark.gpu
def test_no_step_waits_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch itself raises where a launch waits; the first steps may, which plan kernels."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU that PyTorch can use is here")
    launch, depths = Trainer.launch, list[int]()

    def strict(self: Trainer, step: Any) -> None:
        torch.cuda.set_sync_debug_mode("error" if step.number > 2 else "default")
        try:
            launch(self, step)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        depths.append(len(self._in_flight))

    monkeypatch.setattr(Trainer, "launch", strict)
    train(config_of(tmp_path, "transformer"), [], folder=tmp_path / "run")
    assert max(depths) == AHEAD + 1


# The same weights and the same log, whether a step waits or not.
def timeless(run: Path) -> list[dict[str, Any]]:
    """The lines of a log without what depends on the clock and the machine."""
    clocks = {"seconds", "tokens_per_second", "memory_mib"}
    return [{k: v for k, v in line.items() if k not in clocks} for line in read(run)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, "accumulate": 2},
        {"optimizer": {"kind": "muon", "lr": 0.02}, "ema": {"decay": 0.9}},
        {"optimizer": {"kind": "adam", "lr": 0.02}, "health_every": 4, "log_every": 1},
    ],
)
def test_the_same_weights_and_log(tmp_path: Path, monkeypatch, changes: dict[str, Any]) -> None:
    """Twenty steps, once at a stretch and once stopped by a signal in flight and resumed."""
    config = toy_config(max_steps=20, save={"every": 8, "keep": 9}, **changes)
    Toy(tmp_path / "waits", config).train()
    monkeypatch.setattr(fit, "steps_ahead", lambda *_: AHEAD)
    Toy(tmp_path / "ahead", config).train()
    losses, toy = 6 * config.accumulate, Toy(tmp_path / "stopped", config)

    def stop(what: str, number: int) -> None:
        if (what, number) == ("loss", losses):
            os.kill(os.getpid(), signal.SIGTERM)

    assert toy.train(stop).reason == "interrupted"
    assert 0 < checkpoint.steps(toy.folder)[-1] < 8
    toy.train()
    for step in (8, 16, 20):
        waits, *others = (
            content(checkpoint.path_of(tmp_path / name, step))
            for name in ("waits", "ahead", "stopped")
        )
        assert others == [waits] * 2, step
    assert timeless(tmp_path / "ahead") == timeless(tmp_path / "waits")


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "muon"])
def test_a_failed_step_changes_nothing(tmp_path: Path, monkeypatch, in_flight, kind: str) -> None:
    """The weights stay those before it, though it is noticed after later steps are launched."""
    optimizer = {"kind": kind, "lr": 0.02} | ({"momentum": 0.9} if kind == "sgd" else {})
    rare = {"save": {"every": 5}, "validation": {"every": 99}}
    config = toy_config(optimizer=optimizer, max_steps=5, **rare)
    toy = Toy(tmp_path / "before", config)
    toy.train()
    launch, loss, odd = Trainer.launch, ToyCopy.loss, list[object]()

    def launched(self: Trainer, step: Any) -> None:
        if step.number == 6:
            odd.append(step.micro_batches[0].batch)
        launch(self, step)

    def broken(self: ToyCopy, model: nn.Module, batch: ToyBatch, objective: Any) -> Any:
        result = loss(self, model, batch, objective)
        if result.total.requires_grad and any(batch is other for other in odd):
            result.total.register_hook(lambda grad: grad * float("nan"))
        return result

    monkeypatch.setattr(Trainer, "launch", launched)
    monkeypatch.setattr(ToyCopy, "loss", broken)
    failed = Toy(tmp_path / "failed", config.model_copy(update={"max_steps": 12}))
    with pytest.raises(TrainError, match=r"^step 6.*the loss is finite, but the gradient"):
        failed.train()
    assert in_flight[-1] == AHEAD + 1  # steps were launched after it
    for name, value in toy.model.named_parameters():
        assert torch.equal(failed.model.get_parameter(name), value), name
    assert checkpoint.newest_sound(tmp_path / "failed") == (5, [])
    assert [line["step"] for line in read(tmp_path / "failed")][-1] == 4


def test_steps_are_in_flight_where_a_failed_one_can_be_skipped() -> None:
    model, gpu, alone = ToyModel(), torch.device("cuda"), Ranks()
    for kind in ("adam", "adamw", "sgd", "muon"):
        optimizer = OptimizerConfig.parse(kind).build(model)
        assert steps_ahead(gpu, alone, optimizer) == AHEAD, kind
        assert steps_ahead(torch.device("cpu"), alone, optimizer) == 0
    assert steps_ahead(gpu, object.__new__(RankGroup), optimizer) == 0
    assert steps_ahead(gpu, alone, torch.optim.SGD(model.parameters(), fused=False)) == 0
