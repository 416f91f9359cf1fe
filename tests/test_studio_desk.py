"""One computation at a time: a bounded queue, events as they are said, a stop that stops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from foveate.studio.desk import Desk, Say, Stopped
from foveate.studio.errors import Refused
from own_loop import run


def test_events_come_as_they_are_said_and_then_what_came_of_it() -> None:
    async def main() -> list[Any]:
        desk = Desk()
        gate = threading.Event()

        def work(say: Say) -> str:
            say(1)
            gate.wait(10)
            say(2)
            return "done"

        found = []
        async for event in desk.take(work).events(0.05, "ping"):
            found.append(event)
            if event == "ping":
                gate.set()
        desk.close()
        return found

    found = run(main())
    assert [event for event in found if event != "ping"] == [1, 2, "done"]
    assert "ping" in found[1:-2]


def test_it_stops_where_the_reader_leaves() -> None:
    said: list[int] = []
    over = threading.Event()

    def endless(say: Say) -> None:
        try:
            for number in range(10**9):
                said.append(number)
                say(number)
        except Stopped:
            over.set()
            raise

    async def main() -> int:
        desk = Desk()
        events = desk.take(endless).events(1, None)
        async for event in events:
            if event == 3:
                break
        await events.aclose()  # type: ignore[attr-defined]
        assert await asyncio.to_thread(over.wait, 10)
        assert await desk.do(lambda: 5) == 5, "the next has its turn"
        held = desk.held
        desk.close()
        return held

    assert run(main()) == 0
    assert len(said) < 10**8


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
        desk = Desk(waiting=2)
        waiting = [asyncio.ensure_future(desk.do(work)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="wait already") as refused:
            await desk.do(work)
        assert refused.value.status == 429
        gate.set()
        await asyncio.gather(*waiting)
        await desk.do(work)
        desk.close()

    run(main())
    assert most == [1] * 4


def test_an_error_reaches_the_one_who_asked() -> None:
    async def main() -> None:
        desk = Desk()

        def work(say: Say) -> None:
            say("before")
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            async for _ in desk.take(work).events(1, None):
                pass
        assert await desk.do(lambda: 1) == 1
        desk.close()

    run(main())
