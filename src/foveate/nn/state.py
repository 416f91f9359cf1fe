"""The state of a decoder between steps: tensors by the module that they belong to, batch first.

Every forward takes a state, or None to compute a whole sequence at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]


class State:
    """The tensors that the modules of a decoder keep from step to step.

    There are three kinds: tensors that grow by the new positions of each step (keys and values of
    self-attention, `grow`), tensors made once (those of cross-attention, `cached`), and tensors
    replaced at each step (recurrent states, `current` and `replace`). ``position`` counts the
    tokens read so far. Rows are hypotheses, which `reorder` rearranges; tensors made once may have
    a row for each source, which `select` drops.
    """

    def __init__(self) -> None:
        self.position = 0
        self._grown: dict[nn.Module, tuple[Tensors, int]] = {}  # buffers and the length in use
        self._cached: dict[nn.Module, Tensors] = {}
        self._current: dict[nn.Module, Tensors] = {}

    @property
    def numbers(self) -> int:
        """How many numbers are stored, reserved buffers not counted."""
        grown = sum(part[:, :, :length].numel() for p, length in self._grown.values() for part in p)
        rest = (*self._cached.values(), *self._current.values())
        return grown + sum(part.numel() for parts in rest for part in parts)

    def grow(self, module: nn.Module, *parts: Tensor) -> Tensors:
        """Append parts (B, H, T, K) along dimension 2 and return those of all steps so far."""
        buffers, length = self._grown.get(module, ((), 0))
        steps = parts[0].shape[2]
        if not buffers and steps > 1:  # a whole prefix: no buffer until the next step
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

    def cached(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """The tensors of ``make``, which is called at the first step only."""
        if module not in self._cached:
            self._cached[module] = make()
        return self._cached[module]

    def current(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """The module's current tensors, (B, …) each; at the first step those of ``make``."""
        if module not in self._current:
            self._current[module] = make()
        return self._current[module]

    def replace(self, module: nn.Module, tensors: Tensors) -> None:
        """Replace the module's current tensors."""
        self._current[module] = tensors

    def reorder(self, rows: Tensor) -> None:
        """Let row i become a copy of row ``rows[i]``; rows may be repeated or left out."""
        for module, (buffers, length) in self._grown.items():
            copies = tuple(b.new_empty(len(rows), *b.shape[1:]) for b in buffers)
            for copy, buffer in zip(copies, buffers, strict=True):  # the length in use only
                torch.index_select(buffer[:, :, :length], 0, rows, out=copy[:, :, :length])
            self._grown[module] = copies, length
        for module, tensors in self._current.items():
            self._current[module] = tuple(t.index_select(0, rows) for t in tensors)

    def select(self, sources: Tensor) -> None:
        """Keep only the rows of these sources in the tensors made once."""
        for module, tensors in self._cached.items():
            self._cached[module] = tuple(t.index_select(0, sources) for t in tensors)
