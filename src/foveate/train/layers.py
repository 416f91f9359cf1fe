"""Layers that run otherwise in training: compiled by PyTorch, or computed again going backward.

Compiled, the operations between products become few kernels. It pays where starting a kernel takes
longer than the kernel runs: on GPUs. Attention is not compiled, for its implementation depends on
its inputs. Compiled kernels stay on disk for other runs.

Recomputed, L layers keep L inputs and the inside of one, for one more forward pass (Chen et al.,
2016). No number changes: dropout draws again what it drew, attention whose weights a loss reads
forms them again, and buffers (running means of batch norm) are updated by the first pass alone.
"""

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import checkpoint as activation_checkpoint

from foveate.nn.attention import BaseAttention
from foveate.nn.normalizers import Chooser
from foveate.train.distributed import stacks
from foveate.train.stored import TrainError

Forward = Callable[..., object]


class WrappedForward:
    """The forward of a module, wrapped; a copy of the module wraps its own forward."""

    def __init__(self, forward: Forward, wrap: Callable[[Forward], Forward]) -> None:
        self.forward, self.wrap, self.wrapped = forward, wrap, wrap(forward)

    def __call__(self, *inputs: object, **more: object) -> object:
        return self.wrapped(*inputs, **more)

    def __deepcopy__(self, memo: dict[int, object]) -> "WrappedForward":
        return WrappedForward(copy.deepcopy(self.forward, memo), self.wrap)


def compile_layers(model: nn.Module, backend: str = "inductor") -> None:
    """Let each layer of the model be one program for all lengths.

    Raises ``TrainError`` for a model without layers of a Transformer, or on a processor.
    """
    if backend == "inductor" and next(model.parameters()).device.type == "cpu":
        raise TrainError(
            "train.compile is for GPUs; on a processor, training was a fifth slower "
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
            "train.compile is for Transformers, and this model has no such layer: leave it out"
        )
    _wrap(attention, torch.compiler.disable)
    _wrap(layers, compiled)


def _wrap(modules: Sequence[nn.Module], wrap: Callable[[Forward], Forward]) -> None:
    for module in modules:
        if not isinstance(module.forward, WrappedForward):
            module.forward = WrappedForward(module.forward, wrap)


class SecondPass:
    """A context in which a layer computes what it did when the context was made, and changes
    nothing: buffers are as before, taps and listeners of that time are called no more.

    An attention with a tap forms its weights and a chooser with a listener draws, so both have one
    that ignores them.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer, kinds = layer, ((BaseAttention, "tap"), (Chooser, "listener"))
        self.heard = [
            (module, name)
            for module in layer.modules()
            for kind, name in kinds
            if isinstance(module, kind) and getattr(module, name) is not None
        ]
        self.undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        for buffer in self.layer.buffers():  # autograd may have kept the buffer itself
            self.undo.callback(buffer.data.copy_, buffer.clone())
        for module, name in self.heard:
            self.undo.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, lambda _: None)  # heard by nobody

    def __exit__(self, *error: object) -> None:
        self.undo.close()


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
            context_fn=lambda: (contextlib.nullcontext(), SecondPass(self.layer)),
            **more,
        )


def recompute(model: nn.Module) -> None:
    """Let every layer of the model keep its inputs alone. Raises ``TrainError`` without layers."""
    parts = [layer for stack in stacks(model) for layer in stack]
    sides = [part if isinstance(part, nn.ModuleList) else [part] for part in parts]
    layers = [layer for side in sides for layer in side]  # of two directions each is one
    if not layers:
        raise TrainError(
            "train.recompute is for models with stacked layers, and this has none: "
            "leave it out, or make train.batch_tokens smaller"
        )
    for layer in layers:
        if not isinstance(layer.forward, Recomputed):
            layer.forward = Recomputed(layer.forward, layer)
