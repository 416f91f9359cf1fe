"""Translating by several processes of one thread each: for many sentences that is the faster half.

Lives here: dealing out chunks of lines, and answers in their order. Does not live here: how a
process is started and watched (`foveate.data.corpus`), and the stream (`foveate.verbs`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from foveate.answers import Translation
from foveate.data.corpus import Arrays, Work, Workers
from foveate.decode.search import Hypothesis

if TYPE_CHECKING:
    from foveate.run import Run

Job = tuple[list[str], dict[str, Any]]  # lines, and what `foveate.run.Run.translate` is to know


class Loading(NamedTuple):
    """How a run is loaded, in plain values that another process can be told."""

    run: str
    checkpoint: str = "best"
    ensemble: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    precision: str = "fp32"
    engine: str = "torch"
    sample: str | None = None  # a file on which an export for the engine is tried

    def load(self) -> Run:
        """Raises ``ConfigError`` where there is no such run."""
        from foveate.run import load
        from foveate.verbs.decoding import decoding
        from foveate.verbs.export import with_engine

        run = load(self.run, self.checkpoint, [Path(path) for path in self.ensemble])
        sample = None if self.sample is None else Path(self.sample)
        return with_engine(decoding(run, self.overrides), self.engine, self.precision, sample)


class Crew:
    """Processes that have all loaded a run; an answer is that of this process's ``run``.

    When this process ends, however it does, so do they.
    """

    def __init__(self, run: Run, loading: Loading, processes: int) -> None:
        self.run, self.processes, self._stack = run, processes, ExitStack()
        self.workers = Workers(translator, loading._asdict(), processes)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.workers)
        self._threads = self._stack.enter_context(ThreadPoolExecutor(self.processes))
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def translate(self, jobs: Iterable[Job]) -> Iterator[list[Translation]]:
        """The answers to each job, in the order of the jobs, of which few are taken ahead.

        Raises ``WorkerError`` where a process fails or was killed.
        """
        waiting: deque[Future[list[Translation]]] = deque()
        for job in jobs:
            waiting.append(self._threads.submit(self._one, job))
            if len(waiting) > 2 * self.processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _one(self, job: Job) -> list[Translation]:
        return answers_of(self.workers(job), self.run)


def answers_of(found: Arrays, run: Run) -> list[Translation]:
    """What a `translator` gave back, as answers of a run of this process."""
    return [
        Translation(source, hypotheses, scores, cut, [Hypothesis(*one) for one in outputs], run)
        for source, hypotheses, scores, cut, outputs in read(found)
    ]


def translator(values: Mapping[str, Any]) -> Work:
    """What a process does: translate lines with a run of its own."""
    return partial(translations, own(values))


def own(values: Mapping[str, Any]) -> Run:
    """The run of a process of one thread; ``values`` are those of a `Loading`."""
    import torch

    torch.set_num_threads(1)
    return Loading(**values).load()


def translations(run: Run, lines: list[str], choices: dict[str, Any]) -> Arrays:
    """The answers of a run, for `answers_of`."""
    return said(map(_said, run.translate(lines, **choices)))


def said(answers: Iterable[Any]) -> Arrays:
    """Answers of plain values as what a process gives back."""
    return {"answers": np.frombuffer(json.dumps(list(answers)).encode(), dtype=np.uint8)}


def read(found: Arrays) -> list[Any]:
    """The answers of `said`."""
    return list(json.loads(found["answers"].tobytes()))


def _said(one: Translation) -> tuple[Any, ...]:
    return one.source, one.hypotheses, one.scores, one.cut, [_plain(each) for each in one.found]


def _plain(one: Hypothesis) -> tuple[Any, ...]:
    return one.ids, one.log_probability, one.score, one.ended
