"""A decoder's memory whose tensors stay where they are: a recorded step finds them there again."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.nn.state import State, Tensors


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
