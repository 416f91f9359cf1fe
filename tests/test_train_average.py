"""Averaging: the mean of each weight, and a refusal of what cannot be averaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foveate.train.checkpoint import WEIGHTS, TrainError, write_tensors
from foveate.train.optim import average


def test_the_mean_in_fp64_and_counters_from_the_last(tmp_path: Path) -> None:
    parts = [torch.randn(3, 4, dtype=torch.float32) for _ in range(5)]
    for i, part in enumerate(parts):
        (tmp_path / str(i)).mkdir()
        write_tensors({"w": part, "n": torch.tensor(i)}, tmp_path / str(i) / WEIGHTS)
    mean = average([tmp_path / str(i) for i in range(5)])
    assert torch.equal(mean["w"], torch.stack(parts).double().mean(0).float())
    assert mean["n"].item() == 4
    assert torch.equal(average([tmp_path / "2"])["w"], parts[2])


def test_other_models_are_refused(tmp_path: Path) -> None:
    for name, tensors in {
        "a": {"w": torch.ones(2)}, "b": {"w": torch.ones(3)}, "c": {"v": torch.ones(2)},
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        write_tensors(tensors, tmp_path / name / WEIGHTS)
    with pytest.raises(TrainError, match=r"w is \(2,\) there and \(3,\)"):
        average([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(TrainError, match="of another model"):
        average([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(TrainError, match="no checkpoint"):
        average([])
