"""More requests than the server can do: who is refused, how long others wait, and /health."""

import asyncio
import gc
import json
import time
from collections import Counter
from typing import Any

import pytest

import own_loop
from foveate.run import Run
from foveate.serve.common import RequestError
from foveate.serve.waiting import Pace
from serve_tools import program, served
from test_serve_limits import Health

MAX_WAIT, SECONDS = 2.0, 6.0
TEXTS = ["The dog runs. Who is it? A cat sleeps. She comes back."] * 12


@pytest.mark.parametrize("load", [0.5, 2, 4, 30])
def test_a_pass_of_the_event_loop_is_short_and_nobody_waits_longer_than_the_forecast(load) -> None:
    """Requests of two pieces of 10 ms each, at ``load`` times what can be done, in made-up time."""
    now, waits, refused, passes = [0.0], list[float](), list[float](), list[float]()
    pace = Pace(1.0, clock=lambda: now[0])

    async def request() -> None:
        began = now[0]
        try:
            await pace.begin()
        except RequestError as error:
            assert error.status == 503 and error.retry_after is not None
            refused.append(error.retry_after)
            return
        waits.append(now[0] - began)
        now[0] += 0.01
        await pace.resume()
        now[0] += 0.01

    async def arrivals() -> None:
        tasks, sent = set[asyncio.Task[None]](), 0
        for _ in range(1000):  # one by one, which says little about how many can be done
            await request()
            await asyncio.sleep(0)
            now[0] += 0.1
        waits.clear()
        start = now[0]
        while now[0] < start + 10:
            before = now[0]
            await asyncio.sleep(0)
            passes.append(now[0] - before)
            now[0] += 0.001
            while sent < (now[0] - start) * 50 * load:
                tasks.add(asyncio.create_task(request()))
                sent += 1
        await asyncio.gather(*tasks)

    own_loop.run(arrivals())
    assert max(passes) < 0.025, "a piece, and one that found nothing before it"
    assert max(waits) < 2 and len(waits) > 10 * 50 * min(load, 0.9) * 0.9
    assert bool(refused) == (load > 1)


async def asked(port: int, rate: float) -> list[tuple[str, float, bool]]:
    """The status of each request, its seconds, and whether it is told when to come again."""
    body = json.dumps({"q": TEXTS, "source": "en", "target": "fr"})
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"

    async def one() -> tuple[str, float, bool]:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((head + body).encode())
        answer = await reader.read()
        writer.close()
        return answer[9:12].decode(), time.monotonic() - began, b"retry-after:" in answer.lower()

    tasks = list[asyncio.Task[tuple[str, float, bool]]]()
    for _ in range(int(rate * SECONDS)):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / rate)
    return await asyncio.gather(*tasks)


def test_what_requests_leave_is_collected_young(run: Run) -> None:
    """A server seldom collects all: with a thousand requests in flight /health waits for it."""
    app, many = served(run.path), 200
    wrong = {"q": "the dog", "source": "en", "target": "xx"}
    right = {"q": ["the dog runs", "<p>a <b>cat</b></p>"], "source": "en", "target": "fr"}

    async def post(body: dict[str, object]) -> int:
        """Without a client, which would leave cycles of its own."""
        sent, text = list[dict[str, Any]](), json.dumps(body | {"format": "html"}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": text}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers}
        scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "state": {}}
        await app(scope, receive, send)
        return int(sent[0]["status"])

    async def posts() -> list[int]:
        await post(right)
        gc.collect()
        gc.set_threshold(*before[:2], 1_000_000)
        answers = list[int]()
        for _ in range(many // 20):  # at a time
            answers += await asyncio.gather(*(post(body) for body in (right, wrong) * 20))
        return answers

    before = gc.get_threshold()
    try:
        assert Counter(own_loop.run(posts())) == {200: many, 400: many}
        gc.collect(1)
        assert gc.collect() < 4 * many, "next to nothing of 400 requests"
    finally:
        gc.set_threshold(*before)


def test_at_several_times_the_load_a_program_answers_or_refuses_in_time(run: Run) -> None:
    options = ("--as", "en:fr", "--no-studio", "--preload", "--max-wait", MAX_WAIT)
    with program(run.path, *map(str, options), "--log-level", "error") as server:
        with Health(server) as health:
            answers = own_loop.run(asked(server.port, 500))
        states = Counter(state for state, *_ in answers)
        assert states["200"] and states["429"] + states["503"], states
        assert states.keys() <= {"200", "429", "503"}, states
        assert all(told for state, _, told in answers if state != "200")
        assert max(seconds for _, seconds, _ in answers) < MAX_WAIT + 3, "with a batch or two"
        assert health.worst < 1 and health.asked > 20
        assert server.end() == 0
