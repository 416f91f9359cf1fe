"""A queue of request items for a model that is fair to clients, with waiting times.

A request is refused if it would wait for too long: the characters ahead of it divided by the
recent rate. `foveate.serve.batching` answers what waits.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import exp
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import Field

from foveate.config import Config
from foveate.serve.common import RequestError

TURN = 2000  # characters that a client has in the line: most requests fit as a whole
FIRST_RATE = 1000.0  # characters per second, until a batch has been measured
FIRST_SECONDS = 0.1  # for which that counts
MEMORY = 10.0  # seconds of computing after which a measured rate counts 1/e
WINDOW_SECONDS, LEAST_WINDOW = 1.0, 1024  # of work in a window, and its minimum of characters
ENTRANCE = 0.25  # of `max_wait`, for which a request may wait until the event loop begins it
PIECES, PASS = 8, 0.002  # of request work in a pass of the event loop, and its seconds
FIRST_PACE, PACE_MEMORY = 100.0, 0.5  # as `FIRST_RATE` and `MEMORY`, for requests that begin
MOST_RETRY = 60.0  # seconds that a client is asked to wait at most
A = TypeVar("A")
Pair = tuple[str, str]
Item = str | Pair


class Batching(Config):
    """Options for sharing batches among requests."""

    max_delay: float = Field(0.005, ge=0)  # seconds that an item waits for others at most
    tokens: int = Field(8192, ge=1)  # in a batch: source tokens × hypotheses, padding included
    window: int = Field(16_384, ge=1)  # characters that are taken together and sorted by length
    queue: int = Field(400_000, ge=1)  # characters that may wait
    max_wait: float = Field(5.0, gt=0, allow_inf_nan=True)  # seconds that an item waits at most
    workers: int = Field(1, ge=1)  # batches that are computed at a time, one thread each


class Answers(Generic[A]):
    """The answers to the items of one request, in order, filled in as batches are done.

    ``future`` has them all, or the first error; cancel it to stop the request. A failed item
    has the answer ``instead`` if there is one.
    """

    def __init__(self, operation: Any, items: Sequence[Item], instead: A | None = None) -> None:
        self.operation, self.items, self.instead = operation, items, instead
        self.future: Future[list[A]] = Future()
        self.values = dict[int, A]()
        self.taken = 0  # items that are, or were, in a batch
        self.waiting = sum(map(cost_of, items))  # characters of the others
        self._lock = threading.Lock()
        if not items:
            self.future.set_result([])

    @property
    def over(self) -> bool:
        """True if no client waits for further answers."""
        return self.future.done()

    def put(self, number: int, value: A) -> None:
        """Set the answer to an item."""
        with self._lock:
            self.values[number] = value
            if len(self.values) == len(self.items) and self._runs():
                self.future.set_result([self.values[n] for n in range(len(self.items))])

    def fail(self, number: int, error: BaseException) -> None:
        """Answer an item with an error; anything else, such as a panic, becomes a RuntimeError.

        The latter would end an event loop.
        """
        if self.instead is not None:
            self.put(number, self.instead)
            return
        if not isinstance(error, Exception):
            error = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)
        with self._lock:
            if self._runs():
                self.future.set_exception(error)

    def _runs(self) -> bool:
        return not self.over and self.future.set_running_or_notify_cancel()


AnyAnswers = Answers[Any]


class QueuedItem(NamedTuple):
    """An item that was taken out of the queue."""

    answers: AnyAnswers
    number: int

    @property
    def item(self) -> Item:
        """The item itself."""
        return self.answers.items[self.number]


class Rate:
    """The rate in characters per second while there is work, from recent batches.

    r = Σ_i c_i e^(−(T − t_i)/τ) / Σ_i d_i e^(−(T − t_i)/τ)

    c_i characters were done at t_i, d_i seconds after those before. Time between batches
    counts while something waits, because clients wait for it too.
    """

    def __init__(self, first: float = FIRST_RATE, memory: float = MEMORY) -> None:
        self._characters, self._seconds = first * FIRST_SECONDS, FIRST_SECONDS
        self._memory = memory
        self._since: float | None = None  # when something was done last; None without work

    def set(self, rate: float) -> None:
        """Begin with a rate that was measured in a second."""
        self._characters, self._seconds = rate, 1.0

    def begin(self, now: float) -> None:
        """Note that there is work, unless there was some already."""
        self._since = now if self._since is None else self._since

    def done(self, now: float, characters: int) -> None:
        """Add characters that are done."""
        passed, self._since = max(1e-6, self._stalled(now)), now
        weight = exp(-passed / self._memory)
        self._characters = self._characters * weight + characters
        self._seconds = self._seconds * weight + passed

    def rest(self) -> None:
        """Note that all work is done."""
        self._since = None

    def value(self, now: float) -> float:
        """Return the rate, which falls while nothing is done."""
        return self._characters / (self._seconds + self._stalled(now))

    def wait(self, characters: int, now: float) -> float:
        """Return the forecast seconds until ``characters`` are done."""
        return max(self._stalled(now), characters / self.value(now)) if characters else 0.0

    def _stalled(self, now: float) -> float:
        """Return the seconds for which there has been work, and nothing was done."""
        return 0.0 if self._since is None else now - self._since


class Pace:
    """Limits the pieces of request work in a pass of the event loop, which keeps passes short.

    /health is therefore answered soon, however many requests arrive or are done at once. The limit
    doubles, up to `PIECES`, after a pass shorter than `PASS`, and is 1 after a longer one. Requests
    that have begun continue before new ones begin; these are refused if they would wait longer than
    ``most`` seconds, by the rate at which requests have begun recently.
    """

    def __init__(self, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.clock, self.rate = most, clock, Rate(FIRST_PACE, PACE_MEMORY)
        self._begun, self._new = deque[asyncio.Future[None]](), deque[asyncio.Future[None]]()
        self._limit, self._since = 1, 0.0  # of the pieces of this pass, and when it began
        self._taken = self._beginning = 0  # these pieces, and those of new requests

    async def begin(self) -> None:
        """Wait until a new request may begin. Raises `RequestError` (503) if that takes long."""
        wait = self.rate.wait(len(self._new), self.clock())
        if wait > self.most:
            raise RequestError(503, "the server is busy: try again later", retry_after=1 + wait)
        await self._turn(self._new)

    async def resume(self) -> None:
        """Wait until a request that has begun may continue."""
        await self._turn(self._begun)

    async def _turn(self, line: deque[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        if self._taken >= self._limit:
            line.append(turn := loop.create_future())
            await turn
        else:
            if not self._taken:
                self._schedule(loop, self.clock())
            self._take(line)

    def _take(self, line: object) -> None:
        self._taken += 1
        self._beginning += line is self._new

    def _schedule(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Schedule the next pass."""
        self.rate.begin(now)
        self._since = now
        loop.call_soon(self._pass, loop)

    def _pass(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock()
        self.rate.done(now, self._beginning)
        self._taken = self._beginning = 0
        self._limit = min(PIECES, 2 * self._limit) if now - self._since < PASS else 1
        while self._taken < self._limit and (line := self._begun or self._new):
            if not (turn := line.popleft()).done():
                turn.set_result(None)
                self._take(line)
        if self._taken:
            self._schedule(loop, now)
        else:
            self.rate.rest()


class ClientQueue:
    """A client's waiting work: requests that are not in the line yet, and characters."""

    def __init__(self) -> None:
        self.requests, self.characters = deque[AnyAnswers](), 0
        self.in_line = 0  # characters in the line, at most `TURN` unless one text has more


@dataclass
class Turn:
    """A part of a request that is in the line."""

    client: Hashable
    answers: AnyAnswers
    characters: int
    since: float


class FairQueue:
    """Waiting requests, bounded in characters and in forecast seconds.

    There is one line, in order of arrival, in which a client has `TURN` characters at a time; its
    other requests join the end of the line when these are taken.
    """

    def __init__(self, bounds: Batching, clock: Callable[[], float] = time.monotonic) -> None:
        self.bounds, self.clock, self.rate = bounds, clock, Rate()
        self._turn = min(TURN, bounds.window)
        self.characters = 0  # that wait or are being processed
        self._waiting = self._in_line = 0  # the waiting ones, and those in the line
        self._line = deque[Turn]()
        self._clients = dict[Hashable, ClientQueue]()
        self._over = False  # whether a request in the queue may be over

    def __bool__(self) -> bool:
        """Return whether something waits."""
        return bool(self._line)

    def put(self, client: Hashable, answers: AnyAnswers, admitted: bool = False) -> None:
        """Append a request. Raises `RequestError` (429) if it does not fit or would wait too long.

        A request to an empty queue always fits, and so does work that an ``admitted`` request still
        needs, such as links of words: its first `TURN` goes to the head of the line, because its
        client has waited already.
        """
        if not admitted:
            self.check(client, answers.waiting)
        if answers.waiting:
            queue = self._clients.setdefault(client, ClientQueue())
            self.characters += answers.waiting
            self._count(queue, answers.waiting)
            if admitted:
                self._line.appendleft(self._turn_of(client, queue, answers))
            else:
                queue.requests.append(answers)
                self._line_up(client, queue)
            answers.future.add_done_callback(self._note)

    def check(self, client: Hashable, cost: int = 0, waited: float = 0.0) -> None:
        """Raise `RequestError` (429) if ``cost`` characters do not fit or would wait too long.

        The request has ``waited`` for that many seconds already.
        """
        if self._over and self._refusal(client, cost, waited):
            self._drop_over()
        if refusal := self._refusal(client, cost, waited):
            raise refusal

    def _refusal(self, client: Hashable, cost: int, waited: float) -> RequestError | None:
        wait, bounds = waited + self.wait(client), self.bounds
        message = f"a request would wait for {wait:.0f} seconds: try again later"
        retry = wait - bounds.max_wait / 2
        if self.characters and self.characters + cost > bounds.queue:
            message = "the queue is full: try again in a moment"
            retry = self.rate.wait(self.characters // 2, self.clock())
        elif wait <= bounds.max_wait:
            return None
        return RequestError(429, message, retry_after=min(MOST_RETRY, max(1.0, retry)))

    def wait(self, client: Hashable) -> float:
        """Return the forecast seconds until a further request of a client is processed.

        If the client has more than its turn in the queue, the others have as many turns.
        """
        ahead = self.characters - self._waiting + self._in_line
        if (own := self._clients.get(client)) and own.characters > own.in_line:
            others = (1 + own.characters // self._turn) * (self._in_line - own.in_line)
            others = min(others, self._waiting - own.characters)
            ahead = self.characters - self._waiting + own.characters + others
        return self.rate.wait(ahead, self.clock())

    def window(self) -> list[QueuedItem]:
        """Return items for about a second of work, all of the first one's operation.

        Items of other operations stay where they are; nothing overtakes them once they are old.
        """
        now, taken, passed = self.clock(), list[QueuedItem](), list[Turn]()
        most = max(LEAST_WINDOW, int(self.rate.value(now) * WINDOW_SECONDS))
        room, old = min(self.bounds.window, most), now - self.bounds.max_wait / 4
        while self._line and room > 0 and not (passed and passed[0].since < old):
            turn = self._line.popleft()
            if taken and turn.answers.operation != taken[0].answers.operation:
                passed.append(turn)
                continue
            size = self._take(turn, taken, room)
            if turn.characters:  # there was no room
                passed.append(turn)
                break
            room -= size
        self._line.extendleft(reversed(passed))
        return taken

    def _take(self, turn: Turn, taken: list[QueuedItem], room: int) -> int:
        """Take the items of a turn that fit, and at least the very first; return their characters.

        If all are taken, the client's next ones join the line.
        """
        answers, queue, size = turn.answers, self._clients[turn.client], 0
        while answers.waiting and not answers.over and size < turn.characters:
            cost = cost_of(answers.items[answers.taken])
            if taken and size + cost > room:
                break
            taken.append(QueuedItem(answers, answers.taken))
            answers.taken, answers.waiting = answers.taken + 1, answers.waiting - cost
            size += cost
        left = max(0, min(turn.characters - size, answers.waiting)) if not answers.over else 0
        self._in_line -= turn.characters - left
        queue.in_line -= turn.characters - left
        turn.characters = left
        self._count(queue, -size)
        if not left:
            if answers.over:
                self._drop(queue, answers)
            elif answers.waiting:
                queue.requests.appendleft(answers)
            self._line_up(turn.client, queue)
        return size

    def _line_up(self, client: Hashable, queue: ClientQueue) -> None:
        """Append a client's next requests to the line, as many as its turn has room for."""
        while queue.requests:
            size = min(self._turn, queue.requests[0].waiting)
            if queue.in_line and queue.in_line + size > self._turn:
                return
            self._line.append(self._turn_of(client, queue, queue.requests.popleft()))
        if not queue.characters:
            del self._clients[client]

    def _turn_of(self, client: Hashable, queue: ClientQueue, answers: AnyAnswers) -> Turn:
        """Return the next part of a request, which counts as in the line."""
        size = min(self._turn, answers.waiting)
        queue.in_line, self._in_line = queue.in_line + size, self._in_line + size
        return Turn(client, answers, size, self.clock())

    def done(self, items: Sequence[QueuedItem], answered: bool = True) -> None:
        """Remove finished items; those ``answered`` count for the rate."""
        cost = sum(cost_of(item.item) for item in items)
        if answered:
            self.rate.done(self.clock(), cost)
        self._remove(cost)

    def _note(self, future: Future[Any]) -> None:
        self._over = self._over or future.cancelled()

    def _drop_over(self) -> None:
        """Remove requests that no client waits for, which would stay until their turn."""
        self._over = False
        for turn in [turn for turn in self._line if turn.answers.over]:
            self._line.remove(turn)
            self._take(turn, [], 0)
        for client, queue in list(self._clients.items()):
            for answers in [each for each in queue.requests if each.over]:
                queue.requests.remove(answers)
                self._drop(queue, answers)
            self._line_up(client, queue)

    def _remove(self, characters: int) -> None:
        self.characters -= characters
        if not self.characters:
            self.rate.rest()

    def _drop(self, queue: ClientQueue, answers: AnyAnswers) -> None:
        self._remove(answers.waiting)
        self._count(queue, -answers.waiting)
        answers.waiting = 0

    def _count(self, queue: ClientQueue, characters: int) -> None:
        self._waiting += characters
        queue.characters += characters


def cost_of(item: Item) -> int:
    """Return the characters of an item, plus one for the item."""
    return 1 + (len(item) if isinstance(item, str) else sum(map(len, item)))
