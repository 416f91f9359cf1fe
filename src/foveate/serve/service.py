"""What all routes share: runs, door, limits, figures; and waiting for what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from foveate.config import ConfigError
from foveate.documents.spans import Rules
from foveate.serve.batcher import Kind
from foveate.serve.detect import Detector
from foveate.serve.door import Door
from foveate.serve.errors import GONE, Refused
from foveate.serve.fleet import Fleet, Place
from foveate.serve.kept import Kept
from foveate.serve.keys import KeyFile
from foveate.serve.kinds import Align, Links, Pair
from foveate.serve.metrics import Metrics
from foveate.serve.serving import LEFT
from foveate.serve.settings import Limits

T = TypeVar("T")
DOCUMENTS = 2  # files that are read or written at a time: each may take hundreds of MiB for that
HANDS = 16  # threads for what is too long for the loop: cutting, joining, telling languages


class Service:
    """The parts of an application that serves runs."""

    def __init__(
        self,
        fleet: Fleet,
        limits: Limits,
        keys: KeyFile | None = None,
        rules: Rules | None = None,
    ) -> None:
        """``rules`` say which spans of all texts are protected."""
        self.fleet, self.limits, self.rules = fleet, limits, rules or Rules()
        self.metrics, self.door = Metrics(fleet), Door(limits, keys)
        self.detector = Detector()
        self.kept = Kept(limits.kept, 60 * limits.minutes)
        self.closing = False
        self._hands = ThreadPoolExecutor(HANDS, thread_name_prefix="serve")
        self._desk = ThreadPoolExecutor(DOCUMENTS, thread_name_prefix="documents")

    async def aside(self, work: Callable[[], T]) -> T:
        """Do something in another thread, so that the loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._hands, work)

    async def in_turn(self, work: Callable[[], T]) -> T:
        """The same for what takes much memory: few such things are done at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._desk, work)

    async def for_client(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """What comes of the work, as long as the client waits for it and the time allows.

        Raises `Refused` (499) where the client leaves, ``TimeoutError`` after the time.
        """
        task = asyncio.ensure_future(work)
        left: asyncio.Future[None] = getattr(request.state, LEFT, None) or asyncio.Future()

        def leave(left: asyncio.Future[None]) -> None:
            task.cancel()

        left.add_done_callback(leave)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await task
        except asyncio.CancelledError:
            if left.done():
                raise Refused(GONE, "the client has left") from None
            raise
        finally:
            left.remove_done_callback(leave)

    def ask(self, place: Place, client: str, kind: Kind, items: Sequence[Any]) -> Futures:
        """Put items into the queue of a run."""
        return Futures(place.batcher.submit(client, kind, items))

    def aligner(
        self, place: Place, client: str, to: str | None
    ) -> Callable[[Sequence[Pair]], list[Links]]:
        """Links of pairs by a run, for other threads than the loop's; none where it knows none."""

        def align(pairs: Sequence[Pair]) -> list[Links]:
            found = place.batcher.submit(client, Align(to), pairs)
            with suppress(ConfigError, ValueError):
                return [one.result(self.limits.seconds) for one in found]
            return [[] for _ in pairs]

        return align

    def close(self, seconds: float) -> bool:
        """Answer what was accepted; whether that was done in the time."""
        self.closing = True
        done = self.fleet.close(seconds)
        for threads in (self._hands, self._desk):
            threads.shutdown(wait=False, cancel_futures=True)
        return done


class Futures:
    """Answers to come, in the order of their items; given up where nobody waits any more."""

    def __init__(self, futures: Sequence[Future[Any]]) -> None:
        self._futures = list(futures)

    def __len__(self) -> int:
        return len(self._futures)

    def split(self, sizes: Sequence[int]) -> list[Futures]:
        """Its parts, of so many answers each."""
        ends = list(accumulate(sizes, initial=0))
        return [Futures(self._futures[start:end]) for start, end in pairwise(ends)]

    async def all(self) -> list[Any]:
        """All answers; the first error is raised, and the rest given up."""
        try:
            return list(await asyncio.gather(*map(asyncio.wrap_future, self._futures)))
        finally:
            self.cancel()

    async def one(self, number: int) -> Any:
        """One answer."""
        return await asyncio.wrap_future(self._futures[number])

    def cancel(self) -> None:
        """Nobody waits for these: what has not begun will not."""
        for future in self._futures:
            future.cancel()


async def service(request: Request) -> Service:  # FastAPI sends what is not async to a thread
    """The service of an application."""
    found: Service = request.app.state.service
    return found


Here = Annotated[Service, Depends(service)]
