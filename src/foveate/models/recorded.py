"""A decoder's steps recorded as they come and played again for later batches: CUDA graphs.

A step of a small model is hundreds of small kernels, and to start them takes longer than to run
them. A recording starts all at once, of the same shapes in the same places: so sources and
hypotheses are padded to few numbers, and what is remembered stays where it is. A step looks at as
many keys as were read, so that each has a recording of its own.

Experimental: no GPU has run it. Imported only with ``FOVEATE_GRAPHS=1``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.models.base import Memory
from foveate.models.native import inside, watched
from foveate.models.transformer import SSRUDecoder, TransformerDecoder
from foveate.native.kernels import Kept
from foveate.nn.masks import Mask
from foveate.nn.positions import NoPosition, Sinusoidal, SinusoidalHalves
from foveate.nn.state import FixedState, State, fill, room

KNOWN = {TransformerDecoder, SSRUDecoder}
PLACES = {NoPosition, Sinusoidal, SinusoidalHalves}  # of which nobody asks how far they go
EVEN = 16  # places: sources are padded to a multiple
ROOM = 64  # tokens at first, then twice as many
MOST = 16  # recordings that wait for a batch of their shape

Play = Callable[[], None]
Read = Callable[[Tensor, Memory, State], Tensor]  # ids (N,) to logits (N, V)
Shape = tuple[int, ...]  # hypotheses N, sources M and their places S, tokens


class Recording:
    """Steps of batches of one shape: of the first batch done, of the second recorded, then played.

    What is held are ids (N,), values (M, S, D), keys (M, S) and logits (N, V).
    """

    def __init__(self, shape: Shape, memory: Memory, vocabulary: int) -> None:
        assert memory.keys is not None
        self.shape, self.state, values = shape, FixedState(shape[-1]), memory.values
        ids = values.new_empty(shape[0], dtype=torch.long)
        logits = values.new_empty(shape[0], vocabulary, dtype=torch.float32)
        self.held = room(ids, values, memory.keys, logits)
        self.done, self.played = set[int](), dict[int, Play]()
        self.record = recorder(values.device)

    @property
    def memory(self) -> Memory:
        """That of the batch now. All its sources have places."""
        values, keys = self.held[1:3]
        memory = Memory(values, keys)
        memory.mask = Mask(keys, sighted=True)
        return memory

    def take(self, memory: Memory, state: State) -> None:
        """Go on from what a batch has read."""
        fill(self.held[1:3], (memory.values, cast(Tensor, memory.keys)))
        self.state.take(state)

    def step(self, ids: Int[Tensor, "N"], read: Read) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each hypothesis."""
        time, (own, _, _, logits) = self.state.position, self.held
        fill((own,), (ids,))

        def play() -> None:
            fill((logits,), (read(own, self.memory, self.state),))

        if self.record is not None and time in self.done - self.played.keys():
            self.played[time] = self.record(play)
            self.state.stand(time)
        self.played.get(time, play)()
        self.done.add(time)
        self.state.stand(time + 1)
        return logits.clone()

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources."""
        self.state.select(sources)
        fill(self.held[1:3], tuple(part[sources] for part in self.held[1:3]))


class RecordedReading:
    """What the hypotheses of some sources have read, in shapes that come again."""

    recording: Recording | None = None

    def __init__(self, model: Any, output: nn.Module, memory: Memory) -> None:
        self.model, self.output, self.memory, self.state = model, output, padded(memory), State()
        self.live = len(memory.values)  # sources
        self.rows: Tensor | None = None  # where hypotheses stood before, if they moved
        self.sources: Tensor | None = None  # which sources these were, if some have left
        parts = [*inside(model.decoder), output]
        self.free = _FREE.of(model.decoder, parts, list)

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each hypothesis."""
        rows = len(self.memory.values) * (len(ids) // self.live)
        self._settle(rows)
        read = longer(ids, rows)
        if self.state.position == 0:
            return self._read(read, self.memory, self.state)[: len(ids)]
        if self.recording is None or self.state.position == self.recording.shape[-1]:
            self._record(rows)
        assert self.recording is not None
        return self.recording.step(read, self._read)[: len(ids)]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.rows = rows if self.rows is None else self.rows[rows]

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        self.sources = sources if self.sources is None else self.sources[sources]
        self.live = len(sources)

    def _read(self, ids: Int[Tensor, "N"], memory: Memory, state: State) -> Float[Tensor, "N V"]:
        hidden = self.model.decode(ids[:, None], memory, state)
        logits: Tensor = self.output(hidden[:, -1]).float()
        return logits

    def _settle(self, rows: int) -> None:
        """Bring what is remembered into the order of now."""
        if self.rows is not None:
            self.state.reorder(longer(self.rows, rows))
        if self.sources is not None:
            sources = longer(self.sources, len(self.memory.values))
            if self.recording is not None:
                self.recording.select(sources)
            else:
                self.state.select(sources)
                self.memory = self.memory.select(sources)
        self.rows = self.sources = None

    def _record(self, rows: int) -> None:
        """Go on in a recording of this shape that nobody uses, or a new one."""
        before, self.recording = self.recording, None
        memory = self.memory if before is None else before.memory
        tokens = ROOM if before is None else 2 * before.shape[-1]
        shape = (rows, *memory.values.shape[:2], tokens)
        with _TAKING:
            found = next((one for one in self.free if one.shape == shape), None)
            if found is not None:
                self.free.remove(found)
        new = found or Recording(shape, memory, len(cast(Tensor, self.output.weight)))
        new.take(memory, self.state)
        self.recording, self.state = new, new.state
        self._leave(before)

    def _leave(self, recording: Recording | None) -> None:
        """Let others use a recording; of too many the oldest goes."""
        if recording is not None:
            with _TAKING:
                self.free.append(recording)
                del self.free[:-MOST]

    def __del__(self) -> None:
        self._leave(self.recording)


def recorded_reading(model: Any, output: nn.Module, memory: Memory) -> RecordedReading | None:
    """The recorded side of a model's steps; None where there is no GPU, or not for such a model."""
    if memory.values.device.type != "cuda" or os.environ.get("FOVEATE_GRAPHS") != "1":
        return None
    return RecordedReading(model, output, memory) if records(model, output, memory) else None


def records(model: Any, output: nn.Module, memory: Memory) -> bool:
    """Whether a model's steps may be recorded: nothing in them asks the device, nobody looks."""
    decoder = model.decoder
    known = type(decoder) in KNOWN and type(decoder.position) in PLACES
    if not known or output is not model.output or decoder.training or torch.is_grad_enabled():
        return False
    if any(map(watched, [*inside(decoder), output])):
        return False
    return memory.keys is None or bool(memory.keys.any(dim=1).all())


def padded(memory: Memory) -> Memory:
    """The memory in a shape that comes again: filled with places that are none, and source 0."""
    values = memory.values
    rows, length = values.shape[:2]
    keys = values.new_ones(rows, length, dtype=torch.bool) if memory.keys is None else memory.keys
    more = -length % EVEN
    which = longer(torch.arange(rows, device=values.device), 1 << (rows - 1).bit_length())
    return Memory(F.pad(values, (0, 0, 0, more))[which], F.pad(keys, (0, more))[which])


def longer(ids: Int[Tensor, "N"], count: int) -> Int[Tensor, "C"]:
    """The ids, and zeros up to a count."""
    return F.pad(ids, (0, count - len(ids)))


def recorder(device: torch.device) -> Callable[[Play], Play] | None:
    """What records a step on a device without doing it; None where none can, and all are done."""
    if device.type != "cuda":
        return None
    pool = torch.cuda.graph_pool_handle()  # one after the other they may use the same room

    def record(play: Play) -> Play:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            play()
        return graph.replay

    return record


_FREE, _TAKING = Kept[list[Recording]](), threading.RLock()
