"""What a decoder remembers between steps, keyed by the module that remembers it; batch first.

``None`` in place of a state means the whole sequence at once; the same forward serves both.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]


class State:
    """Memory of a decoder: what grows (keys, values), comes once (cross-attention), or is swapped.

    ``position`` counts the tokens already read. Rows are hypotheses: `reorder` picks rows of all
    that grows or is swapped; what came once may have fewer rows, one a source (`select`).
    """

    def __init__(self) -> None:
        self.position = 0
        self._grown: dict[nn.Module, tuple[Tensors, int]] = {}
        self._once: dict[nn.Module, Tensors] = {}
        self._swapped: dict[nn.Module, Tensors] = {}

    @property
    def numbers(self) -> int:
        """How many numbers are remembered; room that is kept ready does not count."""
        grown = sum(part[:, :, :length].numel() for p, length in self._grown.values() for part in p)
        rest = (*self._once.values(), *self._swapped.values())
        return grown + sum(part.numel() for parts in rest for part in parts)

    def grow(self, module: nn.Module, *parts: Tensor) -> Tensors:
        """Append along dimension 2, (B, H, T, K) each; return all that was appended so far."""
        buffers, length = self._grown.get(module, ((), 0))
        steps = parts[0].shape[2]
        if not buffers and steps > 1:  # a whole prefix: kept as it is until the next step
            self._grown[module] = (parts, steps)
            return parts
        if not buffers or buffers[0].shape[2] < length + steps:
            capacity = max(16, 2 * (length + steps))
            buffers = tuple(
                part.new_empty(*part.shape[:2], capacity, part.shape[3]) for part in parts
            )
            if length:
                for buffer, old in zip(buffers, self._grown[module][0], strict=True):
                    buffer[:, :, :length] = old[:, :, :length]
        for buffer, part in zip(buffers, parts, strict=True):
            buffer[:, :, length : length + steps] = part
        self._grown[module] = (buffers, length + steps)
        return tuple(buffer[:, :, : length + steps] for buffer in buffers)

    def once(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """What ``make`` gives, made at the first call only."""
        if module not in self._once:
            self._once[module] = make()
        return self._once[module]

    def swap(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """The module's present tensors, (B, …) each; at first what ``make`` gives."""
        if module not in self._swapped:
            self._swapped[module] = make()
        return self._swapped[module]

    def put(self, module: nn.Module, tensors: Tensors) -> None:
        """Replace the module's present tensors."""
        self._swapped[module] = tensors

    def reorder(self, rows: Tensor) -> None:
        """Let row i become what row ``rows[i]`` was; rows may be repeated or left out."""
        for module, (buffers, length) in self._grown.items():
            self._grown[module] = (tuple(_taken(b, rows, length) for b in buffers), length)
        for module, tensors in self._swapped.items():
            self._swapped[module] = tuple(t.index_select(0, rows) for t in tensors)

    def select(self, sources: Tensor) -> None:
        """Keep only the given rows of what came once: the sources that are still being decoded."""
        for module, tensors in self._once.items():
            self._once[module] = tuple(t.index_select(0, sources) for t in tensors)


def _taken(buffer: Tensor, rows: Tensor, length: int) -> Tensor:
    """The rows with their room; of the room nothing is copied."""
    taken = buffer.new_empty(len(rows), *buffer.shape[1:])
    torch.index_select(buffer[:, :, :length], 0, rows, out=taken[:, :, :length])
    return taken


# ------------------------------------------------------------------------------------- fixed state
# A decoder's memory whose tensors stay where they are: a recorded step finds them there again.


class FixedState(State):
    """Memory of always as many rows and sources; what grows has room for ``capacity`` tokens."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def take(self, state: State) -> None:
        """Remember what another state remembers."""
        for module, (parts, length) in state._grown.items():
            if module not in self._grown:
                wide = (part[:, :, :1].expand(-1, -1, self.capacity, -1) for part in parts)
                self._grown[module] = room(*wide), length
            fill(_read(self._grown[module][0], length), _read(parts, length))
        for own, others in ((self._once, state._once), (self._swapped, state._swapped)):
            for module, parts in others.items():
                if module not in own:
                    own[module] = room(*parts)
                fill(own[module], parts)
        self.stand(state.position)

    def stand(self, position: int) -> None:
        """Go on from so many tokens read."""
        self.position = position
        self._grown = {module: (parts, position) for module, (parts, _) in self._grown.items()}

    def grow(self, module: nn.Module, *parts: Tensor) -> Tensors:
        buffers, length = self._grown[module]
        until = length + parts[0].shape[2]
        fill(tuple(buffer[:, :, length:until] for buffer in buffers), parts)
        self._grown[module] = buffers, until
        return _read(buffers, until)

    def put(self, module: nn.Module, tensors: Tensors) -> None:
        fill(self._swapped[module], tensors)

    def reorder(self, rows: Tensor) -> None:
        grown = [_read(buffers, length) for buffers, length in self._grown.values()]
        for parts in (*grown, *self._swapped.values()):
            fill(parts, tuple(part.index_select(0, rows) for part in parts))

    def select(self, sources: Tensor) -> None:
        for parts in self._once.values():
            fill(parts, tuple(part.index_select(0, sources) for part in parts))


def room(*like: Tensor) -> Tensors:
    """Tensors of these shapes and kinds, which any mode of PyTorch may write into."""
    with torch.inference_mode(False):
        return tuple(torch.zeros_like(one, memory_format=torch.contiguous_format) for one in like)


def fill(tensors: Tensors, parts: Tensors) -> None:
    """Write parts where tensors are."""
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part)


def _read(buffers: Tensors, length: int) -> Tensors:
    return tuple(buffer[:, :, :length] for buffer in buffers)
