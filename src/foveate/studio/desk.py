"""One computation at a time: who asks waits in a queue of bounded length, or is sent away.

A computation runs in a thread and says events; it stops at its next event once nobody listens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from foveate.studio.errors import Refused

T = TypeVar("T")
Say = Callable[[Any], None]


class Stopped(BaseException):
    """Nobody listens any more. Not an `Exception`: no handler of errors may swallow it."""


class Job(Generic[T]):
    """A computation that waits, runs, or is over; what it says can be read once."""

    def __init__(self, work: Callable[[Say], T], loop: asyncio.AbstractEventLoop) -> None:
        self._work, self._loop = work, loop
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._stop = threading.Event()
        self.future: Future[T] | None = None

    def run(self) -> T:
        """The computation, in the thread of the desk."""
        if self._stop.is_set():
            raise Stopped
        return self._work(self.say)

    def say(self, event: Any) -> None:
        """Hand on an event. Raises `Stopped` once nobody listens."""
        if self._stop.is_set():
            raise Stopped
        self._loop.call_soon_threadsafe(self._said.put_nowait, event)

    def stop(self) -> None:
        """Give up the computation; it ends at its next event."""
        self._stop.set()
        if self.future is not None:
            self.future.cancel()

    async def result(self) -> T:
        """What comes of it; stopped where the one who waits is cancelled."""
        assert self.future is not None
        try:
            return await asyncio.wrap_future(self.future)
        finally:
            self.stop()

    async def events(self, pause: float, ping: Any) -> AsyncIterator[Any]:
        """What it says as it says it, a ping in each ``pause`` seconds of silence, what came of it.

        The computation stops where the reader leaves.
        """
        assert self.future is not None
        over = object()
        self.future.add_done_callback(
            lambda _: self._loop.call_soon_threadsafe(self._said.put_nowait, over)
        )
        try:
            while True:
                try:
                    event = await asyncio.wait_for(self._said.get(), pause)
                except TimeoutError:
                    event = ping
                if event is over:
                    yield self.future.result()
                    return
                yield event
        finally:
            self.stop()


class Desk:
    """Takes computations: one runs, at most ``waiting`` wait."""

    def __init__(self, waiting: int = 8) -> None:
        self.waiting = waiting
        self._held = 0
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="studio")

    @property
    def held(self) -> int:
        """How many computations run or wait."""
        return self._held

    def take(self, work: Callable[[Say], T]) -> Job[T]:
        """Put a computation into the queue. Raises `Refused` (429) where it is full."""
        with self._lock:
            if self._held > self.waiting:
                raise Refused(
                    429, "busy", f"{self._held} computations wait already", "try again in a moment"
                )
            self._held += 1
        job = Job(work, asyncio.get_running_loop())
        job.future = self._thread.submit(job.run)
        job.future.add_done_callback(self._leave)
        return job

    async def do(self, work: Callable[[], T]) -> T:
        """Wait for a computation that says nothing on its way."""
        return await self.take(lambda say: work()).result()

    def close(self) -> None:
        """Take nothing more; what waits is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._held -= 1
