"""The engine in C over the weights of a model that PyTorch holds.

`TorchEngine` answers a request by it wherever it computes what the modules do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from foveate.decode.engine import EngineError, Module, SearchRequest
from foveate.engine.compiled import CompiledModel
from foveate.engine.packed import PackedEngine, TaskKind
from foveate.engine.program import Program
from foveate.errors import UserError
from foveate.native.kernels import WeightCache, library
from foveate.nn.attention import BaseAttention
from foveate.nn.context import as_written
from foveate.tasks.base import AnyTask
from foveate.tasks.classification import TextClassification
from foveate.tasks.engine import TorchEngine, substitutes
from foveate.tasks.language import Language
from foveate.tasks.prefix_translation import PrefixTranslation
from foveate.tasks.translation import Translation

# What a packed file calls a task; classes that derive from these may decode otherwise.
PACKED: dict[type, TaskKind] = {
    Translation: "translation",
    PrefixTranslation: "prefix_translation",
    Language: "language",
    TextClassification: "classification",
}


def packed_kind(task: AnyTask) -> TaskKind | None:
    """Return what a packed file calls a task, or None if the engine in C does not support it."""
    return PACKED.get(type(task))


def reach_of(task: AnyTask, model: Module) -> int | None:
    """Return how many tokens of a text the model may read at once, or None for any number."""
    return task.reach(model) if isinstance(task, Language) else None


def descendants(module: nn.Module) -> list[nn.Module]:
    """A module and all modules in it; ten times as fast as ``modules()``."""
    modules = [module]
    for each in modules:
        modules += [part for part in each._modules.values() if part is not None]
    return modules


def observed(module: nn.Module) -> bool:
    """Whether a tap, hook or method of its own reads or changes what a module computes."""
    tapped = isinstance(module, BaseAttention) and module.observed
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    return tapped or hooked or not as_written(module)


def in_single_precision(modules: Sequence[nn.Module]) -> bool:
    """Whether all weights are fp32 in main memory."""
    each = (weights for part in modules for weights in (part._parameters, part._buffers))
    tensors = (tensor for weights in each for tensor in weights.values() if tensor is not None)
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)


_COMPILED = WeightCache[tuple[CompiledModel | None]]()


def compiled(model: nn.Module) -> CompiledModel | None:
    """A model for the engine in C, with its present weights; made again once these have changed.

    None where it is in training, has taps or hooks, weights that are not finite numbers of fp32 in
    main memory or a part that the engine lacks, and without native kernels, which notice changes.
    """
    modules = descendants(model)
    if library() is None or any(module.training or observed(module) for module in modules):
        return None
    return _COMPILED.get(model, modules, lambda: (_compiled(model, modules),))[0]


def _compiled(model: nn.Module, modules: Sequence[nn.Module]) -> CompiledModel | None:
    if not in_single_precision(modules):
        return None
    try:
        return compile_model(model)
    except UserError:  # the engine lacks a part, or a library for this processor
        return None


def compile_model(model: nn.Module, int8: bool = False) -> CompiledModel:
    """A model for the engine in C; ``int8`` rounds its matrices. Raises `UserError`."""
    program = Program(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise UserError("the model holds numbers that are not finite")
    return CompiledModel(program.numbers, tensors, frozenset(program.maps if int8 else ()))


def packed_engine(task: AnyTask, kind: TaskKind, model: Module, own: CompiledModel) -> PackedEngine:
    """Return the engine in C for a task and a compiled model."""
    tokenizers = list(task.tokenizers_by_name().values())
    return PackedEngine(own, kind, tokenizers, torch.get_num_threads(), reach_of(task, model))


def in_c(engine: TorchEngine, request: SearchRequest) -> PackedEngine | None:
    """Return the engine in C with the present weights, or None if PyTorch answers a request."""
    task: Any = engine.task
    kind = packed_kind(task)
    alone = request.search.width == 1 and any(request.required)  # no beam, to the engine in C
    if kind is None or alone or (model := compiled(engine.model)) is None:
        return None
    packed = packed_engine(task, kind, engine.model, model)
    try:
        packed.check(request)
    except EngineError:
        return None
    if kind == "translation" and request.shortens:
        packed.shortlist = task.shortlist().arrays
    return packed


substitutes.append(in_c)
