"""Layers that run otherwise in training: compiled by PyTorch, or computed again going backward.

Compiled, the operations between products become few kernels. It pays where starting a kernel takes
longer than the kernel runs: on GPUs. Attention is not compiled, for its implementation depends on
its inputs. Compiled kernels stay on disk for other runs.

Recomputed, L layers keep L inputs and the inside of one, for one more forward pass (Chen et al.,
2016). No number changes: dropout draws again what it drew, and buffers (running means of batch
norm) are updated by the first pass alone.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as activation_checkpoint

from foveate.nn.attention import BaseAttention
from foveate.train.distributed import stacks
from foveate.train.stored import TrainError

Forward = Callable[..., object]


class WrappedForward:
    """The forward of a module, wrapped; a copy of the module wraps its own forward."""

    def __init__(self, forward: Forward, wrap: Callable[[Forward], Forward]) -> None:
        self.forward, self.wrap, self.wrapped = forward, wrap, wrap(forward)

    def __call__(self, *inputs: object, **more: object) -> object:
        return self.wrapped(*inputs, **more)

    def __deepcopy__(self, memo: dict[int, object]) -> WrappedForward:
        return WrappedForward(copy.deepcopy(self.forward, memo), self.wrap)


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
    attention = [module for module in model.modules() if isinstance(module, BaseAttention)]
    layers = [
        layer
        for stack in stacks(model)
        for layer in stack
        if any(isinstance(module, BaseAttention) for module in layer.modules())
    ]
    if not layers:
        raise TrainError(
            "train.compile is for Transformers, and this model has no layer of one: leave it out"
        )
    _wrap(attention, torch.compiler.disable)
    _wrap(layers, compiled)


def _wrap(modules: Sequence[nn.Module], wrap: Callable[[Forward], Forward]) -> None:
    for module in modules:
        if not isinstance(module.forward, WrappedForward):
            module.forward = WrappedForward(module.forward, wrap)


@dataclass
class UnchangedBuffers:
    """A context after which the buffers of a layer are what they were before."""

    layer: nn.Module
    before: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __enter__(self) -> None:
        self.before = [(buffer, buffer.clone()) for buffer in self.layer.buffers()]

    def __exit__(self, *error: object) -> None:
        for buffer, values in self.before:
            buffer.data.copy_(values)  # autograd may have kept the buffer itself
        self.before = []


@dataclass
class Recomputed:
    """A layer's forward whose inside is computed again in the backward pass."""

    forward: Forward
    layer: nn.Module

    def __call__(self, *inputs: object, **more: Any) -> object:
        if not torch.is_grad_enabled():
            return self.forward(*inputs, **more)
        return activation_checkpoint.checkpoint(
            *(self.forward, *inputs),
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), UnchangedBuffers(self.layer)),
            **more,
        )


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
            layer.forward = Recomputed(layer.forward, layer)
