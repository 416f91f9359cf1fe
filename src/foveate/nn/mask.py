"""Which query may see which key: symbolic until an attention needs the dense form."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Mask:
    """Query at place q may see key at place k if the key is real, k ≤ q (causal), q − k < window.

    ``keys`` is (B, S), true where a key is real; None where all are. One mask serves all layers
    of a forward: each dense form is built once.
    """

    keys: Tensor | None = None
    causal: bool = False
    window: int | None = None
    _dense: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False)

    def dense(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        """True where seen, (B or 1, 1, T, S); None where every query sees every key.

        Shapes: places of the queries (T,), of the keys (S,).
        """
        steps, length = len(query_at), len(key_at)
        if steps == 1 and self.window is None and self.causal:
            # one query at the end of what there is sees it all
            return None if self.keys is None else self.keys[:, None, None, :]
        name = ("dense", steps, length, int(query_at[0]) if steps else 0)
        if name not in self._dense:
            self._dense[name] = self._build(query_at, key_at)
        return self._dense[name]

    def _build(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        seen = None if self.keys is None else self.keys[:, None, None, :]
        distance = query_at[:, None] - key_at[None, :]  # (T, S)
        if self.causal and len(query_at) > 1:
            order = (distance >= 0)[None, None]
            seen = order if seen is None else seen & order
        if self.window is not None:
            near = (distance.abs() < self.window)[None, None]
            seen = near if seen is None else seen & near
        return seen

    def additive(self, query_at: Tensor, key_at: Tensor, dtype: torch.dtype) -> Tensor | None:
        """0 where seen and −∞ elsewhere, to be added to scores; None where all is seen."""
        name = ("additive", len(query_at), len(key_at), int(query_at[0]), dtype)
        if name not in self._dense:
            seen = self.dense(query_at, key_at)
            self._dense[name] = (
                None
                if seen is None
                else torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
                    ~seen & seen.any(dim=-1, keepdim=True), -torch.inf
                )
            )
        return self._dense[name]

    def blind(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        """True for queries that see no key at all, (B or 1, 1, T, 1); None where there is none."""
        name = ("blind", len(query_at), len(key_at), int(query_at[0]) if len(query_at) else 0)
        if name not in self._dense:
            seen = self.dense(query_at, key_at)
            rows = None if seen is None else ~seen.any(dim=-1, keepdim=True)
            self._dense[name] = rows if rows is not None and bool(rows.any()) else None
        return self._dense[name]
