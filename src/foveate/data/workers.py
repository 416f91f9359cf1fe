"""The same work on many spans of rows, by as many processes as the machine has cores.

Lives here: starting them, dealing out spans, and results in the order of the spans. Does not live
here: the work (`prepared`, `traits`).

A process is started as a program of its own: nothing of this one is forked, no script is run a
second time, and when this one is killed the others see the end of their input and leave. Spans and
arrays travel as JSON and raw bytes.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]  # from the first row to the one after the last
Arrays = dict[str, NDArray[Any]]
Work = Callable[..., Arrays]  # of a span, or of other plain values
Maker = Callable[[Mapping[str, Any]], Work]  # plain values → the work that they describe

ENOUGH = 100_000  # rows from which it pays to start processes
ROWS = 20_000  # in a span


def in_order(
    maker: Maker,
    values: Mapping[str, Any],
    spans: Sequence[tuple[Any, ...]],
    processes: int | None = None,
) -> Iterator[Arrays]:
    """The results of ``maker(values)`` for each span, in their order; the first error is raised.

    ``maker`` is a function of a module. Without ``processes`` there is one for each core, or none
    but this one where there are fewer rows than `ENOUGH`; with them ``spans`` may be any arguments.
    What is not begun when the reader stops is not done.
    """
    if processes is None:
        processes = cores() if sum(stop - first for first, stop in spans) >= ENOUGH else 1
    processes = min(processes, len(spans))
    if processes <= 1:
        work = maker(values)
        yield from (work(*span) for span in spans)
        return
    threads = ThreadPoolExecutor(processes)
    with Workers(maker, values, processes) as workers:
        try:
            yield from threads.map(workers, spans)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def spans_of(rows: int, size: int = ROWS) -> list[Span]:
    """All rows, cut into spans."""
    return [(first, min(first + size, rows)) for first in range(0, rows, size)]


def cores() -> int:
    """How many processors this process may use; ``FOVEATE_PROCESSES`` says another number."""
    if wanted := os.environ.get("FOVEATE_PROCESSES"):
        return max(1, int(wanted))
    allowed = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class WorkerError(RuntimeError):
    """The work failed in another process, or that process was ended."""


class Worker:
    """Another process that does the work on one span, or other plain values, after the other."""

    def __init__(self, maker: Maker, values: Mapping[str, Any]) -> None:
        what = {"maker": f"{maker.__module__}:{maker.__name__}", "values": values}
        path = os.pathsep.join(filter(None, sys.path))
        one = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | one,
        )
        self._say(what)

    def __call__(self, values: Sequence[Any]) -> Arrays:
        self._say(values)
        assert self._process.stdout is not None
        return _received(self._process.stdout)

    def _say(self, value: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; the missing answer says so
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it in the midst of what it does."""
        self._process.kill()

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.communicate()


class Workers:
    """Several such processes: whoever calls, from whatever thread, has the next idle one work.

    In the place of one that ended in the midst of its work stands another for the next call.
    """

    def __init__(self, maker: Maker, values: Mapping[str, Any], count: int) -> None:
        self._maker, self._values, self._count = maker, values, count
        self._stack, self._lock, self._over = ExitStack(), threading.Lock(), False
        self._idle = queue.SimpleQueue[Worker]()
        self.all: list[Worker] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._idle.put(self._begun())
        return self

    def __call__(self, values: Sequence[Any]) -> Arrays:
        worker = self._idle.get()
        try:
            return worker(values)
        finally:
            self._idle.put(worker if worker.alive or self._over else self._begun())

    def _begun(self) -> Worker:
        with self._lock:
            self.all.append(self._stack.enter_context(Worker(self._maker, self._values)))
            return self.all[-1]

    def __exit__(self, *error: object) -> None:
        self._over = True
        with self._lock:
            self._stack.close()


def serve() -> None:
    """Be a worker: the work on the first line of standard input, then a span on each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    sys.stdout = sys.stderr  # what anyone prints is no answer
    what = json.loads(sys.stdin.buffer.readline())
    module, _, name = what["maker"].partition(":")
    work: Work | None = None
    for line in sys.stdin.buffer:
        try:
            work = work or getattr(importlib.import_module(module), name)(what["values"])
            arrays: Arrays = work(*json.loads(line))
        except Exception as error:
            answers.write(json.dumps(f"{type(error).__name__}: {error}").encode() + b"\n")
        else:
            header = {key: [a.dtype.name, a.shape] for key, a in arrays.items()}
            answers.write(json.dumps(header).encode() + b"\n")
            answers.writelines(a.tobytes() for a in arrays.values())
        try:
            answers.flush()
        except BrokenPipeError:  # nobody wants the answer any more
            os._exit(1)


def _received(stream: IO[bytes]) -> Arrays:
    line = stream.readline()
    header = json.loads(line) if line else "the process ended; was it killed, or out of memory?"
    if isinstance(header, str):
        raise WorkerError(f"in another process: {header}")
    arrays: Arrays = {}
    for key, (dtype, shape) in header.items():
        content = stream.read(math.prod(shape) * np.dtype(dtype).itemsize)
        arrays[key] = np.frombuffer(content, dtype=dtype).reshape(shape)
    return arrays
