"""Dynamic batching: what many clients ask is answered together, and everyone in turn.

Lives here: the queue of a model and the threads that empty it. Does not live here: what is asked
(`foveate.serve.kinds`), and which model answers (`foveate.serve.fleet`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from foveate.data.batches import sorted_batches
from foveate.run import Run
from foveate.serve.errors import Refused
from foveate.serve.settings import Batching

FORGETTING = 0.8  # of the old rate of work that each window keeps


class Kind(Hashable, Protocol):
    """What is asked of a run; items of equal kinds are answered together.

    While an ``alone`` one is answered the run does nothing else, unless it does that `Run.apart`.
    """

    @property
    def alone(self) -> bool: ...

    def lengths(self, run: Run, items: Sequence[Any]) -> list[int]:
        """How many tokens each item has in a batch."""

    def budget(self, run: Run, tokens: int) -> int:
        """How many of these tokens a batch may have."""

    def answers(self, run: Run, items: Sequence[Any], tokens: int) -> list[Any]:
        """An answer for each item."""


@dataclass(eq=False)
class Waiting:
    """One item in the queue; nobody works for it once its future is cancelled."""

    kind: Kind
    item: Any
    cost: int
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """One model's queue, bounded in characters, and the workers that answer it.

    As soon as one of them is free a *window* of items is taken, one from each client in turn,
    sorted by length and cut into batches, at least one for each free worker. The first in line
    waits at most ``wait`` seconds for company, counted from when a batch was last done if that is
    later: those whom it answered may come back.
    """

    def __init__(
        self,
        model: Callable[[], Run],
        bounds: Batching | None = None,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        """``model`` gives the run at present; ``observe`` is told items and seconds of a batch."""
        self.model, self.bounds, self.observe = model, bounds or Batching(), observe
        self._queues = OrderedDict[Hashable, deque[Waiting]]()  # by client, the next one first
        self._ready = threading.Condition()
        self._held, self._since, self._freed, self._rate = 0, 0.0, 0.0, 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._free = self.bounds.workers  # of them, now

    @property
    def held(self) -> int:
        """Characters that wait or are being worked on."""
        return self._held

    def submit(self, client: Hashable, kind: Kind, items: Sequence[Any]) -> list[Future[Any]]:
        """Put items into the queue, all of them or none; cancel a future to give its item up.

        Raises `Refused` (429) where they find no room; what alone is too much has the queue to
        itself. After `close` everything is refused (503).
        """
        waiting = [Waiting(kind, item, 1 + _characters(item)) for item in items]
        cost = sum(one.cost for one in waiting)
        with self._ready:
            if self._closed:
                raise Refused(503, "the server is about to end", 1)
            if self._held and self._held + cost > self.bounds.queue:
                raise Refused(429, "the queue is full: come back in a moment", self._delay())
            first = not self._queues
            if first:
                self._since = time.monotonic()
            if waiting:
                self._queues.setdefault(client, deque()).extend(waiting)
            self._held += cost
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
                self._thread.start()
            if first or self._held >= self.bounds.window:  # else it waits for company
                self._ready.notify()
        return [one.future for one in waiting]

    def close(self, seconds: float | None = None) -> bool:
        """Take nothing more and answer what waits; whether that was done in the time."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _delay(self) -> float:
        """Seconds until half of what waits is done, by the rate of late; between 1 and 60."""
        return min(60.0, max(1.0, 0.5 * self._held / self._rate)) if self._rate else 1.0

    # ---- in the thread

    def _work(self) -> None:
        with ThreadPoolExecutor(self.bounds.workers, "batch") as pool:
            while window := self._take():
                try:
                    run, batches = self._batches(window)
                except Exception as error:
                    _fail(window, error)
                    with self._ready:
                        self._held -= sum(one.cost for one in window)
                    continue
                alone = window[0].kind.alone and not run.apart
                needed = self.bounds.workers if alone else 1
                for batch in batches:
                    self._occupy(needed)
                    pool.submit(self._answer_batch, run, batch, needed)

    def _occupy(self, workers: int) -> None:
        """Wait until so many workers are free; they are not any more."""
        with self._ready:
            self._ready.wait_for(lambda: self._free >= workers)
            self._free -= workers

    def _batches(self, window: list[Waiting]) -> tuple[Run, list[list[Waiting]]]:
        """Who answers, and what at a time: the shortest first, for they are done soonest."""
        run, kind = self.model(), window[0].kind
        lengths = np.array(kind.lengths(run, [one.item for one in window]))
        share = -(-len(window) // max(1, self._free))
        budget = kind.budget(run, self.bounds.tokens)
        batches = reversed(sorted_batches(lengths, budget, max_rows=share))
        return run, [[window[i] for i in batch] for batch in batches]

    def _answer_batch(self, run: Run, batch: list[Waiting], workers: int) -> None:
        began, cost = time.perf_counter(), sum(one.cost for one in batch)
        wanted = [one for one in batch if not one.future.cancelled()]
        if wanted:
            self._answer(run, wanted)
        rate = self.bounds.workers * cost / max(1e-6, time.perf_counter() - began)
        with self._ready:
            self._held -= cost
            self._rate = FORGETTING * (self._rate or rate) + (1 - FORGETTING) * rate
            self._free += workers
            self._freed = time.monotonic()
            self._ready.notify()

    def _take(self) -> list[Waiting]:
        """Wait for work, then for company; a fair window, empty when all is over."""
        with self._ready:
            while True:
                self._ready.wait_for(lambda: self._free and (self._queues or self._closed))
                until = max(self._since, self._freed) + self.bounds.wait
                while (left := until - time.monotonic()) > 0 and not self._closed:
                    if self._held >= self.bounds.window:
                        break
                    self._ready.wait(left)
                window = self._fair()
                if window or (self._closed and not self._queues):
                    return window

    def _fair(self) -> list[Waiting]:
        """One item of each client in turn, all of the kind that the first in line asks for.

        Whoever got something goes to the end of the line; whoever asks for another kind stays.
        """
        taken: list[Waiting] = []
        size, turns = 0, deque(self._queues)
        while turns:
            client = turns.popleft()
            one = self._next(client)
            if one is None or (taken and one.kind != taken[0].kind):
                continue
            if taken and size + one.cost > self.bounds.window:
                break
            self._queues[client].popleft()
            self._queues.move_to_end(client)
            turns.append(client)
            taken.append(one)
            size += one.cost
        return taken

    def _next(self, client: Hashable) -> Waiting | None:
        """The next item of a client that somebody waits for; a client without any is forgotten."""
        queue = self._queues[client]
        while queue and queue[0].future.cancelled():
            self._held -= queue.popleft().cost
        if not queue:
            del self._queues[client]
            return None
        return queue[0]

    def _answer(self, run: Run, batch: list[Waiting]) -> None:
        """Answer a batch; where that fails, each item alone, so that one cannot harm others."""
        began = time.perf_counter()
        try:
            answers = batch[0].kind.answers(run, [one.item for one in batch], self.bounds.tokens)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
            else:
                for one in batch:
                    self._answer(run, [one])
            return
        self.observe(len(batch), time.perf_counter() - began)
        for one, answer in zip(batch, answers, strict=True):
            if one.future.set_running_or_notify_cancel():
                one.future.set_result(answer)


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for one in batch:
        if not one.future.done() and one.future.set_running_or_notify_cancel():
            one.future.set_exception(error)


def _characters(item: Any) -> int:
    return len(item) if isinstance(item, str) else sum(map(len, item))
