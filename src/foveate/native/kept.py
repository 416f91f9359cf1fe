"""What is made of modules' weights, such as a layout for kernels, kept until they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

Made = TypeVar("Made")
# Modules; steps of optimisers; where tensors lie, and their changes.
MadeOf = tuple[list[ref[nn.Module]], int, list[tuple[int, int]]]
_STEPS = [0]  # a fused step changes weights without counting it in their `_version`


def _stepped(*_: Any) -> None:
    _STEPS[0] += 1


register_optimizer_step_post_hook(_stepped)


class Kept(Generic[Made]):
    """What was made of modules, as long as their tensors are the same and have not changed.

    It goes with its module, if what was made does not hold that.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, tuple[MadeOf, Made]] = WeakKeyDictionary()

    def of(self, module: nn.Module, parts: list[nn.Module], make: Callable[[], Made]) -> Made:
        """What ``make`` makes of a module with these parts."""
        made_of = [ref(part) for part in parts], _STEPS[0], _weights(parts)
        before, made = self._made.get(module, (None, None))
        if before != made_of or made is None:
            made = make()
            self._made[module] = made_of, made
        return made


def _weights(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    tensors = (t for m in modules for t in (*m._parameters.values(), *m._buffers.values()))
    return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors if t is not None]
