"""The compiled engine (``engine.c``): models of a program and tensors, and searches with them.

Nothing here needs PyTorch. Every call releases the interpreter's lock, so that several threads may
each run a search of their own; a model is only read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.engine.library import library
from foveate.errors import UserError

Floats = NDArray[np.float32]
Ids = Sequence[int]

POSITIONS = 1 << 20  # of one call: it returns where a source is finished


class EngineFailure(UserError):
    """A model that the engine cannot read, a source that it refuses, or too little memory."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("int8", "rows", "columns")),
        *((name, ctypes.c_void_p) for name in ("data", "scale")),
    )


class _Settings(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in (
            "sampling", "width", "start", "end", "best", "room", "shortest", "no_repeat", "top_k")),
        *((name, ctypes.c_float) for name in (
            "length_penalty", "temperature", "top_p", "min_p", "repetition_penalty")),
        ("seed", ctypes.c_uint64),
        ("never", ctypes.c_void_p),
        ("nevers", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("after", "barred")),
    )  # fmt: skip


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn (`foveate.decode.sample`)."""

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Settings:
    """How outputs are searched for; a beam of one without a length penalty is greedy search.

    With ``sampling`` they are drawn, ``width`` of each source.
    """

    start: int
    end: int
    width: int = 1  # hypotheses of a source
    best: int = 1  # outputs that are given of each source
    length_penalty: float = 0.0
    room: int = 64  # hypotheses that are computed together
    min_length: int = 0
    no_repeat: int = 0  # no n-gram of so many tokens occurs twice
    never: tuple[int, ...] = ()  # ids that no output holds
    sampling: Sampling | None = None


@dataclass(frozen=True)
class EngineOutput:
    """The ids of an output without its end, whether it has one, log p, and its score."""

    ids: list[int]
    ended: bool
    log_p: float
    score: float


def quantized(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """W ≈ s ⊙ W_q with s = max |W| / 127 of each row."""
    scale = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-12)) / np.float32(127)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


class CompiledModel:
    """A model of the engine: the numbers of its program and its tensors by name, in their order.

    Tensors named in ``maps`` are rounded to int8. Raises `EngineFailure` where they do not fit.
    """

    def __init__(
        self,
        numbers: Sequence[float],
        tensors: Mapping[str, Floats],
        maps: frozenset[str] = frozenset(),
    ) -> None:
        self._library, arrays, structs = library(), list[NDArray[np.generic]](), []
        for name, tensor in tensors.items():
            array = np.ascontiguousarray(tensor, dtype=np.float32)
            rows = len(array) if array.ndim > 1 else 1
            if name in maps:
                whole, scale = quantized(array)
                arrays += [whole, scale]
                structs.append(_Tensor(1, *whole.shape, whole.ctypes.data, scale.ctypes.data))
            else:
                arrays.append(array)
                structs.append(_Tensor(0, rows, array.size // rows, array.ctypes.data, None))
        program = np.array(numbers, dtype=np.float64)
        self._tensors, self._arrays = (_Tensor * len(structs))(*structs), arrays  # alive with it
        self.address = self._library.read_model(
            program.ctypes.data, len(program), ctypes.addressof(self._tensors), len(structs)
        )
        if not self.address:
            raise EngineFailure("the engine cannot read this model: its program does not fit")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._library.free_model(self.address)


class CompiledSearch:
    """A search with a model, by one thread at a time."""

    def __init__(self, model: CompiledModel, settings: Settings) -> None:
        self.model, self._library = model, library()  # the model lives as long as the search
        self._never = np.array(settings.never, dtype=np.int32)
        drawn = settings.sampling or Sampling()
        fields = (
            *(settings.sampling is not None, settings.width, settings.start, settings.end),
            *(settings.best, settings.room, settings.min_length, settings.no_repeat, drawn.top_k),
            *(settings.length_penalty, drawn.temperature, drawn.top_p, drawn.min_p),
            *(drawn.repetition_penalty, drawn.seed),  # of the seed the last 64 bits
            *(self._never.ctypes.data, len(self._never), None, None),
        )
        self._address = self._library.new_search(model.address, ctypes.byref(_Settings(*fields)))
        if not self._address:
            raise EngineFailure("no memory for a search")

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._library.free_search(self._address)

    def outputs(
        self, sources: Sequence[Ids], limits: Sequence[int], prefixes: Sequence[Ids] = ()
    ) -> list[list[EngineOutput]]:
        """The outputs of each source, best first.

        ``limits`` are the most tokens of each, ``prefixes`` those with which its outputs begin.
        """
        outputs: list[list[EngineOutput]] = [[] for _ in sources]
        begins = prefixes or [()] * len(sources)
        for number, (*each, limit) in enumerate(zip(sources, begins, limits, strict=True)):
            read, prefix = (np.array(ids, dtype=np.int32) for ids in each)
            arrays = read.ctypes.data, len(read), prefix.ctypes.data, len(prefix)
            if not self._library.add_source(self._address, number, *arrays, limit, None, 0):
                raise EngineFailure(f"source {number + 1} has an id that the model does not know")
        left = 1
        while left:
            left = self._library.advance(self._address, POSITIONS)
            if left < 0:
                raise EngineFailure("scores are no numbers" if left == -2 else "no memory")
            self._read_results(outputs)
        return outputs

    def _read_results(self, outputs: list[list[EngineOutput]]) -> None:
        size = self._library.results(self._address, None, 0)
        taken = np.empty(max(1, size), dtype=np.int32)
        self._library.results(self._address, taken.ctypes.data, size)
        at = 0
        while at < size:
            number, count = taken[at : at + 2].tolist()
            at += 2
            for _ in range(count):
                length, ended = taken[at : at + 2].tolist()
                log_p, score = taken[at + 2 : at + 4].view(np.float32).tolist()
                ids = taken[at + 4 : at + 4 + length].tolist()
                outputs[number].append(EngineOutput(ids, bool(ended), log_p, score))
                at += 4 + length

    def log_probabilities(self, source: Ids, target: Ids) -> Floats:
        """Log p of each token of a given output, its end included."""
        read, written = (np.array(ids, dtype=np.int32) for ids in (source, target))
        log_p = np.empty(len(written), dtype=np.float32)
        arrays = read.ctypes.data, len(read), written.ctypes.data, len(written), log_p.ctypes.data
        if not self._library.force(self._address, *arrays):
            raise EngineFailure("an id that the model does not know, or no memory")
        return log_p

    def label_scores(self, text: Ids, labels: int) -> Floats:
        """The scores of all labels for the ids of a text."""
        read, scores = np.array(text, dtype=np.int32), np.empty(labels, dtype=np.float32)
        if not self._library.classify(
            self._address, read.ctypes.data, len(read), scores.ctypes.data
        ):
            raise EngineFailure("an id that the model does not know, or no memory")
        return scores
