"""The queue of a model: everything answered once, in fair turns, bounded, sorted, cancelled."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.decode.engine import SearchStopped, Stop
from foveate.serve.batching import AnswerPlan, Batcher, Operation
from foveate.serve.common import RequestError
from foveate.serve.waiting import (
    LEAST_WINDOW,
    TURN,
    WINDOW_SECONDS,
    Answers,
    Batching,
    FairQueue,
    QueuedItem,
)
from serve_tools import until


class Book:
    """What is asked of: it keeps the batches, and may be held at a gate."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.at_work = 0  # of its askers, now
        self.most = 0
        self.lock = threading.Lock()


class Panic(BaseException):
    """As the panic of a tokenizer written in Rust: no `Exception`."""


@dataclass(frozen=True)
class Upper(Operation[Any]):
    """Capitals of a text; of "bad" there are none, and "panic" is no `Exception`."""

    mark: str = ""
    exclusive: bool = False

    def plan(self, run: Any, items: Sequence[str], tokens: int) -> AnswerPlan:
        if "panicking lengths" in items:
            raise Panic
        lengths, answer = list(map(len, items)), partial(self.answers, run)
        return AnswerPlan(lengths, answer, tokens, 300, self.exclusive)

    def answers(self, run: Any, items: Sequence[str], stop: Stop) -> list[str]:
        with run.lock:
            run.at_work += 1
            run.most = max(run.most, run.at_work)
            assert run.at_work == 1 or not self.exclusive
        while not run.gate.wait(0.01):
            if stop():
                run.at_work -= 1
                raise SearchStopped("stopped")
        time.sleep(0.001)
        with run.lock:
            run.at_work -= 1
        if "bad" in items:
            raise ValueError("bad")
        if "panic" in items:
            raise Panic
        run.batches.append(list(items))
        return [item.upper() + self.mark for item in items]


def batcher(book: Book, **bounds: Any) -> Batcher[Book]:
    return Batcher(lambda: book, Batching(**bounds))


def closed(**bounds: Any) -> tuple[Book, Batcher[Book]]:
    """A run whose gate is closed, and its queue."""
    book = Book()
    book.gate.clear()
    return book, batcher(book, **{"max_delay": 0.0} | bounds)


def occupied(**bounds: Any) -> tuple[Book, Batcher[Book]]:
    """The same, at work on a text that waits at the gate."""
    book, queue = closed(**bounds)
    queue.submit("first", Upper(), ["x"])
    until(lambda: not queue._queue)
    return book, queue


ITEMS = st.lists(st.text("abc", max_size=9))
REQUESTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "!"]), ITEMS), max_size=12)


@settings(max_examples=25)
@given(REQUESTS, st.integers(1, 20), st.integers(1, 30), st.integers(1, 3))
def test_every_item_is_answered_as_it_would_be_alone(requests, tokens, window, workers) -> None:
    queue = batcher(Book(), max_delay=0.0, tokens=tokens, window=window, workers=workers)
    result = [(m, texts, queue.submit(c, Upper(m), texts)) for c, m, texts in requests]
    for mark, texts, answers in result:
        assert answers.future.result(10) == [text.upper() + mark for text in texts]
    assert queue.close(10)
    assert queue.characters == 0


def test_a_batch_holds_its_tokens_at_most_and_the_shortest_comes_first() -> None:
    book, queue = occupied(tokens=12)
    texts = ["aaaaaaaaaaaa", "b", "cccc", "dd", "eeee", "ffff"]
    answers = queue.submit("a", Upper(), texts)
    book.gate.set()
    assert answers.future.result(10) == [t.upper() for t in texts]
    assert book.batches[0] == ["x"]
    longest = [max(map(len, batch)) for batch in book.batches]
    assert max(len(b) * most for b, most in zip(book.batches, longest, strict=True)) <= 12
    assert longest[1:] == sorted(longest[1:])


def test_a_large_request_does_not_hold_up_a_small_one() -> None:
    book, queue = occupied(window=40)
    many = queue.submit("greedy", Upper(), ["many text"] * 200)
    few = queue.submit("modest", Upper(), ["one", "two"])
    book.gate.set()
    few.future.result(10)
    done = [text for batch in book.batches for text in batch]
    assert done.index("two") <= 10, "the modest one was served in the first two windows"
    assert all(many.future.result(10))


def test_other_kinds_have_their_turn() -> None:
    book, queue = occupied(window=20)
    queue.submit("a", Upper(), ["aaaa"] * 50)
    other = queue.submit("b", Upper("?"), ["bbbb"])
    book.gate.set()
    assert other.future.result(10) == ["BBBB?"]
    assert book.batches.index(["bbbb"]) <= 3


def test_a_full_queue_refuses_and_says_when_to_retry() -> None:
    book, queue = closed(queue=20)  # an item of n characters takes n + 1 of them
    held = [queue.submit("a", Upper(), [letter * 9]) for letter in "xy"]
    with pytest.raises(RequestError) as refused:
        queue.submit("b", Upper(), [""])
    assert refused.value.status == 429 and (refused.value.retry_after or 0) >= 1
    book.gate.set()
    assert [each.future.result(10) for each in held] == [["X" * 9], ["Y" * 9]]
    until(lambda: queue.characters == 0)
    assert queue.submit("b", Upper(), ["y" * 100]).future.result(10) == ["Y" * 100], "what is alone"


def test_an_item_that_is_bad_or_too_long_harms_no_other() -> None:
    queue = batcher(Book(), max_delay=0.05)
    texts = ["good"], ["bad"], ["x" * 301], ["ok", "y" * 300]
    good, bad, long, rest = (queue.submit("a", Upper(), each) for each in texts)
    several = queue.submit("a", Upper(), ["good", "bad", "fine"], instead="-")
    assert good.future.result(10) == ["GOOD"]
    assert several.future.result(10) == ["GOOD", "-", "FINE"]
    with pytest.raises(ValueError, match="bad"):
        bad.future.result(10)
    with pytest.raises(RequestError, match="301 tokens; at most 300") as refused:
        long.future.result(10)
    assert refused.value.status == 413
    assert rest.future.result(10) == ["OK", "Y" * 300]
    until(lambda: queue.characters == 0)


@pytest.mark.parametrize("text", ["panic", "panicking lengths"])
def test_a_panic_ends_neither_the_thread_nor_the_account(text: str) -> None:
    queue = batcher(Book(), max_delay=0.0, workers=2)
    answers = queue.submit("a", Upper(), [text])
    with pytest.raises(RuntimeError, match="Panic"):
        answers.future.result(10)
    until(lambda: queue.characters == 0)
    assert queue.alive and queue.submit("b", Upper(), ["ok"]).future.result(10) == ["OK"]
    assert queue.close(10) and not queue.alive


class Simulated:
    """A queue whose clock is ours, and workers of so many characters a second each."""

    def __init__(self, rate: float, workers: int = 1, pause: float = 0.0, **bounds: Any) -> None:
        """``pause``: seconds from a window to the next, for the program and other threads."""
        self.now, self.rate, self.pause = 0.0, rate, pause
        self.queue = FairQueue(Batching(**bounds), lambda: self.now)
        self.working: list[tuple[float, list[QueuedItem]]] = []
        self.free, self.waits, self.refused = workers, list[float](), list[float]()
        self.began: dict[Answers[Any], float] = {}

    def send(self, client: str, texts: Sequence[str], **how: Any) -> Answers[Any] | None:
        """A request that comes now; None where it is refused."""
        answers = Answers[Any](Upper(), texts)
        try:
            self.queue.put(client, answers, **how)
        except RequestError as error:
            assert error.status == 429
            self.refused.append(error.retry_after or 0)
            return None
        self.began[answers] = self.now
        return answers

    def run(self, until: float) -> None:
        """Work until then."""
        while True:
            while self.free and (window := self.queue.window()):
                self.free -= 1
                self.queue.rate.begin(self.now)
                seconds = sum(1 + len(item.item) for item in window) / self.rate
                self.working.append((self.now + seconds, window))
            due = min(self.working, key=lambda each: each[0], default=(inf, []))
            self.now = min(until, due[0])
            if not self.working or due[0] > until:
                return
            self.working.remove(due)
            if due[1] and self.pause:
                self.working.append((self.now + self.pause, []))
            else:
                self.free += 1
            if due[1]:
                self.queue.done(due[1])
            for item in due[1]:
                item.answers.put(item.number, "")
                if item.answers.over:
                    self.waits.append(self.now - self.began.pop(item.answers))


@pytest.mark.parametrize("load", [2, 4])
@pytest.mark.parametrize("clients", [1, 40, 10_000])
@pytest.mark.parametrize(
    ("rate", "workers", "pause"), [(500, 1, 0), (3_000, 1, 0), (1_000, 3, 0), (5_000, 1, 0.6)]
)
def test_no_wait_exceeds_the_forecast_under_load(load, clients, rate, workers, pause) -> None:
    """Requests of Poisson, 1 to 400 characters in up to 4 sentences, for a minute."""
    random, end = Random(load), 60.0
    model = Simulated(rate, workers, pause, max_wait=5.0, queue=10**9)
    rate *= 1 - pause / WINDOW_SECONDS  # pauses count, for those who wait
    sent = 0
    while model.now < end:
        texts = ["x" * random.randint(1, 100) for _ in range(random.randint(1, 4))]
        model.send(str(random.randrange(clients)), texts)
        sent += 1
        model.run(model.now + random.expovariate(load * rate * workers / 128.5))
    model.run(inf)
    size, busy = WINDOW_SECONDS + LEAST_WINDOW / rate, end * rate * workers / 128.5
    assert max(model.waits) <= 5.0 + 2 * size, "the window before it, and its own"
    assert len(model.waits) >= 0.8 * busy, "the workers always have something to do"
    assert len(model.refused) >= 0.7 * (1 - 1 / load) * sent
    assert all(1 <= retry <= 60 for retry in model.refused)


def test_a_file_of_one_client_does_not_keep_others_out() -> None:
    model = Simulated(1000, max_wait=5.0)
    file = model.send("greedy", ["x" * 99] * 1000)  # 100 seconds of work
    model.run(1.0)
    assert model.send("greedy", ["y"]) is None and 60 >= model.refused[0] > 5
    for _ in range(20):
        assert (few := model.send("modest", ["one", "two"])) is not None
        model.run(model.now + 5)
        assert few.over, "answered within five seconds"
    model.run(inf)
    assert file is not None and file.over


@pytest.mark.parametrize("size", [1, TURN, 3 * TURN])
@pytest.mark.parametrize("clients", [1, 50])
def test_what_an_answer_still_needs_is_before_what_is_new(size: int, clients: int) -> None:
    """A text with markup waits for its translation, then for links: not for two lines."""
    model = Simulated(1000, max_wait=5.0)
    for number in range(100):
        model.send(str(number % clients), ["x" * 99] * 10)
        model.run(model.now + 0.1)
    assert model.refused and model.queue.wait("new") > 3
    began, links = model.now, model.send("0", ["y" * 99] * (size // 100 + 1), admitted=True)
    while not links.values:
        model.run(model.now + 0.1)
        model.send("1", ["x" * 99])
    assert model.now - began < 3, "the window before it, and its own"
    model.run(inf)
    assert links.over and not model.queue.characters


def test_a_rate_that_falls_is_noticed_before_a_batch_is_done() -> None:
    model = Simulated(10_000, max_wait=5.0)
    for _ in range(10):
        model.send("a", ["x" * 99] * 10)
        model.run(model.now + 0.2)
    model.rate = 10  # a text of a hundred characters takes ten seconds now
    model.send("a", ["x" * 99])
    model.run(model.now + 4)
    assert model.send("b", ["y"]) is not None
    model.run(model.now + 2)
    assert model.send("b", ["y"]) is None


def test_what_is_cancelled_is_stopped_or_not_begun_and_counted_no_more() -> None:
    book, queue = closed()
    begun, waiting = (queue.submit("a", Upper(mark), ["x" * 100]) for mark in "?!")
    until(lambda: book.at_work == 1)
    saved = queue.submit("a", Upper(), ["kept"])
    assert begun.future.cancel() and waiting.future.cancel()
    with pytest.raises(CancelledError):
        waiting.future.result(1)
    until(lambda: queue.characters <= 5, 2)
    book.gate.set()
    assert saved.future.result(10) == ["KEPT"]
    until(lambda: queue.characters == 0)
    assert book.batches == [["kept"]]


def test_the_end_answers_what_was_accepted_and_stops_what_takes_too_long() -> None:
    book, queue = closed()
    answers = queue.submit("a", Upper(), ["x", "y", "z"])
    threading.Timer(0.1, book.gate.set).start()
    assert queue.close(10) and answers.future.result(0) == ["X", "Y", "Z"]
    with pytest.raises(RequestError) as refused:
        queue.submit("a", Upper(), ["late"])
    assert refused.value.status == 503
    _, queue = closed()
    held = [queue.submit("a", Upper(mark), ["x"]) for mark in "?!"]
    assert not queue.close(0.1)
    for answers in held:
        with pytest.raises(RequestError, match="was stopped") as refused:
            answers.future.result(2)
        assert refused.value.status == 503
    assert queue.close(2)


def test_a_sample_tells_the_first_rate() -> None:
    queue = Batcher(Book, Batching(), sample=(Upper(), ["x" * 99] * 10))
    queue.begin()
    until(lambda: queue._queue.rate.value(0) > 10_000)


def test_the_lonely_wait_for_company_but_not_long() -> None:
    book, began = Book(), time.monotonic()
    queue = batcher(book, max_delay=0.2)
    one = queue.submit("a", Upper(), ["one"])
    time.sleep(0.05)
    two = queue.submit("b", Upper(), ["two"])
    assert one.future.result(10) and two.future.result(10)
    assert 0.15 < time.monotonic() - began < 2
    assert book.batches == [["one", "two"]]


def test_as_many_batches_at_a_time_as_there_are_workers() -> None:
    book, queue = closed(workers=2)
    answers = queue.submit("a", Upper(), ["aaaa", "bbbb", "cc", "dd"])
    until(lambda: book.at_work == 2)
    more = queue.submit("b", Upper(), ["late"])
    book.gate.set()
    assert answers.future.result(10) == ["AAAA", "BBBB", "CC", "DD"]
    assert more.future.result(10) == ["LATE"]
    assert book.most == 2


def test_exclusive_batches_run_alone() -> None:
    book, queue = closed(workers=3, window=4)
    kinds = (Upper(exclusive=n % 3 == 2) for n in range(9))
    requested = [queue.submit(str(n), k, ["aaaa", "bbbb", "cccc"]) for n, k in enumerate(kinds)]
    until(lambda: book.most > 1)
    book.gate.set()
    assert all(text.isupper() for answers in requested for text in answers.future.result(10))
    assert queue.close(10)
