"""The mean of the weights of several checkpoints, often better than each of them.

Lives here: forming it, one tensor at a time. Does not live here: which checkpoints, and whether
the mean is better (`foveate.train.fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from foveate.train.checkpoint import WEIGHTS
from foveate.train.files import TrainError
from foveate.train.tensors import opened


def average(folders: Sequence[Path]) -> dict[str, Tensor]:
    """θ̄ = (θ₁ + … + θₖ) / k over the checkpoints in ``folders`` (Vaswani et al., 2017, §6.1).

    Sums are fp64; one tensor of each file is in memory at a time. Integer tensors, such as
    counters, are taken from the last. Raises `TrainError` where names or shapes differ.
    """
    if not folders:
        raise TrainError("there is no checkpoint to average")
    mean: dict[str, Tensor] = {}
    with ExitStack() as stack:
        every = [stack.enter_context(opened(folder / WEIGHTS)) for folder in folders]
        names = set(every[-1].keys())
        for folder, file in zip(folders, every, strict=True):
            if odd := names ^ set(file.keys()):
                raise TrainError(f"{folder} is of another model than {folders[-1]}: {min(odd)}")
        for name in sorted(names):
            last = every[-1].get_tensor(name)
            if not last.is_floating_point():
                mean[name] = last
                continue
            total = torch.zeros(last.shape, dtype=torch.float64)
            for folder, file in zip(folders, every, strict=True):
                part = file.get_tensor(name)
                if part.shape != last.shape:
                    raise TrainError(
                        f"{folder}: {name} is {tuple(part.shape)} there and {tuple(last.shape)} "
                        f"in {folders[-1]}"
                    )
                total += part
            mean[name] = (total / len(every)).to(last.dtype)
    return mean
