"""Big arrays of drawings: kept here by the hash of their bytes, sent gzipped by their URL."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections import OrderedDict
from threading import Lock

from foveate.look.drawing import Numbers, P, changed

INLINE = 64 * 1024  # bytes of an array that still stands in the JSON


class Tensors:
    """The arrays that were drawn last, at most ``size`` bytes of them, gzipped."""

    def __init__(self, size: int = 256 * 1024 * 1024) -> None:
        self.size = size
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._used, self._lock = 0, Lock()

    def put(self, values: bytes) -> str:
        """Keep bytes; their id. The longest unused make room."""
        name, packed = hashlib.sha256(values).hexdigest(), gzip.compress(values, 6, mtime=0)
        with self._lock:
            if name not in self._kept:
                self._used += len(packed)
            self._kept[name] = packed
            self._kept.move_to_end(name)
            while self._used > self.size and len(self._kept) > 1:
                self._used -= len(self._kept.popitem(last=False)[1])
        return name

    def get(self, name: str) -> bytes | None:
        """The gzipped bytes of an id; None where they are not here, or no more."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def outside(self, part: P) -> P:
        """A drawing whose big arrays are URLs."""
        return changed(part, self._numbers)

    def _numbers(self, numbers: Numbers) -> Numbers:
        if len(numbers.data) * 3 // 4 <= INLINE:
            return numbers
        name = self.put(base64.b64decode(numbers.data))
        return numbers.model_copy(update={"data": "", "url": f"/api/v1/tensors/{name}"})
