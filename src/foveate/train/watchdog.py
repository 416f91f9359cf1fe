"""A rank that hangs says so and ends, instead of letting all others wait for ever.

Lives here: the clock over what a rank is doing, and what is said when it has run out. Does not
live here: what the ranks say to each other (`foveate.train.ranks`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import Any

HUNG = 75  # exit code: a temporary failure (EX_TEMPFAIL), so that torchrun starts anew


class Watchdog:
    """Ends the process with `HUNG` where one thing takes longer than ``seconds``.

    Before that it prints which rank was doing what since when, where in the code it stands, and
    what the others were last heard doing: the one that hangs is the one that is not waiting. Two
    threads share the work, so that a store that no longer answers cannot stop the clock.
    """

    def __init__(self, rank: int, world: int, seconds: float, store: Any) -> None:
        """``store``: a key-value store that all ranks see (`torch.distributed.Store`)."""
        self.rank, self.world, self.seconds = rank, world, seconds
        self._store, self._beats = store, 0
        self._heard: dict[int, str] = {}
        self._closed = threading.Event()
        self.what, self._since = "starting", time.monotonic()
        self._limited = False  # reading data and building a model have no bound
        self._threads = [
            threading.Thread(target=work, name=f"foveate-{name}", daemon=True)
            for name, work in (("watchdog", self._watch), ("pulse", self._pulse))
        ]
        for thread in self._threads:
            thread.start()

    def doing(self, what: str, limited: bool = True) -> None:
        """Something new begins: the clock starts again, or stands still if it may take long."""
        self.what, self._since, self._limited = what, time.monotonic(), limited

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._threads[0].join()

    @property
    def _waited(self) -> float:
        return time.monotonic() - self._since

    def _watch(self) -> None:
        while not self._closed.wait(min(1.0, self.seconds / 20)):
            if self._limited and self._waited > self.seconds:
                print(self.report(), file=sys.stderr, flush=True)
                os._exit(HUNG)

    def report(self) -> str:
        """What is said of a hang."""
        lines = [f"rank {self.rank} hangs: {self.what} for {self._waited:.0f} s; it stands at"]
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        frames = traceback.extract_stack(main)[-4:]
        lines += [f"    {f.filename}:{f.lineno} {f.name}: {f.line}" for f in frames]
        for rank in range(self.world):
            if rank != self.rank:
                lines.append(f"  rank {rank}: {self._heard.get(rank, 'not heard of')}")
        return "\n".join(lines)

    # ---- what ranks tell each other of themselves

    def pulse_of(self, rank: int) -> str | None:
        """A word that changes as long as a rank lives and can be reached."""
        key = f"doing/{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _pulse(self) -> None:
        """Tell all twice within the time what goes on here; ask others only where it takes long."""
        while not self._closed.wait(min(1.0, self.seconds / 20)):
            try:
                self._tell()
            except RuntimeError:
                return  # the store is gone: what is there to tell it then?

    def _tell(self) -> None:
        self._beats += 1
        word = {"beat": self._beats, "what": self.what, "seconds": round(self._waited)}
        self._store.set(f"doing/{self.rank}", json.dumps(word))
        if not self._limited or self._waited < self.seconds / 2:
            return
        for rank in range(self.world):
            if (heard := self.pulse_of(rank)) is not None:
                said = json.loads(heard)
                self._heard[rank] = f"{said['what']} for {said['seconds']} s when last heard"
