"""The two models of ``learn.c``, compiled for this machine: what its tests and its film call.

Pages call the same functions of its WebAssembly (``web/src/learn/model.ts``).
"""

import ctypes
import functools
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.engine.building import FOLDER, command
from foveate.errors import ConfigError
from foveate.system import c_compiler, compiled

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
_int, _at, _float = ctypes.c_int32, ctypes.c_void_p, ctypes.c_float
CROSS = 2  # the maps of cross-attention
SIGNATURES = {  # result and arguments
    "new_learner": (_at, _at),
    "free_learner": (None, _at),
    **dict.fromkeys(("weights", "values"), (_int, _at)),
    **dict.fromkeys(("rows", "columns"), (_int, _at, _int)),
    **dict.fromkeys(("value", "gradient", "weights_of"), (_at, _at, _int)),
    "forward": (_at, _at, _int, _int, _int, _at, _at),
    "backward": (_float, _at, _at),
    "update": (None, _at, _float),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a model; ``kind`` is 0 for the Transformer, 1 for recurrent networks."""

    vocabulary: int
    kind: int = 0
    size: int = 48
    hidden: int = 96
    heads: int = 2
    positions: bool = True
    scaled: bool = True  # scores are divided by √K
    masked: bool = True  # the decoder sees no later position
    attends: bool = True
    seed: int = 1


@functools.cache
def _functions() -> ctypes.CDLL:
    compiler, sources = c_compiler() or ["cc"], [FOLDER / "learn.c", FOLDER / "vector.h"]
    found = ctypes.CDLL(
        str(compiled("learn.so", sources, lambda file: [command(compiler, "learn", file)]))
    )
    for name, (result, *arguments) in SIGNATURES.items():
        getattr(found, name).restype = result
        getattr(found, name).argtypes = arguments
    return found


class Learner:
    """A model and its optimizer; token 0 is padding. Raises `ConfigError` for bad settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._call = settings, _functions()
        numbers = np.array(astuple(settings), np.int32)
        self._model = self._call.new_learner(numbers.ctypes.data)
        if not self._model:
            raise ConfigError(f"no such model can be trained: {settings}")

    def __del__(self) -> None:
        self._call.free_learner(self._model)

    def loss(self, source: Ids, inputs: Ids, targets: Ids) -> float:
        """Return −log p of the targets (T, B) and compute its gradients."""
        self.shape = source.shape[1], len(source), len(inputs)
        self._ids = [np.ascontiguousarray(ids, np.int32) for ids in (source, inputs, targets)]
        at = [ids.ctypes.data for ids in self._ids]
        if not self._call.forward(self._model, *self.shape, *at[:2]):
            raise ConfigError(f"a batch of {self.shape} is too large")
        return float(self._call.backward(self._model, at[2]))

    def update(self, rate: float) -> None:
        """Take one step of Adam."""
        self._call.update(self._model, rate)

    def cross_attention(self) -> Floats:
        """Return the weights of the last batch, (B, H, T, S)."""
        batch, source, target = self.shape
        heads = 1 if self.settings.kind else self.settings.heads
        return _array(self._call.weights_of(self._model, CROSS), (batch, heads, target, source))

    def tensors(self, what: str = "value") -> list[Floats]:
        """Return all weights, or with ``what`` "gradient" their gradients, as they are in C."""
        sizes = range(self._call.weights(self._model))
        call, at = self._call, getattr(self._call, what)
        shapes = [(call.rows(self._model, i), call.columns(self._model, i)) for i in sizes]
        return [_array(at(self._model, i), shape) for i, shape in enumerate(shapes)]


def _array(address: int, shape: tuple[int, ...]) -> Floats:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(_float)), shape)
