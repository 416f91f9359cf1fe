"""Resume == uninterrupted, bit for bit on a CPU, wherever and however a run was stopped."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from foveate.train import checkpoint
from foveate.train.config import TrainConfig
from foveate.train.journal import read
from foveate.train.stored import TrainError
from small_runs import running
from train_toy import BEFORE, Toy, final, toy_config

TESTS = Path(__file__).parent.parent
TIMES = ("seconds", "tokens_per_second", "memory_mib")
STEPS = 8


class Crash(Exception):
    """Stands for a process that is gone."""


def crash() -> None:
    raise Crash


def at(what: str, number: int, act: Callable[[], None]) -> BEFORE:
    """Act at one moment of a training."""
    return lambda *moment: act() if moment == (what, number) else None


def config(**changes: Any) -> TrainConfig:
    return toy_config(
        accumulate=2, max_steps=STEPS, validation={"every": 3, "samples": 0}, **changes
    )


@cache
def whole(**changes: Any) -> Path:
    """An uninterrupted run."""
    folder = Path(mkdtemp())
    Toy(folder, config(**changes)).train()
    return folder


def log(run: Path) -> list[dict[str, Any]]:
    """The log without times and without the lines of sessions."""
    lines = [line for line in read(run) if line["event"] not in ("start", "end")]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def same(run: Path, steps: bool = True) -> None:
    """Equal tensors, places, bests and logs, and checkpoints of the same steps."""
    assert final(run) == final(whole())
    assert (run / "best.json").read_bytes() == (whole() / "best.json").read_bytes()
    assert log(run) == log(whole())
    assert not steps or checkpoint.steps(run) == checkpoint.steps(whole())


@pytest.mark.parametrize("loss", range(1, 2 * STEPS + 2))
def test_a_crash_at_any_batch(tmp_path: Path, loss: int) -> None:
    toy = Toy(tmp_path, config())
    with pytest.raises(Crash):
        toy.train(before=at("loss", loss, crash))
    toy.train()
    same(tmp_path)


@pytest.mark.parametrize(
    ("signalled", "what", "number"),
    [(signal.SIGTERM, "loss", 6), (signal.SIGTERM, "measure", 1)]
    + [(signal.SIGINT, "loss", number) for number in (1, 2, 7, 17)]
    + [(signal.SIGINT, "measure", number) for number in (1, 2, 3)],
)
def test_a_signal_at_any_moment(tmp_path, signalled, what, number) -> None:
    """The step is finished and saved; a validation that was broken off is made up for."""
    toy = Toy(tmp_path, config())
    outcome = toy.train(before=at(what, number, lambda: os.kill(os.getpid(), signalled)))
    assert outcome.reason == "interrupted" and outcome.exit_code == 128 + signalled
    assert checkpoint.steps(tmp_path)[-1] == outcome.state.step
    if what == "measure":
        assert outcome.state.validated < outcome.state.step == min(3 * number, STEPS)
    assert toy.train().reason == "max_steps"
    same(tmp_path, steps=False)


def test_stopping_after_every_single_step(tmp_path: Path) -> None:
    send = at("loss", 2, lambda: os.kill(os.getpid(), signal.SIGINT))  # after the rehearsal
    for step in range(1, STEPS + 1):
        assert Toy(tmp_path, config()).train(before=send).state.step == step
    Toy(tmp_path, config()).train()
    same(tmp_path, steps=False)


# others: test_train_checkpoint.py; without damage a finished run is made longer
@pytest.mark.parametrize(("damage", "step"), [("flip", 3), ("half-written", 3), ("none", 6)])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path, damage, step, capsys
) -> None:
    Toy(tmp_path, config().model_copy(update={"max_steps": 6})).train()
    folder = checkpoint.path_of(tmp_path, 6)
    if damage == "flip":
        content = bytearray((folder / checkpoint.OPTIMIZER).read_bytes())
        content[-3] ^= 16
        (folder / checkpoint.OPTIMIZER).write_bytes(content)
    elif damage == "half-written":
        folder.rename(folder.with_name(".new-" + folder.name))
    capsys.readouterr()
    Toy(tmp_path, config()).train()
    output = capsys.readouterr().err
    assert f"resuming from step {step}" in output
    for said in ("damaged checkpoint passed over", str(folder / checkpoint.OPTIMIZER)):
        assert (said in output) == (damage == "flip")
    assert final(tmp_path) == final(whole())
    assert not list(tmp_path.glob("**/.new-*"))


def test_where_nothing_is_whole_nothing_is_overwritten(tmp_path: Path) -> None:
    Toy(tmp_path, config(save={"every": 8, "keep": 1})).train()
    for step in checkpoint.steps(tmp_path):
        (checkpoint.path_of(tmp_path, step) / "state.json").write_text("{")
    with pytest.raises(TrainError, match=r"no checkpoint of .* is intact .*state\.json"):
        Toy(tmp_path, config()).train()


def test_other_data_seed_or_budget_cannot_go_on(tmp_path: Path) -> None:
    Toy(tmp_path, config()).train()
    for toy in (Toy(tmp_path, config(batch_tokens=80)), Toy(tmp_path, config(), seed=4)):
        with pytest.raises(TrainError, match="another data set, seed or"):
            toy.train()


@pytest.mark.scale
def test_sigkill_and_ctrl_c_of_a_real_process(tmp_path: Path) -> None:
    """SIGKILL, then Ctrl-C, then to the end: the bytes of a run that was never stopped."""
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "train_toy", str(tmp_path), "60", "0.02"]
    luck = random.Random(1)
    for steps, signalled in [(3, signal.SIGKILL), (9, signal.SIGINT)]:
        with running(command, env=env, stderr=subprocess.PIPE) as process:
            while max(checkpoint.steps(tmp_path), default=0) < steps:
                assert process.poll() is None, "it has not begun"
                time.sleep(0.005)
            time.sleep(luck.uniform(0, 0.1))
            process.send_signal(signalled)
            _, output = process.communicate(timeout=60)
        if signalled == signal.SIGINT:
            assert process.returncode == 130
            assert b"stopped by SIGINT after step" in output
            assert b"the same command goes on" in output
    last = checkpoint.steps(tmp_path)[-1]
    assert 9 <= last < 60
    assert Toy(tmp_path, toy_config(max_steps=60)).train().reason == "max_steps"
    whole = tmp_path / "whole"
    Toy(whole, toy_config(max_steps=60)).train()
    assert final(tmp_path) == final(whole)
    assert log(tmp_path) == log(whole)
