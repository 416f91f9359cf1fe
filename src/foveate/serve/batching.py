"""Dynamic batching: items from many clients are answered together.

An `Operation` is a computation for a list of items, a `Batcher` the queue of a run
(`foveate.serve.waiting`) and the threads that empty it. `foveate.serve.runs` chooses the run.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np

from foveate.data.batches import sorted_batches
from foveate.decode.engine import Stop
from foveate.documents.memory import Assistance, AssistanceCounts, AssistedRun
from foveate.engine.answers import TextAnswer, Translator
from foveate.serve.common import RequestError
from foveate.serve.waiting import AnyAnswers, Batching, FairQueue, Item, Pair, QueuedItem, cost_of

PAIR_TOKENS = 1024  # per side of a pair at most: attention needs the product of both
ModelType = TypeVar("ModelType")
Links = list[tuple[int, int]]


@dataclass(frozen=True)
class AnswerPlan:
    """A plan for computing items of one operation: their tokens, and the function for a batch.

    ``answer`` gets a batch, and a function that is true once no client waits for it. Items longer
    than ``longest`` tokens are refused, and ``budget`` bounds the tokens of a batch. A batch that
    is ``alone`` is computed while no other is.
    """

    lengths: Sequence[int]
    answer: Callable[[Sequence[Any], Stop], Sequence[Any]]
    budget: int = 1
    longest: float = inf
    alone: bool = False


class Operation(ABC, Generic[ModelType]):
    """A computation for items; items of equal operations are answered in one batch."""

    @abstractmethod
    def plan(self, model: ModelType, items: Sequence[Any], tokens: int) -> AnswerPlan:
        """Return how a model computes the items; ``tokens`` bounds a batch."""


class DirectionAssistance:
    """The assistance of one direction, and the counts of what it has done so far."""

    _lock = threading.Lock()  # several may add to the same counts

    def __init__(self, assistance: Assistance, done: AssistanceCounts | None = None) -> None:
        self.assistance, self.done = assistance, done or AssistanceCounts()

    def translate(self, run: Translator, lines: Sequence[str], **options: Any) -> list[TextAnswer]:
        """Translate as `foveate.run.Run.translate` does, with the assistance."""
        aided = AssistedRun(run, self.assistance)
        translations = aided.translate(lines, **options)
        with self._lock:
            self.done.add(aided.counts)
        return translations


@dataclass(frozen=True)
class TranslateLines(Operation[Translator]):
    """The best hypotheses of lines; ``to`` is the language if a run supports several."""

    to: str | None = None
    num_hypotheses: int = 1
    assistance: DirectionAssistance | None = None

    def plan(self, run: Translator, items: Sequence[str], tokens: int) -> AnswerPlan:
        """Return a plan without a maximum length: the model truncates."""
        lengths = [1 + count for count in run.token_counts(items)]
        budget = max(1, tokens // run.search(num_hypotheses=self.num_hypotheses).width)
        own = self.assistance
        translate = run.translate if own is None else partial(own.translate, run)
        width, to = self.num_hypotheses, self.to

        def answer(lines: Sequence[str], stop: Stop) -> Sequence[TextAnswer]:
            return translate(lines, num_hypotheses=width, batch_tokens=tokens, to=to, stop=stop)

        return AnswerPlan(lengths, answer, budget)


@dataclass(frozen=True)
class PairOperation(Operation[Translator]):
    """Links between the words of pairs by the run's own head.

    Words are counted from 0; the language tag is not counted. Attention grows with both lengths.
    """

    to: str | None = None

    def plan(self, run: Translator, items: Sequence[Pair], tokens: int) -> AnswerPlan:
        """Return a plan in which a pair has as many tokens as its longer side.

        Batches are smaller than those of texts, because the attention of all heads is recorded.
        """
        sources = run.token_counts([source for source, _ in items])
        targets = run.token_counts([target for _, target in items], target=True)
        lengths = [1 + max(both) for both in zip(sources, targets, strict=True)]
        budget = min(tokens, 2 * PAIR_TOKENS)
        answer = lambda pairs, stop: list(map(sorted, run.links(pairs, to=self.to)))  # noqa: E731
        return AnswerPlan(lengths, answer, budget, PAIR_TOKENS, alone=True)


class Batcher(Generic[ModelType]):
    """The queue of one model, and the workers that answer it.

    As soon as a worker is free, a window of items is taken, sorted by length and split into
    batches, at least one for each free worker. The first item waits for others at most
    ``max_delay`` seconds, counted from the end of the last batch if that is later: clients which
    that batch answered may send the next request. No error ends its thread.
    """

    def __init__(
        self,
        model: Callable[[], ModelType],
        bounds: Batching | None = None,
        sample: tuple[Operation[ModelType], Sequence[Item]] | None = None,
    ) -> None:
        """``model`` returns the current one.

        A ``sample`` is answered first: it gives the initial rate for forecasts.
        """
        self.model, self.bounds = model, bounds or Batching()
        # of the items of each batch, and of its seconds
        self.observe: tuple[Callable[[float], None], ...] = ()
        self._sample, self._queue = sample, FairQueue(self.bounds)
        self._ready = threading.Condition()
        self._first_at, self._batch_done_at = 0.0, 0.0
        self._closed = self._aborted = False
        self._thread: threading.Thread | None = None
        self._free = self.bounds.workers  # of the workers, now

    @property
    def characters(self) -> int:
        """The number of characters that wait or are being processed."""
        return self._queue.characters

    @property
    def alive(self) -> bool:
        """True if items are answered: the thread is running, or has not been needed yet."""
        return self._thread is None or self._thread.is_alive()

    def begin(self) -> None:
        """Load the model and measure its rate, before the first request."""
        with self._ready:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
                self._thread.start()

    def check(self, client: Hashable, waited: float) -> None:
        """Raise `RequestError` (429) if a request that has ``waited`` would wait too long."""
        with self._ready:
            self._queue.check(client, waited=waited)

    def submit(
        self,
        client: Hashable,
        operation: Operation[ModelType],
        items: Sequence[Item],
        instead: object = None,
        admitted: bool = False,
    ) -> AnyAnswers:
        """Add the items of a request to the queue, all or none; `_work`, in a thread, takes them.

        Raises `RequestError` (429) if they do not fit, or would wait longer than ``max_wait``
        seconds, unless an ``admitted`` request needs them for its answer. After `close` everything
        is refused (503).
        """
        answers = AnyAnswers(operation, items, instead)
        with self._ready:
            if self._closed:
                raise RequestError(503, "the server is shutting down", retry_after=1)
            first = not self._queue
            self._queue.put(client, answers, admitted)
            self._first_at = time.monotonic() if first else self._first_at
            if first or self.characters >= self.bounds.window:  # else it waits for others
                self._ready.notify()
        self.begin()
        return answers

    def close(self, seconds: float | None = None) -> bool:
        """Accept nothing more and answer what waits; return whether that was done in time.

        What is not answered by then is stopped.
        """
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        self._aborted = True
        return not self._thread.is_alive()

    def _work(self) -> None:
        with ThreadPoolExecutor(self.bounds.workers, "batch") as pool:
            self._measure()
            while window := self._take():
                try:
                    items, model = [item.item for item in window], self.model()
                    with self._ready:
                        self._queue.rate.begin(time.monotonic())
                    plan = window[0].answers.operation.plan(model, items, self.bounds.tokens)
                    batches = self._batches(plan, window)
                except BaseException as error:  # a tokenizer's panic is not an Exception
                    self._release(window, error)
                    continue
                workers = self.bounds.workers if plan.alone else 1
                for batch in batches:
                    self._reserve(workers)
                    pool.submit(self._answer_batch, plan, batch, workers)

    def _measure(self) -> None:
        """Answer the sample to set the first rate; ignore errors, which requests will report."""
        operation, items = self._sample or (None, ())
        with suppress(Exception):
            if operation is not None:
                plan = operation.plan(self.model(), items, self.bounds.tokens)
                plan.answer(items[:1], lambda: self._aborted)  # the first is slower
                began = time.perf_counter()
                plan.answer(items, lambda: self._aborted)
                rate = sum(map(cost_of, items)) / max(1e-6, time.perf_counter() - began)
                with self._ready:
                    self._queue.rate.set(rate * self.bounds.workers)

    def _reserve(self, workers: int) -> None:
        """Wait until ``workers`` workers are free, and reserve them."""
        with self._ready:
            self._ready.wait_for(lambda: self._free >= workers)
            self._free -= workers

    def _release(self, items: Sequence[QueuedItem], error: BaseException) -> None:
        """Remove items from the queue and answer them with an error."""
        with self._ready:
            self._queue.done(items, answered=False)
        for item in items:
            item.answers.fail(item.number, error)

    def _batches(self, plan: AnswerPlan, window: list[QueuedItem]) -> list[list[QueuedItem]]:
        """Return the items of each batch, the shortest first, since they finish earliest."""
        lengths = np.array(plan.lengths)
        share = -(-len(window) // max(1, self._free))
        fitting = np.flatnonzero(lengths <= plan.longest)
        batches = reversed(sorted_batches(lengths[fitting], plan.budget, max_rows=share))
        for n in np.flatnonzero(lengths > plan.longest):
            message = f"{lengths[n]:,} tokens; at most {plan.longest:,.0f}: send shorter texts"
            self._release([window[n]], RequestError(413, message))
        return [[window[fitting[i]] for i in batch] for batch in batches]

    def _answer_batch(self, plan: AnswerPlan, batch: list[QueuedItem], workers: int) -> None:
        items = [item for item in batch if not item.answers.over]
        with self._ready:
            self._queue.done([item for item in batch if item.answers.over], answered=False)
        try:
            if items:
                self._answer(plan, items)
        finally:
            with self._ready:
                self._queue.done(items)
                self._free += workers
                self._batch_done_at = time.monotonic()
                self._ready.notify()

    def _take(self) -> list[QueuedItem]:
        """Wait for items, then for others to join; return a window, empty once it is closed."""
        with self._ready:
            while True:
                self._ready.wait_for(lambda: self._free and (self._queue or self._closed))
                until = max(self._first_at, self._batch_done_at) + self.bounds.max_delay
                while (left := until - time.monotonic()) > 0 and not self._closed:
                    if self.characters >= self.bounds.window:
                        break
                    self._ready.wait(left)
                window = self._queue.window()
                if window or (self._closed and not self._queue):
                    return window

    def _answer(self, plan: AnswerPlan, batch: list[QueuedItem]) -> None:
        """Answer a batch; if that fails, answer each item alone, so no error affects others."""
        began = time.perf_counter()
        requests = list(dict.fromkeys(item.answers for item in batch))

        def stop() -> bool:
            return self._aborted or all(answers.over for answers in requests)

        try:
            answers = plan.answer([item.item for item in batch], stop)
        except BaseException as error:
            ended = (
                RequestError(503, "the server was stopped before it answered")
                if self._aborted
                else None
            )
            for item in batch:
                if ended or len(batch) == 1:
                    item.answers.fail(item.number, ended or error)
                elif not item.answers.over:
                    self._answer(plan, [item])
            return
        measured = len(batch), time.perf_counter() - began
        for observe, value in zip(self.observe, measured, strict=False):
            observe(value)
        for item, answer in zip(batch, answers, strict=True):
            item.answers.put(item.number, answer)
