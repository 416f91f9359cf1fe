"""Which query may see which key: symbolic until an attention needs the dense form."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

Positions = range | tuple[range, ...]  # consecutive positions, or several runs of them


def runs(at: Positions) -> tuple[range, ...]:
    """The runs of consecutive positions."""
    return (at,) if isinstance(at, range) else at


def indices(at: Positions, device: torch.device | None) -> Tensor:
    """The positions as integers (T,)."""
    return torch.cat([torch.arange(r.start, r.stop, device=device) for r in runs(at)])


def take(x: Tensor, at: Positions, dim: int) -> Tensor:
    """The slices of x at the positions, along one dimension."""
    if at == range(x.shape[dim]):
        return x
    parts = [x.narrow(dim, r.start, len(r)) for r in runs(at)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


@dataclass
class Mask:
    """A query at position q may attend to a key at position k if

        the key is real (``keys``),  k ≤ q (``causal``)  and  |q − k| < ``window``.

    ``keys`` is (B, S), true at real keys, None where all are real. One mask serves all layers of a
    forward pass and builds each dense form once. Positions are ranges of plain integers, so that
    nothing is read back from a device.
    """

    keys: Tensor | None = None
    causal: bool = False
    window: int | None = None
    _forms: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False)
    _narrower: dict[int, Mask] = field(default_factory=dict, repr=False)

    def within(self, window: int) -> Mask:
        """The same mask with at most this window."""
        if self.window is not None and self.window <= window:
            return self
        if window not in self._narrower:
            self._narrower[window] = Mask(self.keys, self.causal, window)
        return self._narrower[window]

    def dense(
        self, query_at: range, key_at: Positions, device: torch.device | None = None
    ) -> Tensor | None:
        """True where a query attends, (B or 1, 1, T, S); None where all attend to all keys."""
        name = self._name("dense", query_at, key_at)
        if name in self._forms:
            return self._forms[name]
        visible = None if self.keys is None else take(self.keys, key_at, 1)[:, None, None, :]
        last = max((r.stop - 1 for r in runs(key_at)), default=0)
        future = self.causal and last > query_at.start  # some key may lie in a query's future
        if future or self.window is not None:
            device = device if self.keys is None else self.keys.device
            distance = indices(query_at, device)[:, None] - indices(key_at, device)  # (T, S)
            if future:
                past = (distance >= 0)[None, None]
                visible = past if visible is None else visible & past
            if self.window is not None:
                near = (distance.abs() < self.window)[None, None]
                visible = near if visible is None else visible & near
        self._forms[name] = visible
        return visible

    def _name(self, form: object, query_at: range, key_at: Positions) -> tuple[object, ...]:
        """The key of a dense form; without a causal mask or window it holds for all queries."""
        return form, query_at if self.causal or self.window is not None else None, key_at

    def is_causal_only(self, query_at: range, key_at: Positions) -> bool:
        """Whether the mask is the causal one of a whole sequence and nothing else."""
        return self.causal and self.keys is None and self.window is None and query_at == key_at

    def additive(
        self,
        query_at: range,
        key_at: Positions,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> Tensor | None:
        """0 where a query attends and −∞ elsewhere, to be added to scores; None for all zeros.

        Rows of queries that may attend to no key are zeros (`blind`).
        """
        name = self._name(dtype, query_at, key_at)
        if name not in self._forms:
            visible = self.dense(query_at, key_at, device)
            if visible is not None:
                zeros = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
                hidden = ~visible & visible.any(dim=-1, keepdim=True)
                visible = zeros.masked_fill_(hidden, -torch.inf)
            self._forms[name] = visible
        return self._forms[name]

    def blind(
        self, query_at: range, key_at: Positions, device: torch.device | None = None
    ) -> Tensor | None:
        """True for queries that may attend to no key, (B or 1, 1, T, 1); None without any."""
        if self.is_causal_only(query_at, key_at):  # each query attends to itself
            return None
        name = self._name("blind", query_at, key_at)
        if name not in self._forms:
            visible = self.dense(query_at, key_at, device)
            rows = None if visible is None else ~visible.any(dim=-1, keepdim=True)
            self._forms[name] = rows if rows is not None and bool(rows.any()) else None
        return self._forms[name]
