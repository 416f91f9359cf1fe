"""State of the studio: its runs, the queue of computations, the most recently drawn arrays."""

import asyncio
import gzip
import hashlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeVar

from starlette.requests import ClientDisconnect

from foveate.config import PACKAGED, ConfigError
from foveate.look.draw.parts import DrawingPart, Numbers, P, changed
from foveate.look.edits import edit, silenced
from foveate.look.hooks import hook_points
from foveate.look.records import block_of, suffixes
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.run import Run, load
from foveate.run.answering import unknown_words
from foveate.serve.batching import AnswerPlan, Batcher, Operation
from foveate.serve.common import ByteStore, RequestError, not_found
from foveate.serve.runs import RunStore, StoredRun
from foveate.serve.waiting import Batching
from foveate.studio import answers
from foveate.studio.answers import Send, opened
from foveate.studio.evaluation import Evaluated, evaluate
from foveate.studio.schemas import AnswerRequest, Drawings, SilencedHead

T = TypeVar("T")
CONFIG = "config.toml"
INLINE = 64 * 2**10  # bytes up to which an array is part of the JSON itself
POLL = 0.1  # seconds between two checks whether a client is still connected
ARRAYS = 256 * 2**20  # bytes of all stored arrays, gzipped


class StudioRuns(RunStore[StoredRun[Run], Run]):
    """The runs in some folders, including later ones; without folders, those shipped.

    If no run has a name, the shipped run with that name is used.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raise ``ConfigError`` for a path that is not a run and contains none."""
        super().__init__(loader=load)
        self._paths = paths or [PACKAGED]
        self._packaged: dict[str, StoredRun[Run]] = {
            path.name: StoredRun(path.name, path) for path in _run_folders(PACKAGED)
        }
        for path in paths:
            if next(_run_folders(path), None) is None:
                raise ConfigError(
                    f"{path} is not a run and contains none: no {CONFIG} in it or below it"
                )

    def names(self) -> list[str]:
        """Return the names of all runs; existing names do not change."""
        with self._lock:
            known = {stored.folder for stored in self.runs.values()}
            for folder in (folder for path in self._paths for folder in _run_folders(path)):
                if folder not in known:
                    known.add(folder)
                    name = self.new_name(folder)
                    self.runs[name] = StoredRun(name, folder)
            return list(self.runs)

    def stored(self, name: str) -> StoredRun[Run] | None:
        """Return the run with a name, else the one shipped with foveate, if there is any."""
        if name not in self.runs:
            self.names()
        return self.runs.get(name) or self._packaged.get(name)

    def find(self, name: str) -> StoredRun[Run]:
        """Return a run by its name. Raises `RequestError` (404) with the existing runs."""
        if (stored := self.stored(name)) is None:
            raise not_found("run", name, self.names())
        return stored

    def run(self, name: str) -> Run:
        """Return a run with its model. Raises ``ConfigError`` if it has no checkpoint."""
        return self.load(self.find(name))


def _run_folders(path: Path) -> Iterator[Path]:
    """Yield the folder itself if it is a run, else those of its folders that are, by name."""
    path = path.expanduser().resolve()
    if (path / CONFIG).is_file():
        yield path
    elif path.is_dir():
        yield from sorted(child for child in path.iterdir() if (child / CONFIG).is_file())


def with_silenced(run: Run, heads: Sequence[SilencedHead]) -> AbstractContextManager[object]:
    """Silence some heads of a run, or whole layers, in the block.

    Raises `RequestError` with the existing blocks, ``ConfigError`` if a head does not exist.
    """
    if not heads:
        return nullcontext()
    blocks, places = dict[str, list[str]](), list[str]()
    for name in hook_points(run.model):
        blocks.setdefault(block_of(name), []).append(name)
    for head in heads:
        names = [n for block in blocks if head.block in suffixes(block) for n in blocks[block]]
        if not -len(names) <= head.layer < len(names):
            known = ", ".join(f"{block} ({len(names)})" for block, names in blocks.items())
            there = f"blocks and their layers: {known or 'none'}"
            raise RequestError(422, f"no layer {head.layer} of {head.block!r}; {there}")
        places.append(names[head.layer] + ("" if head.head is None else f":{head.head}"))
    return edit(run.model, silenced(places))


Left = Callable[[], Awaitable[bool]]  # whether the client that waits for a result has left


class ReaderLeft(BaseException):
    """No client reads the events any more. Not an `Exception`, which handlers would catch."""


class Computation(Operation[None], Generic[T]):
    """A computation in a queue, in a batch of its own; its events can be read once."""

    future: Future[list[T]]

    def __init__(self, work: Callable[[Send], T], queue: Batcher[None]) -> None:
        """Raise `RequestError` (429) if the queue is full."""
        self._work, self._loop = work, asyncio.get_running_loop()
        self._events: asyncio.Queue[DrawingPart | None] = asyncio.Queue()
        self._stop = threading.Event()
        self.future = queue.submit("studio", self, [""]).future

    def plan(self, model: None, items: Sequence[str], tokens: int) -> AnswerPlan:
        """Return a plan with one item: the result."""
        return AnswerPlan([1], lambda items, stop: [self._work(self.send)])

    def send(self, event: DrawingPart | None) -> None:
        """Add an event. Raises `ReaderLeft` once no client reads the events any more."""
        if self._stop.is_set():
            raise ReaderLeft
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def stop(self) -> None:
        """Cancel the computation; it ends at its next event."""
        self._stop.set()
        self.future.cancel()

    async def result(self, left: Left | None = None) -> T:
        """Return the result; the computation stops if its caller is cancelled or its client leaves.

        One that is still in the queue is removed from it.
        """
        waiting = asyncio.wrap_future(self.future)
        try:
            while not (await asyncio.wait([waiting], timeout=POLL))[0]:
                if left and await left():
                    raise ClientDisconnect
            return (await waiting)[0]
        finally:
            self.stop()

    async def events(self, pause: float, ping: DrawingPart) -> AsyncIterator[DrawingPart | T]:
        """Yield events as they come, a ``ping`` after ``pause`` seconds without, then the result.

        The computation stops when the reader leaves.
        """
        put = self._events.put_nowait
        self.future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(put, None))
        try:
            while True:
                try:
                    event = await asyncio.wait_for(self._events.get(), pause)
                except TimeoutError:
                    event = ping
                if event is None:
                    yield self.future.result()[0]
                    return
                yield event
        finally:
            self.stop()


class StudioState:
    """The objects shared by all routes of a studio, and the computations with them."""

    def __init__(
        self, runs: Sequence[Path], waiting: int = 32, lectures: Path | None = None
    ) -> None:
        """Only one computation runs at a time, and at most ``waiting`` others wait."""
        self.paths, self.lectures = list(runs), lectures
        self.runs, self.arrays = StudioRuns(runs), ByteStore(ARRAYS)
        bounds = Batching(max_delay=0, queue=1 + waiting, max_wait=inf)  # an item counts 1
        self.queue = Batcher[None](lambda: None, bounds)
        self._evaluated: dict[tuple[str, str, str, int], Evaluated] = {}

    def start(self, work: Callable[[Send], T]) -> Computation[T]:
        """Add a computation to the queue. Raises `RequestError` (429) if it is full."""
        return Computation(work, self.queue)

    def answer(self, name: str, request: AnswerRequest, send: Send) -> DrawingPart:
        """Answer a request with events, of which the first is "start"; return the last."""
        began = time.perf_counter()
        run = self.runs.run(name)
        send(answers.start(run, name, request))
        with with_silenced(run, request.silenced):
            done = answers.answer(run, request, send)
        drawings = list(map(self.linked, done.drawings))
        spent = 1000 * (time.perf_counter() - began)
        return done.model_copy(update={"drawings": drawings, "milliseconds": spent})

    def view(
        self,
        view: str,
        names: Sequence[str],
        question: Question,
        heads: Sequence[SilencedHead] = (),
    ) -> Drawings:
        """Draw a view of runs; the result includes words of its text missing in training data."""
        runs = list(map(self.runs.run, names))
        words = [unknown_words(run.task, question.text or "") for run in runs]
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(with_silenced(run, heads))
            if question.image is not None:  # not a path on this machine
                picture = stack.enter_context(opened(question.image))
                question = question.model_copy(update={"image": str(picture)})
            sent = self.sent(lambda: find(view).draw(runs, question).drawings())
        return sent.model_copy(update={"unknown": list(dict.fromkeys(chain.from_iterable(words)))})

    def linked(self, drawing: P) -> P:
        """Return a drawing with URLs for large arrays; the most recent ones are stored, gzipped."""

        def numbers(values: Numbers) -> Numbers:
            content = values.bytes()
            if len(content) <= INLINE:
                return values
            name = hashlib.sha256(content).hexdigest()
            self.arrays.put(name, gzip.compress(content, 6, mtime=0))
            return values.model_copy(update={"data": "", "url": f"/api/v1/tensors/{name}"})

        return changed(drawing, numbers)

    def sent(self, draw: Callable[[], Sequence[DrawingPart]]) -> Drawings:
        """Return what is drawn, with the time that it took."""
        began = time.perf_counter()
        drawings: list[Any] = [self.linked(drawing) for drawing in draw()]
        spent = 1000 * (time.perf_counter() - began)
        return Drawings.model_construct(drawings=drawings, milliseconds=spent, unknown=[])

    def evaluate(self, name: str, split: str, most: int, send: Send) -> Evaluated:
        """Return the scores of a run's examples, computed once for the same weights."""
        run = self.runs.run(name)
        key = name, run.checkpoint, split, most
        if key not in self._evaluated:
            self._evaluated[key] = evaluate(run, name, split, most, send)
        return self._evaluated[key]
