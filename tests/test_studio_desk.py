"""One computation at a time: a bounded queue, events as they are said, a stop that stops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from foveate.server.common import RequestError
from foveate.server.studio_answers import Send
from foveate.server.studio_state import Stopped, StudioState
from own_loop import run


def test_events_come_as_they_are_said_and_then_what_came_of_it() -> None:
    async def main() -> list[Any]:
        jobs = StudioState([])
        gate = threading.Event()

        def work(send: Send) -> str:
            send(1)
            gate.wait(10)
            send(2)
            return "done"

        result = []
        async for event in jobs.start(work).events(0.05, "ping"):
            result.append(event)
            if event == "ping":
                gate.set()
        jobs.queue.close(0)
        return result

    result = run(main())
    assert [event for event in result if event != "ping"] == [1, 2, "done"]
    assert "ping" in result[1:-2]


def test_it_stops_where_the_reader_leaves() -> None:
    output: list[int] = []
    over = threading.Event()

    def endless(send: Send) -> None:
        try:
            for number in range(10**9):
                output.append(number)
                send(number)
        except Stopped:
            over.set()
            raise

    async def main() -> int:
        jobs = StudioState([])
        events = jobs.start(endless).events(1, None)
        async for event in events:
            if event == 3:
                break
        await events.aclose()  # type: ignore[attr-defined]
        assert await asyncio.to_thread(over.wait, 10)
        assert await jobs.compute(lambda: 5) == 5, "the next has its turn"
        held = jobs.queue.characters
        jobs.queue.close(0)
        return held

    assert run(main()) == 0
    assert len(output) < 10**8


def test_one_at_a_time_and_no_more_than_may_wait() -> None:
    together: list[int] = []
    most: list[int] = []
    gate = threading.Event()

    def work() -> None:
        together.append(1)
        most.append(len(together))
        gate.wait(10)
        together.pop()

    async def main() -> None:
        jobs = StudioState([], waiting=2)
        waiting = [asyncio.ensure_future(jobs.compute(work)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError, match="the queue is full") as refused:
            await jobs.compute(work)
        assert refused.value.status == 429
        gate.set()
        await asyncio.gather(*waiting)
        await jobs.compute(work)
        jobs.queue.close(0)

    run(main())
    assert most == [1] * 4


def test_an_error_reaches_the_one_who_asked() -> None:
    async def main() -> None:
        jobs = StudioState([])

        def work(send: Send) -> None:
            send("before")
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            async for _ in jobs.start(work).events(1, None):
                pass
        assert await jobs.compute(lambda: 1) == 1
        jobs.queue.close(0)

    run(main())
