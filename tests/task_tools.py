"""What tests of several tasks do: train on a few examples, and add up the losses of a batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveate.data.text import Corpus, Reading, TextData, collect
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy
from tolerances import MODEL, near


def fit(model: nn.Module, loss_of: Callable[[int], Loss], steps: int, rate: float = 1e-2) -> Loss:
    """Adam on the mean of a loss, which is given the number of the step; the loss of the last."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    model.eval()
    return loss


def model_of(task: Any, config: Any) -> Any:
    """The model of a config for a task, the same at each call."""
    torch.manual_seed(0)
    return task.build(config).eval()


def read_split(
    source: str | Path, target: str | Path | None, split: str, config: TextData
) -> Corpus:
    """The pairs of a split, in memory."""
    return collect(Reading(source, target, split, config))


def check_losses(task: Any, model: nn.Module, count: int, noise: int = 0) -> Loss:
    """Assert that the loss of a batch is the sum of those of its examples; the batch's."""
    objective = CrossEntropy.Config().build()
    with torch.no_grad():
        whole = task.loss(model, task.batch("train", range(count), noise), objective)
        parts = [task.loss(model, task.batch("train", [i], noise), objective) for i in range(count)]
    assert whole.count == sum(part.count for part in parts)
    assert float(whole.total) == near(sum(float(part.total) for part in parts), terms=MODEL)
    nll = sum(float(part.logged["nll"]) for part in parts)
    assert float(whole.logged["nll"]) == near(nll, terms=MODEL)
    return whole
