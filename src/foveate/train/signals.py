"""Ctrl-C and SIGTERM as a wish to stop, which the trainer grants at the end of a step.

Lives here: catching the signals. Does not live here: saving (`foveate.train.trainer`).
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While entered, the first SIGINT or SIGTERM is kept in ``received``; the second raises.

    Only the main thread can catch signals; in another one this catches none.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = signal.Signals(number)
        if again or self._at_once:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, the first signal too raises ``KeyboardInterrupt`` where it strikes."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells have it (130 for Ctrl-C), and 0 without one."""
        return 0 if self.received is None else 128 + self.received
