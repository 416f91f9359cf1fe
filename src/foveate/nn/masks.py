"""Which query may see which key: symbolic until an attention needs the dense form."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

Places = range | tuple[range, ...]  # neighbours, or several runs of neighbours


def places_of(at: Places, device: torch.device | None) -> Tensor:
    """The places one by one."""
    return torch.cat([torch.arange(r.start, r.stop, device=device) for r in _runs(at)])


def take(x: Tensor, at: Places, dim: int) -> Tensor:
    """What stands at the places, along one dimension."""
    if at == range(x.shape[dim]):
        return x
    parts = [x.narrow(dim, r.start, len(r)) for r in _runs(at)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def count(at: Places) -> int:
    """How many places there are."""
    return sum(map(len, _runs(at)))


def _runs(at: Places) -> tuple[range, ...]:
    return (at,) if isinstance(at, range) else at


@dataclass
class Mask:
    """Query at place q may see key at place k if the key is real, k ≤ q (causal), q − k < window.

    ``keys`` is (B, S), true where a key is real; None where all are. ``sighted``: it is known that
    every query sees a key. One mask serves all layers
    of a forward: each dense form is built once. Places are ranges, plain numbers that no device
    has to be asked for.
    """

    keys: Tensor | None = None
    causal: bool = False
    window: int | None = None
    sighted: bool = False
    _dense: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False)
    _narrower: dict[int, Mask] = field(default_factory=dict, repr=False)

    def within(self, window: int) -> Mask:
        """The same mask with at most this window."""
        if self.window is not None and self.window <= window:
            return self
        if window not in self._narrower:
            self._narrower[window] = Mask(self.keys, self.causal, window)
        return self._narrower[window]

    def dense(
        self, query_at: range, key_at: Places, device: torch.device | None = None
    ) -> Tensor | None:
        """True where seen, (B or 1, 1, T, S); None where every query sees every key."""
        name = ("dense", self._ordered(query_at), key_at)
        if name not in self._dense:
            self._dense[name] = self._build(query_at, key_at, device)
        return self._dense[name]

    def _build(self, query_at: range, key_at: Places, device: torch.device | None) -> Tensor | None:
        seen = None if self.keys is None else take(self.keys, key_at, 1)[:, None, None, :]
        last = max((run.stop - 1 for run in _runs(key_at)), default=0)
        ahead = self.causal and last > query_at.start  # some key may lie in a query's future
        if not ahead and self.window is None:
            return seen
        device = device if self.keys is None else self.keys.device
        queries, keys = places_of(query_at, device), places_of(key_at, device)
        distance = queries[:, None] - keys[None, :]  # (T, S)
        if ahead:
            order = (distance >= 0)[None, None]
            seen = order if seen is None else seen & order
        if self.window is not None:
            near = (distance.abs() < self.window)[None, None]
            seen = near if seen is None else seen & near
        return seen

    def _ordered(self, query_at: range) -> range | None:
        """Where queries stand, if that makes a difference."""
        return query_at if self.causal or self.window is not None else None

    def triangle(self, query_at: range, key_at: Places) -> bool:
        """Whether what stands after a query is hidden from it, and nothing else."""
        only = self.causal and self.keys is None and self.window is None
        return only and query_at == key_at

    def additive(
        self,
        query_at: range,
        key_at: Places,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> Tensor | None:
        """0 where seen and −∞ elsewhere, to be added to scores; None where all is seen."""
        name = ("additive", self._ordered(query_at), key_at, dtype)
        if name not in self._dense:
            seen = self.dense(query_at, key_at, device)
            self._dense[name] = (
                None
                if seen is None
                else torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
                    ~seen & seen.any(dim=-1, keepdim=True), -torch.inf
                )
            )
        return self._dense[name]

    def blind(
        self, query_at: range, key_at: Places, device: torch.device | None = None
    ) -> Tensor | None:
        """True for queries that see no key at all, (B or 1, 1, T, 1); None where there is none."""
        if self.sighted or self.triangle(query_at, key_at):  # there each sees itself
            return None
        name = ("blind", self._ordered(query_at), key_at)
        if name not in self._dense:
            seen = self.dense(query_at, key_at, device)
            rows = None if seen is None else ~seen.any(dim=-1, keepdim=True)
            self._dense[name] = rows if rows is not None and bool(rows.any()) else None
        return self._dense[name]
