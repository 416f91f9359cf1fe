"""The queue of a model: everything answered once, in fair turns, bounded, sorted, cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.server.batching import AnswerPlan, Batcher, Batching, Operation
from foveate.server.common import RequestError


class Book:
    """What is asked of: it keeps the batches, and may be held at a gate."""

    def __init__(self, processes: int = 0) -> None:
        self.engine = SimpleNamespace(processes=processes)
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
        alone = self.exclusive and not run.engine.processes
        return AnswerPlan(list(map(len, items)), partial(self.answers, run), tokens, 300, alone)

    def answers(self, run: Any, items: Sequence[str]) -> list[str]:
        with run.lock:
            run.at_work += 1
            run.most = max(run.most, run.at_work)
            assert run.at_work == 1 or run.engine.processes or not self.exclusive
        run.gate.wait(10)
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


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["", "!"]), st.lists(st.text("abc", max_size=9))
        ),
        max_size=12,
    ),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_every_item_is_answered_as_it_would_be_alone(requests, tokens, window, workers) -> None:
    queue = batcher(Book(), max_delay=0.0, tokens=tokens, window=window, workers=workers)
    result = [(m, texts, queue.submit(c, Upper(m), texts)) for c, m, texts in requests]
    for mark, texts, futures in result:
        assert [item.result(10) for item in futures] == [text.upper() + mark for text in texts]
    assert queue.close(10)
    assert queue.characters == 0


def test_a_batch_holds_its_tokens_at_most_and_the_shortest_comes_first() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0, tokens=12)
    first = queue.submit("a", Upper(), ["x"])
    texts = ["aaaaaaaaaaaa", "b", "cccc", "dd", "eeee", "ffff"]
    until(lambda: not queue._queues)
    futures = queue.submit("a", Upper(), texts)
    book.gate.set()
    assert [item.result(10) for item in [*first, *futures]] == ["X", *(t.upper() for t in texts)]
    sizes = [len(batch) * max(map(len, batch)) for batch in book.batches]
    assert max(sizes) <= 12
    longest = [max(map(len, batch)) for batch in book.batches[1:]]
    assert longest == sorted(longest)


def test_one_who_asks_much_does_not_hold_up_one_who_asks_little() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0, window=40)
    first = queue.submit("first", Upper(), ["x"])
    until(lambda: not queue._queues)
    many = queue.submit("greedy", Upper(), ["many text"] * 200)
    few = queue.submit("modest", Upper(), ["one", "two"])
    book.gate.set()
    for future in [*first, *few]:
        future.result(10)
    done = [text for batch in book.batches for text in batch]
    assert done.index("two") <= 10, "the modest one was served in the first two windows"
    assert all(item.result(10) for item in many)


def test_other_kinds_have_their_turn() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0, window=20)
    queue.submit("first", Upper(), ["x"])
    until(lambda: not queue._queues)
    queue.submit("a", Upper(), ["aaaa"] * 50)
    other = queue.submit("b", Upper("?"), ["bbbb"])
    book.gate.set()
    assert other[0].result(10) == "BBBB?"
    assert book.batches.index(["bbbb"]) <= 3


def test_who_finds_no_room_is_told_when_to_come_back() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0, queue=20)
    held = queue.submit("a", Upper(), ["x" * 100])
    with pytest.raises(RequestError) as refused:
        queue.submit("b", Upper(), ["y"])
    assert refused.value.status == 429
    assert (refused.value.retry_after or 0) >= 1
    book.gate.set()
    assert held[0].result(10) == "X" * 100
    until(lambda: queue.characters == 0)
    assert queue.submit("b", Upper(), ["y"])[0].result(10) == "Y"


def test_the_queue_holds_as_many_characters_as_it_may() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0, queue=20)  # an item of n characters takes n + 1 of them
    queue.submit("a", Upper(), ["x" * 9])
    queue.submit("a", Upper(), ["y" * 9])
    with pytest.raises(RequestError):
        queue.submit("a", Upper(), [""])
    book.gate.set()
    assert queue.close(10)


def test_what_nobody_waits_for_is_not_done() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0)
    queue.submit("a", Upper(), ["first"])
    until(lambda: not queue._queues)
    dropped = queue.submit("a", Upper(), ["dropped"] * 5)
    saved = queue.submit("a", Upper(), ["kept"])
    assert all(item.cancel() for item in dropped)
    book.gate.set()
    assert saved[0].result(10) == "KEPT"
    assert book.batches == [["first"], ["kept"]]
    with pytest.raises(CancelledError):
        dropped[0].result(1)
    until(lambda: queue.characters == 0)


def test_one_bad_item_harms_no_other() -> None:
    queue = batcher(Book(), max_delay=0.05)
    futures = queue.submit("a", Upper(), ["good", "bad", "fine"])
    assert futures[0].result(10) == "GOOD" and futures[2].result(10) == "FINE"
    with pytest.raises(ValueError, match="bad"):
        futures[1].result(10)


@pytest.mark.parametrize("text", ["panic", "panicking lengths"])
def test_a_panic_ends_neither_the_thread_nor_the_account(text: str) -> None:
    queue = batcher(Book(), max_delay=0.0, workers=2)
    [future] = queue.submit("a", Upper(), [text])
    with pytest.raises(RuntimeError, match="Panic"):
        future.result(10)
    until(lambda: queue.characters == 0)
    assert queue.alive and queue.submit("b", Upper(), ["ok"])[0].result(10) == "OK"
    assert queue.close(10) and not queue.alive


def test_an_item_that_is_too_long_is_refused_and_harms_no_other() -> None:
    queue = batcher(Book(), max_delay=0.05)
    futures = queue.submit("a", Upper(), ["x" * 301, "fine", "y" * 300])
    with pytest.raises(RequestError, match="301 tokens; at most 300") as refused:
        futures[0].result(10)
    assert refused.value.status == 413
    assert [future.result(10) for future in futures[1:]] == ["FINE", "Y" * 300]
    until(lambda: queue.characters == 0)


def test_whoever_would_wait_too_long_is_refused_but_not_the_client_whose_turn_comes_soon() -> None:
    book = Book()
    queue = batcher(book, max_delay=0.0, max_wait=0.3, window=10)
    held = queue.submit("greedy", Upper(), ["x" * 9] * 500)  # half a second of work at least
    time.sleep(0.4)
    with pytest.raises(RequestError, match="seconds already") as refused:
        queue.submit("greedy", Upper(), ["y"])
    assert refused.value.status == 429 and (refused.value.retry_after or 0) > 0.3
    few = queue.submit("modest", Upper(), ["one", "two"])
    book.gate.clear()
    time.sleep(0.4)
    with pytest.raises(RequestError, match="seconds already"):  # no client gets a turn
        queue.submit("third", Upper(), ["y"])
    book.gate.set()
    assert [future.result(10) for future in few] == ["ONE", "TWO"]
    assert all(future.result(10) for future in held)


def test_the_lonely_wait_for_company_but_not_long() -> None:
    book = Book()
    queue = batcher(book, max_delay=0.2)
    began = time.monotonic()
    item = queue.submit("a", Upper(), ["one"])
    time.sleep(0.05)
    two = queue.submit("b", Upper(), ["two"])
    assert item[0].result(10) and two[0].result(10)
    assert 0.15 < time.monotonic() - began < 2
    assert book.batches == [["one", "two"]]


def test_as_many_batches_at_a_time_as_there_are_workers() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, workers=2)
    futures = queue.submit("a", Upper(), ["aaaa", "bbbb", "cc", "dd"])
    until(lambda: book.at_work == 2)
    more = queue.submit("b", Upper(), ["late"])
    book.gate.set()
    assert [item.result(10) for item in [*futures, *more]] == ["AAAA", "BBBB", "CC", "DD", "LATE"]
    assert book.most == 2


def test_nobody_needs_to_be_alone_with_a_run_that_others_look_into() -> None:
    book = Book(processes=1)
    book.gate.clear()
    queue = batcher(book, workers=2)
    futures = queue.submit("a", Upper(exclusive=True), ["aaaa", "bbbb"])
    until(lambda: book.at_work == 2)
    book.gate.set()
    assert [item.result(10) for item in futures] == ["AAAA", "BBBB"]


def test_who_must_be_alone_is() -> None:
    book = Book()
    queue = batcher(book, workers=3, max_delay=0.0, window=4)
    requested = [
        queue.submit(str(n), Upper(exclusive=n % 3 == 0), ["aaaa", "bbbb", "cccc"])
        for n in range(9)
    ]
    assert all(item.result(10).isupper() for futures in requested for item in futures)
    assert book.most > 1
    assert queue.close(10)


def test_closing_answers_what_was_accepted_and_takes_nothing_more() -> None:
    book = Book()
    book.gate.clear()
    queue = batcher(book, max_delay=0.0)
    futures = queue.submit("a", Upper(), ["x", "y", "z"])
    threading.Timer(0.1, book.gate.set).start()
    assert queue.close(10)
    assert [item.result(0) for item in futures] == ["X", "Y", "Z"]
    with pytest.raises(RequestError) as refused:
        queue.submit("a", Upper(), ["late"])
    assert refused.value.status == 503


def until(true: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)
