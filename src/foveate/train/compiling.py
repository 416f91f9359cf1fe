"""Layers of Transformers compiled by PyTorch: what stands between products becomes few kernels.

It pays where starting a kernel takes longer than what the kernel does: on GPUs. Attention is left
as it is, for its road is chosen by what is there. What was compiled stays on disk for other runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from foveate.models.transformer import DecoderLayer, EncoderLayer
from foveate.nn.attention import BaseAttention
from foveate.train.files import TrainError

Forward = Callable[..., Any]


class Made:
    """A module's forward as something makes it anew, for a copy of the module too."""

    def __init__(self, forward: Forward, make: Callable[[Forward], Forward]) -> None:
        self.forward, self.make, self.made = forward, make, make(forward)

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        return self.made(*inputs, **more)

    def __deepcopy__(self, memo: dict[int, Any]) -> Made:
        return Made(copy.deepcopy(self.forward, memo), self.make)


def compile_layers(model: nn.Module, backend: str = "inductor") -> None:
    """Let each layer of the model be one program for all lengths.

    Raises ``TrainError`` for a model without layers of a Transformer, or on a processor.
    """
    if backend == "inductor" and next(model.parameters()).device.type == "cpu":
        raise TrainError(
            "train.compile is for GPUs, and this is a processor, where training was a fifth slower "
            "with it: leave it out"
        )
    compiled = partial(torch.compile, dynamic=True, backend=backend)
    modules = list(model.modules())
    layers = [module for module in modules if isinstance(module, EncoderLayer | DecoderLayer)]
    if not layers:
        raise TrainError(
            "train.compile is for Transformers, and this model has no layer of one: leave it out"
        )
    _make([m for m in modules if isinstance(m, BaseAttention)], torch.compiler.disable)
    _make(layers, compiled)


def _make(modules: Sequence[Any], make: Callable[[Forward], Forward]) -> None:
    for module in modules:
        if not isinstance(module.forward, Made):
            module.forward = Made(module.forward, make)
