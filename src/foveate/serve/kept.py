"""Translated files that wait to be fetched: in memory, for a while, within a limit."""

from __future__ import annotations

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePath


class Kept:
    """Files by names that nobody can guess; the oldest go first."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self.seconds, self._clock = most, seconds, clock
        self._files = OrderedDict[str, tuple[float, bytes]]()

    def put(self, data: bytes, name: str, target: str) -> str:
        """Keep a file; the name under which it can be had is made of its own and the language."""
        own = PurePath(name.replace("\\", "/"))
        stem = re.sub(r"[^\w-]+", "_", own.stem)[:60] or "file"
        key = f"{secrets.token_urlsafe(16)}.{stem}_{target}{own.suffix.lower()}"
        self._files[key] = self._clock() + self.seconds, data
        self._forget()
        return key

    def get(self, key: str) -> bytes | None:
        """A file, while it is there."""
        self._forget()
        found = self._files.get(key)
        return None if found is None else found[1]

    def _forget(self) -> None:
        size = sum(len(data) for _, data in self._files.values())
        while self._files:
            until, data = next(iter(self._files.values()))
            if until > self._clock() and size <= self.most:
                return
            self._files.popitem(last=False)
            size -= len(data)
