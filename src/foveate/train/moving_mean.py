"""The moving mean of the weights: validated, kept as the best and used in place of the last ones.

Lives here: the mean and what a config says of it. Does not live here: the mean of checkpoints
(`foveate.train.average`), and the files (`foveate.train.checkpoint`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.train.checkpoint import WEIGHTS, own_tensors
from foveate.train.shards import assign
from foveate.train.tensors import opened


class MovingMean(Configurable):
    """θ̄_t = δ_t θ̄_{t−1} + (1 − δ_t) θ_t,  δ_t = min(δ, (1 + t) / (10 + t)),  t from 1.

    Polyak averaging with exponential weights (Polyak & Juditsky, 1992); the small δ_t of the first
    steps forget the weights before training. Buffers and integer tensors are those of the model.
    """

    class Config(BaseConfig):
        """``decay`` is δ: the mean remembers about 1 / (1 − δ) steps."""

        decay: float = Field(default=0.999, ge=0, lt=1)

    def __init__(self, config: Config, model: nn.Module, folder: Path | None = None) -> None:
        """Begin with the weights of the model, or with the mean in a checkpoint's folder."""
        self.config, self.model = config, model
        self.tensors = {name: tensor.detach().clone() for name, tensor in self._present().items()}
        self._trained = [name for name, _ in model.named_parameters() if name in self.tensors]
        if folder is not None:
            with opened(folder / WEIGHTS) as file:
                for name, tensor in self.tensors.items():
                    assign(tensor, file.get_tensor(name))

    def _present(self) -> dict[str, Tensor]:
        return own_tensors(self.model)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        decay = min(self.config.decay, (1 + step) / (10 + step))
        present = self._present()
        mean = [self.tensors[name] for name in self._trained]
        torch._foreach_lerp_(mean, [present[name] for name in self._trained], 1 - decay)
        for name in present.keys() - set(self._trained):
            self.tensors[name].copy_(present[name])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the mean as its weights; afterwards with its own, bit for bit."""
        present = self._present()
        own = {name: tensor.clone() for name, tensor in present.items()}
        try:
            _copy(self.tensors, present)
            yield
        finally:
            _copy(own, present)


def moving_mean(
    config: MovingMean.Config | None, model: nn.Module, checkpoint: Path
) -> MovingMean | None:
    """The mean as a checkpoint has it, or a new one where there is no checkpoint; None without."""
    known = checkpoint if checkpoint.is_dir() else None
    return None if config is None else MovingMean(config, model, known)


@torch.no_grad()
def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
