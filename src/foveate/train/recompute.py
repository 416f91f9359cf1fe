"""Layers that keep their inputs alone for the backward pass: activation checkpointing.

L layers keep L inputs and the inside of one, for one more forward pass (Chen et al., 2016). No
number changes: dropout draws again what it drew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import checkpoint as activation_checkpoint

from foveate.train.files import TrainError
from foveate.train.parallel import stacks


@dataclass
class Recomputed:
    """A layer's forward whose inside is computed again when gradients want it."""

    forward: Callable[..., Any]

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*inputs, **more)
        return activation_checkpoint.checkpoint(self.forward, *inputs, use_reentrant=False, **more)


def recompute(model: nn.Module) -> None:
    """Let every layer of the model keep its inputs alone. Raises ``TrainError`` without layers."""
    parts = [layer for stack in stacks(model) for layer in stack]
    sides = [part if isinstance(part, nn.ModuleList) else [part] for part in parts]
    layers = [layer for side in sides for layer in side]  # of two directions each is one
    if not layers:
        raise TrainError(
            "train.recompute is for models with layers, one on another, and this has none: "
            "leave it out, or make train.batch_tokens smaller"
        )
    for layer in layers:
        if not isinstance(layer.forward, Recomputed):
            layer.forward = Recomputed(layer.forward)
