"""Read and written by a layer beside its input: mask, state, stages of its equation.

Every forward of a decoder takes a state, or None to compute a whole sequence at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.positions import NO_POSITION, Position

Ranges = range | tuple[range, ...]  # consecutive positions, or several ranges of them
Tensors = tuple[Tensor, ...]
Device = torch.device | None


def ranges(at: Ranges) -> tuple[range, ...]:
    """Return the ranges of consecutive positions."""
    return (at,) if isinstance(at, range) else at


def indices(at: Ranges, device: Device) -> Tensor:
    """Return the positions as integers (T,)."""
    return torch.cat([torch.arange(r.start, r.stop, device=device) for r in ranges(at)])


def take(x: Tensor, at: Ranges, dim: int) -> Tensor:
    """Return the slices of x at the positions, along one dimension."""
    if at == range(x.shape[dim]):
        return x
    parts = [x.narrow(dim, r.start, len(r)) for r in ranges(at)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


@dataclass
class Mask:
    """A query at position q may attend to a key at position k if

        the key is real (``key_mask``),  k ≤ q (``causal``)  and  |q − k| < ``window``.

    ``key_mask`` is (B, S), true at real keys, None if all are real. One mask serves all layers of a
    forward pass and builds each dense form once per device. Positions are ranges of plain integers,
    so that nothing is read back from a device.
    """

    key_mask: Tensor | None = None
    causal: bool = False
    window: int | None = None
    _forms: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False)
    _narrower: dict[int, Mask] = field(default_factory=dict, repr=False)

    def within(self, window: int) -> Mask:
        """Return the same mask with at most this window."""
        if self.window is not None and self.window <= window:
            return self
        if window not in self._narrower:
            self._narrower[window] = Mask(self.key_mask, self.causal, window)
        return self._narrower[window]

    def is_causal_only(self, query_at: Ranges, key_at: Ranges) -> bool:
        """Return whether the mask is the causal one of a whole sequence and nothing else."""
        return self.causal and self.key_mask is None and self.window is None and query_at == key_at

    def dense(self, query_at: Ranges, key_at: Ranges, device: Device = None) -> Tensor | None:
        """Return True where a query attends, (B or 1, 1, T, S); None if all attend to all keys."""
        key = self._key("dense", query_at, key_at, device)
        if key in self._forms:
            return self._forms[key]
        terms, on = [], device
        if self.key_mask is not None:  # the key is real
            terms, on = [take(self.key_mask, key_at, 1)[:, None, None, :]], self.key_mask.device
        last = max((r.stop - 1 for r in ranges(key_at)), default=0)
        future = self.causal and last > ranges(query_at)[0].start  # that of the first query
        if future or self.window is not None:
            distance = (indices(query_at, on)[:, None] - indices(key_at, on))[None, None]
            if future:  # k ≤ q
                terms.append(distance >= 0)
            if self.window is not None:
                terms.append(distance.abs() < self.window)
        self._forms[key] = reduce(operator.and_, terms) if terms else None
        return self._forms[key]

    def _key(
        self, form: object, query_at: Ranges, key_at: Ranges, device: Device
    ) -> tuple[object, ...]:
        """Return the key of a dense form; without causal mask or window it is for all queries."""
        return form, query_at if self.causal or self.window is not None else None, key_at, device

    def additive(
        self, query_at: Ranges, key_at: Ranges, dtype: torch.dtype, device: Device = None
    ) -> Tensor | None:
        """Return 0 where a query attends and −∞ elsewhere, to add to scores; None for all zeros.

        Rows of queries that may attend to no key are zeros (`blind`).
        """
        key = self._key(dtype, query_at, key_at, device)
        if key not in self._forms:
            visible, added = self.dense(query_at, key_at, device), None
            if visible is not None:
                zeros = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
                hidden = ~visible & visible.any(dim=-1, keepdim=True)
                added = zeros.masked_fill_(hidden, -torch.inf)
            self._forms[key] = added
        return self._forms[key]

    def blind(self, query_at: Ranges, key_at: Ranges, device: Device = None) -> Tensor | None:
        """Return True for queries that may attend to no key, (B or 1, 1, T, 1), or None.

        Only a CPU is asked whether there are any: elsewhere that would wait for the device.
        """
        if self.is_causal_only(query_at, key_at):  # each query attends to itself
            return None
        key = self._key("blind", query_at, key_at, device)
        if key not in self._forms:
            visible = self.dense(query_at, key_at, device)
            rows = None if visible is None else ~visible.any(dim=-1, keepdim=True)
            if rows is not None and rows.device.type == "cpu" and not bool(rows.any()):
                rows = None
            self._forms[key] = rows
        return self._forms[key]


class DecoderState:
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
        """The count of stored numbers, without reserved buffers."""
        grown = sum(part[:, :, :length].numel() for p, length in self._grown.values() for part in p)
        rest = (*self._cached.values(), *self._current.values())
        return grown + sum(part.numel() for parts in rest for part in parts)

    def grow(self, module: nn.Module, *parts: Tensor) -> Tensors:
        """Append parts (B, H, T, K) along dimension 2 and return those of all steps so far."""
        if module not in self._grown:
            self._grown[module] = parts, parts[0].shape[2]
            return parts
        buffers, before = self._grown[module]
        length = before + parts[0].shape[2]
        if buffers[0].shape[2] < length:
            room = max(16, 2 * length)
            larger = tuple(x.new_empty(*x.shape[:2], room, x.shape[3]) for x in buffers)
            for new, old in zip(larger, buffers, strict=True):
                new[:, :, :before] = old[:, :, :before]
            buffers = larger
        for buffer, part in zip(buffers, parts, strict=True):
            buffer[:, :, before:length] = part
        self._grown[module] = buffers, length
        return tuple(buffer[:, :, :length] for buffer in buffers)

    def cached(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """Return the tensors of ``make``, which is called at the first step only."""
        if module not in self._cached:
            self._cached[module] = make()
        return self._cached[module]

    def current(self, module: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """Return the module's current tensors, (B, …) each; at the first step those of ``make``."""
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


@dataclass(frozen=True)
class AttentionContext:
    """The inputs of attention besides queries, keys and values.

    ``query_at`` are the positions of the queries: a range, or one for each of the n hypotheses of a
    source, whose queries follow one another; ``key_at`` those of the keys.
    """

    mask: Mask
    query_at: Ranges
    key_at: Ranges
    position: Position = NO_POSITION
    state: DecoderState = field(default_factory=DecoderState)

    @property
    def hypotheses(self) -> int:
        """The number n of hypotheses of each source."""
        return len(ranges(self.query_at))

    def bias(self, device: torch.device) -> Float[Tensor, "H T S"] | None:
        """Return what the position encoding adds to the score of each query and key."""
        if not self.position.biases:
            return None
        return self.position.bias(indices(self.query_at, device), indices(self.key_at, device))

    def refuse_bias(self, kind: str) -> None:
        """Raise `UserError` if the position encoding adds to scores and ``kind`` has none."""
        if self.position.biases:
            raise UserError(
                f'position = "{self.position.config.kind}" adds a bias to the score of each query '
                f'and key, but attention = "{kind}" forms no scores; choose another position or '
                "attention"
            )


Probe = Callable[[str, Tensor, str], None]  # gets the name of a stage, its values, its equation


class Probed:
    """A module that passes the stages of its computation to a ``probe``, if one is set.

    A probe reads and changes nothing. While it is set, the module computes by its equation, not by
    a fused kernel: the output is made of what the probe reads.
    """

    probe: Probe | None = None

    def equations(self) -> dict[str, str]:
        """Return the equation of each stage, with every term that this module computes."""
        return {}

    def _stage(self, name: str, x: Tensor, equation: str | None = None) -> Tensor:
        """Return x itself, after calling a probe with the name, x and the equation.

        ``equation`` is passed for a stage of another module, such as a position encoding.
        """
        if self.probe is not None:
            written = self.equations().get(name, "") if equation is None else equation
            self.probe(name, x, written)
        return x


@contextmanager
def probed(module: Probed, probe: Probe | None) -> Iterator[None]:
    """Set the probe of a module for the context; None removes it."""
    before, module.probe = module.probe, probe
    try:
        yield
    finally:
        module.probe = before
