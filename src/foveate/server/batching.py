"""Dynamic batching: items of many clients are answered together, one item of each client in turn.

An `Operation` is what can be computed for a list of items, a `Batcher` the queue of a run and the
threads that empty it. Which run answers is up to `foveate.server.runs`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import Field

from foveate.answers import PairScore, TextAnswer, Translator
from foveate.config import Config
from foveate.data.batches import sorted_batches
from foveate.documents.memory import Assistance, AssistanceCounts, AssistedRun
from foveate.server.common import RequestError

PAIR_TOKENS = 1024  # of a side of a pair at most: its attention takes the product of both
DECAY = 0.8  # weight of the rate so far, when the rate of another batch is averaged in
ModelType = TypeVar("ModelType")
Pair = tuple[str, str]
Item = str | Pair
Links = list[tuple[int, int]]


class Batching(Config):
    """How requests share batches."""

    max_delay: float = Field(0.005, ge=0)  # seconds that an item waits for others at most
    tokens: int = Field(8192, ge=1)  # of a batch: source tokens × hypotheses, padding included
    window: int = Field(16_384, ge=1)  # characters that are taken together and sorted by length
    queue: int = Field(400_000, ge=1)  # characters that may wait
    max_wait: float = Field(5.0, gt=0, allow_inf_nan=True)  # seconds until others are refused
    workers: int = Field(1, ge=1)  # batches that are computed at a time, one thread each


# ------------------------------------------------------------------------------ operations


@dataclass(frozen=True)
class AnswerPlan:
    """How items of one operation are computed: their tokens, and what answers a batch of them.

    Items of more than ``longest`` tokens are refused, and ``budget`` bounds the tokens of a batch.
    While a batch that is ``alone`` is computed no other is.
    """

    lengths: Sequence[int]
    answer: Callable[[Sequence[Any]], Sequence[Any]]
    budget: int = 1
    longest: float = inf
    alone: bool = False


class Operation(ABC, Generic[ModelType]):
    """What is computed for items; items of equal operations are answered in one batch."""

    @abstractmethod
    def plan(self, model: ModelType, items: Sequence[Any], tokens: int) -> AnswerPlan:
        """How the items are computed by a model; ``tokens`` are those of a batch."""


class DirectionAssistance:
    """The assistance of one direction, and the counts of what they have done so far."""

    _lock = threading.Lock()  # several may count into the same

    def __init__(self, assistance: Assistance, done: AssistanceCounts | None = None) -> None:
        self.assistance, self.done = assistance, done or AssistanceCounts()

    def translate(self, run: Translator, lines: Sequence[str], **options: Any) -> list[TextAnswer]:
        """As `foveate.run.Run.translate`, with the assistance."""
        aided = AssistedRun(run, self.assistance)
        translations = aided.translate(lines, **options)
        with self._lock:
            self.done.add(aided.counts)
        return translations


@dataclass(frozen=True)
class TranslateLines(Operation[Translator]):
    """Best hypotheses of lines; ``to`` names the language where a run knows several."""

    to: str | None = None
    num_hypotheses: int = 1
    assistance: DirectionAssistance | None = None

    def plan(self, run: Translator, items: Sequence[str], tokens: int) -> AnswerPlan:
        """The model cuts what is too long; copying unknown words records its attention."""
        lengths = [1 + count for count in run.token_counts(items)]
        budget = max(1, tokens // run.width(self.num_hypotheses))
        own = self.assistance
        translate = run.translate if own is None else partial(own.translate, run)
        hypotheses = self.num_hypotheses
        answer = partial(translate, num_hypotheses=hypotheses, batch_tokens=tokens, to=self.to)
        copies = own is not None and own.assistance.copies_unknown
        alone = copies and not run.engine.processes
        return AnswerPlan(lengths, answer, budget, alone=alone)


@dataclass(frozen=True)
class PairOperation(Operation[Translator]):
    """What is computed for pairs (source, target), whose attention takes the product of both."""

    to: str | None = None

    def plan(self, run: Translator, items: Sequence[Pair], tokens: int) -> AnswerPlan:
        """A pair has as many tokens as its longer side."""
        sources = run.token_counts([source for source, _ in items])
        targets = run.token_counts([target for _, target in items], target=True)
        lengths = [1 + max(both) for both in zip(sources, targets, strict=True)]
        return AnswerPlan(lengths, partial(self.answers, run), tokens, PAIR_TOKENS)

    @abstractmethod
    def answers(self, run: Translator, pairs: Sequence[Pair]) -> Sequence[Any]:
        """An answer for each pair."""

    def addressed(self, run: Translator, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs with their sources after the tag of the language."""
        sources = run.addressed([source for source, _ in pairs], self.to)
        return list(zip(sources, [target for _, target in pairs], strict=True))


class ScorePairs(PairOperation):
    """log p(target | source) of pairs."""

    def answers(self, run: Translator, pairs: Sequence[Pair]) -> list[PairScore]:
        return run.score(self.addressed(run, pairs))


class AlignPairs(PairOperation):
    """Links between the words of pairs, by the head that the run has stored.

    Words are counted from 0; the tag of a language is not counted.
    """

    def plan(self, run: Translator, items: Sequence[Pair], tokens: int) -> AnswerPlan:
        """The attention of all heads is recorded, and kept for a batch."""
        plan = super().plan(run, items, min(tokens, 2 * PAIR_TOKENS))
        return replace(plan, alone=not run.engine.processes)

    def answers(self, run: Translator, pairs: Sequence[Pair]) -> list[Links]:
        return list(map(sorted, run.links(self.addressed(run, pairs))))


# ------------------------------------------------------------------------------ the queue


@dataclass(eq=False)
class QueuedItem:
    """One item in the queue; it is skipped once its future is cancelled."""

    operation: Operation[Any]
    item: Item
    cost: int
    future: Future[Any] = field(default_factory=Future)
    at: float = field(default_factory=time.monotonic)

    def fail(self, error: BaseException) -> None:
        """Give the error to those who wait; of what is no `Exception`, such as a panic, a copy.

        An event loop would end with the latter.
        """
        if not isinstance(error, Exception):
            error = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


@dataclass(eq=False)
class ClientQueue:
    """The items of one client that wait, and when it took its place behind the other clients."""

    items: deque[QueuedItem] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)


class Batcher(Generic[ModelType]):
    """The queue of one model, bounded in characters and in time, and the workers that answer it.

    As soon as a worker is free a *window* of items is taken, one from each client in turn, sorted
    by length and cut into batches, at least one for each free worker. The first item waits for
    others at most ``max_delay`` seconds, counted from the end of the last batch if that is later:
    clients which that batch answered may send the next request. No error ends its thread.
    """

    def __init__(
        self,
        model: Callable[[], ModelType],
        bounds: Batching | None = None,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        """``model`` gives the current one; ``observe`` gets items and seconds of each batch."""
        self.model, self.bounds, self.observe = model, bounds or Batching(), observe
        self._queues = OrderedDict[Hashable, ClientQueue]()  # by client, the next one first
        self._ready = threading.Condition()
        self._characters, self._rate = 0, 0.0
        self._first_at, self._batch_done_at = 0.0, 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._free = self.bounds.workers  # of them, now

    @property
    def characters(self) -> int:
        """Characters that wait or are being worked on."""
        return self._characters

    @property
    def alive(self) -> bool:
        """Whether items are answered: its thread lives, or has not been needed yet."""
        return self._thread is None or self._thread.is_alive()

    def submit(
        self, client: Hashable, operation: Operation[ModelType], items: Sequence[Item]
    ) -> list[Future[Any]]:
        """Put items into the queue, all of them or none; cancel a future to give its item up.

        Raises `RequestError` (429) where they do not fit, unless the queue is empty, or would wait
        longer than ``max_wait`` seconds. After `close` everything is refused (503).
        """
        queued = [QueuedItem(operation, item, 1 + _characters(item)) for item in items]
        cost = sum(item.cost for item in queued)
        with self._ready:
            if self._closed:
                raise RequestError(503, "the server is about to end", retry_after=1)
            self._check_room(client, cost)
            first = not self._queues
            if first:
                self._first_at = time.monotonic()
            if queued:
                self._queues.setdefault(client, ClientQueue()).items.extend(queued)
            self._characters += cost
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
                self._thread.start()
            if first or self._characters >= self.bounds.window:  # else it waits for others
                self._ready.notify()
        return [item.future for item in queued]

    def close(self, seconds: float | None = None) -> bool:
        """Accept nothing more and answer what waits; whether that was done in the time."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _check_room(self, client: Hashable, cost: int) -> None:
        """Raise `RequestError` (429) for items that do not fit, or would wait for too long.

        What waits now tells how long: the client's own first item, and the client whose turn is
        next, since its last turn.
        """
        now = time.monotonic()
        if self._characters + cost > self.bounds.queue:
            self._drop_cancelled()
        if self._characters and self._characters + cost > self.bounds.queue:
            wait = 0.5 * self._characters / self._rate if self._rate else 1.0
            message = "the queue is full: come back in a moment"
            raise RequestError(429, message, retry_after=min(60.0, max(1.0, wait)))
        if client in self._queues and (own := self._next(client)) is not None:
            self._check_wait(now - own.at)
        if turn := next(iter(self._queues), None):
            self._check_wait(now - self._queues[turn].since)

    def _drop_cancelled(self) -> None:
        """Take cancelled items out of the queue, in which they have a place until their turn."""
        for client, queue in list(self._queues.items()):
            gone = {item for item in queue.items if item.future.cancelled()}
            self._characters -= sum(item.cost for item in gone)
            queue.items = deque(item for item in queue.items if item not in gone)
            if not queue.items:
                del self._queues[client]

    def _check_wait(self, wait: float) -> None:
        if wait > self.bounds.max_wait:
            message = f"requests wait for {wait:.0f} seconds already: come back later"
            raise RequestError(429, message, retry_after=min(60.0, wait))

    # ---- in the thread

    def _work(self) -> None:
        with ThreadPoolExecutor(self.bounds.workers, "batch") as pool:
            while window := self._take():
                try:
                    items = [item.item for item in window]
                    plan = window[0].operation.plan(self.model(), items, self.bounds.tokens)
                    batches = self._batches(plan, window)
                except BaseException as error:  # a tokenizer's panic is no Exception
                    self._release(window, error)
                    continue
                workers = self.bounds.workers if plan.alone else 1
                for batch in batches:
                    self._reserve(workers)
                    pool.submit(self._answer_batch, plan, batch, workers)

    def _reserve(self, workers: int) -> None:
        """Wait until so many workers are free, and take them."""
        with self._ready:
            self._ready.wait_for(lambda: self._free >= workers)
            self._free -= workers

    def _release(self, items: Sequence[QueuedItem], error: BaseException) -> None:
        """These items wait no more; their answer is the error."""
        with self._ready:
            self._characters -= sum(item.cost for item in items)
        for item in items:
            item.fail(error)

    def _batches(self, plan: AnswerPlan, window: list[QueuedItem]) -> list[list[QueuedItem]]:
        """The items of each batch: the shortest first, for they are done soonest."""
        lengths = np.array(plan.lengths)
        share = -(-len(window) // max(1, self._free))
        fitting = np.flatnonzero(lengths <= plan.longest)
        batches = reversed(sorted_batches(lengths[fitting], plan.budget, max_rows=share))
        for n in np.flatnonzero(lengths > plan.longest):
            message = f"{lengths[n]:,} tokens; at most {plan.longest:,.0f}: send shorter texts"
            self._release([window[n]], RequestError(413, message))
        return [[window[fitting[i]] for i in batch] for batch in batches]

    def _answer_batch(self, plan: AnswerPlan, batch: list[QueuedItem], workers: int) -> None:
        began, cost = time.perf_counter(), sum(item.cost for item in batch)
        try:
            items = [item for item in batch if not item.future.cancelled()]
            if items:
                self._answer(plan, items)
        except BaseException as error:
            for item in batch:
                item.fail(error)
        finally:
            rate = self.bounds.workers * cost / max(1e-6, time.perf_counter() - began)
            with self._ready:
                self._characters -= cost
                self._rate = DECAY * (self._rate or rate) + (1 - DECAY) * rate
                self._free += workers
                self._batch_done_at = time.monotonic()
                self._ready.notify()

    def _take(self) -> list[QueuedItem]:
        """Wait for items, then for others to join; a window, empty once the queue is closed."""
        with self._ready:
            while True:
                self._ready.wait_for(lambda: self._free and (self._queues or self._closed))
                until = max(self._first_at, self._batch_done_at) + self.bounds.max_delay
                while (left := until - time.monotonic()) > 0 and not self._closed:
                    if self._characters >= self.bounds.window:
                        break
                    self._ready.wait(left)
                window = self._window()
                if window or (self._closed and not self._queues):
                    return window

    def _window(self) -> list[QueuedItem]:
        """One item of each client in turn, all of the operation of the first one.

        A client whose item is taken goes to the end; an item of another operation stays.
        """
        taken: list[QueuedItem] = []
        size, turns = 0, deque(self._queues)
        while turns:
            client = turns.popleft()
            item = self._next(client)
            if item is None or (taken and item.operation != taken[0].operation):
                continue
            if taken and size + item.cost > self.bounds.window:
                break
            self._queues[client].items.popleft()
            self._queues[client].since = time.monotonic()
            self._queues.move_to_end(client)
            turns.append(client)
            taken.append(item)
            size += item.cost
        return taken

    def _next(self, client: Hashable) -> QueuedItem | None:
        """The next item of a client that is not cancelled; a client without any is removed."""
        queue = self._queues[client]
        while queue.items and queue.items[0].future.cancelled():
            self._characters -= queue.items.popleft().cost
        if not queue.items:
            del self._queues[client]
            return None
        return queue.items[0]

    def _answer(self, plan: AnswerPlan, batch: list[QueuedItem]) -> None:
        """Answer a batch; where that fails, each item alone, so that no error affects others."""
        began = time.perf_counter()
        try:
            answers = plan.answer([item.item for item in batch])
        except BaseException as error:
            if len(batch) == 1:
                batch[0].fail(error)
            else:
                for item in batch:
                    self._answer(plan, [item])
            return
        self.observe(len(batch), time.perf_counter() - began)
        for item, answer in zip(batch, answers, strict=True):
            if item.future.set_running_or_notify_cancel():
                item.future.set_result(answer)


def _characters(item: Item) -> int:
    return len(item) if isinstance(item, str) else sum(map(len, item))
