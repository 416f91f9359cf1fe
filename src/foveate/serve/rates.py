"""How often a client may come: a bucket of tokens for each, in bounded memory.

    tokens(t) = min(B, tokens(t₀) + r (t − t₀)),   a request takes one token

with r tokens a second and room for B.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST = 100_000  # clients that are remembered; who was not here longest is forgotten first


class Buckets:
    """A bucket for each client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = OrderedDict[Hashable, tuple[float, float]]()  # tokens, and when

    def take(self, client: Hashable, per_minute: float) -> float:
        """Take a token: 0, or the seconds until there is one. A minute's tokens can be saved."""
        rate, room, now = per_minute / 60, max(1.0, per_minute), self._clock()
        tokens, then = self._left.pop(client, (room, now))
        tokens = min(room, tokens + rate * (now - then))
        wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self._left[client] = (tokens if wait else tokens - 1), now
        if len(self._left) > MOST:
            self._left.popitem(last=False)
        return wait
