"""Runs in several processes of one thread each, which translate many sentences faster than threads.

A server with many connections needs them too: threads that search and serve wait for each other.
"""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from foveate.cli.engines import RunSpec
from foveate.data.corpus import Arrays, Work, Workers
from foveate.decode.engine import (
    ALL,
    Example,
    Hypothesis,
    Ids,
    Module,
    Result,
    SearchRequest,
    Source,
    check_stop,
)
from foveate.decode.search import Positions, Search
from foveate.engine.answers import ModelEngine, TextAnswer, TranslateOptions, Translator
from foveate.engine.links import Head, Links
from foveate.look.records import AttentionRecord, Units
from foveate.run import Run, device

if TYPE_CHECKING:
    from foveate.documents.memory import AssistedRun


Job = tuple[list[str], TranslateOptions]  # lines, and the options of `foveate.run.Run.translate`


class ProcessEngine(ModelEngine):
    """Searches, scores and links by ``processes`` of one thread each, with the same weights.

    A process that is killed is replaced; its callers get a ``WorkerError``. All processes end when
    the engine is not referenced any more, or when this process ends. Maps are made in this process.
    """

    name = "processes"
    can = ALL - {"positions"}

    def __init__(self, run: Run, spec: RunSpec, processes: int) -> None:
        self.local, self.processes = run.engine, processes
        if not spec.ensemble:  # the same weights, even where a training goes on
            spec = spec._replace(run=str(run.path / run.checkpoint))
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        self.workers = stack.enter_context(Workers(process_work, spec._asdict(), processes))
        with ThreadPoolExecutor(processes) as all_at_once:  # each loads the run at its first call
            list(all_at_once.map(lambda worker: worker(("score", [])), self.workers.all))

    @property
    def model(self) -> Module:
        return self.local.model

    def search(self, sources: Sequence[Ids], request: SearchRequest) -> Iterator[Result]:
        check_stop(request.stop)  # a process that searches already is not stopped
        fields = vars(request) | {"search": request.search.config.tree(), "stop": None}
        rows = _values(self.workers(("search", list(sources), fields)))
        filled = [place for place, _ in rows]
        yield Result(filled, [[Hypothesis(*h) for h in outputs] for _, outputs in rows])

    def positions(self, source: Source, request: SearchRequest) -> Positions:
        return self.local.positions(source, request)

    def score(self, pairs: Sequence[tuple[Source, Ids]]) -> list[list[float]]:
        return _values(self.workers(("score", list(pairs))))

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        rows = _values(self.workers(("links", list(pairs), head and vars(head))))
        return [{(i, j) for i, j in links} for links in rows]

    def explain(self, source: Example, target: str | Ids | None, units: Units) -> AttentionRecord:
        return self.local.explain(source, target, units)


def in_order(run: Translator | AssistedRun, jobs: Iterable[Job]) -> Iterator[list[TextAnswer]]:
    """Yield the translations of each job by processes, in order; few jobs are taken ahead.

    Links and maps are computed in this process. Raises ``WorkerError`` if another fails or was
    killed.
    """
    engine = run.engine
    assert isinstance(engine, ProcessEngine)

    def next_result() -> list[TextAnswer]:
        return [replace(answer, explains=engine.local) for answer in pending.popleft().result()]

    pending: deque[Future[list[TextAnswer]]] = deque()
    threads = ThreadPoolExecutor(engine.processes)
    try:
        for lines, options in jobs:
            pending.append(threads.submit(partial(run.translate, lines, **options)))
            if len(pending) > 2 * engine.processes:
                yield next_result()
        while pending:
            yield next_result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def process_work(values: Mapping[str, Any]) -> Work:
    """Return the work of a process of one thread: outputs, scores, or word links of pairs.

    ``values`` are those of a `RunSpec`.
    """
    torch.set_num_threads(1)
    run = RunSpec(**values).load()

    def search(sources: list[Ids], fields: dict[str, Any]) -> Iterator[object]:
        config = Search.Config.parse(fields["search"], ("decode",))
        request = SearchRequest(**fields | {"search": config.build()})
        for result in run.engine.search(sources, request):
            for place, outputs in zip(*result, strict=True):
                yield place, [(h.ids, h.log_probability, h.score, h.ended) for h in outputs]

    def links(pairs: list[tuple[str, str | Ids]], head: dict[str, Any] | None) -> list[object]:
        chosen = None if head is None else Head(**head)
        return [sorted(links) for links in run.engine.links(pairs, chosen)]

    work: dict[str, Callable[..., Iterable[object]]]
    work = {"search": search, "links": links, "score": run.engine.score}
    return lambda kind, *arguments: _arrays(work[kind](*arguments))


def _arrays(rows: Iterable[object]) -> Arrays:
    """Return rows of plain values as the result of a process."""
    return {"rows": np.frombuffer(json.dumps(list(rows)).encode(), dtype=np.uint8)}


def _values(arrays: Arrays) -> list[Any]:
    """Return the rows of `_arrays`."""
    return list(json.loads(arrays["rows"].tobytes()))


def batch_threads(threads: int | None, processes: int = 0) -> int:
    """Return the number of batches that a server computes at a time, 1 on a GPU.

    Threads that share a batch wait for each other at every step.
    """
    if device() != "cpu":
        return 1
    count = threads or processes or torch.get_num_threads()
    torch.set_num_threads(1)
    return count
