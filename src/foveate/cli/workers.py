"""Loading a run with a search, a precision and an engine, in this process or in several.

Several processes of one thread each translate many sentences faster than one process of several
threads. A server with many connections needs them too, since the threads that search and those that
serve would wait for each other.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from foveate.align.aer import Head, Links
from foveate.answers import TextAnswer, TranslateOptions
from foveate.config import ConfigError, Tree, assigned, merge
from foveate.data.corpus import Arrays, Work, Workers
from foveate.decode.search import Hypothesis
from foveate.files import cache_folder
from foveate.run import Run, device, load
from foveate.tasks.text_to_text import TextToText

if TYPE_CHECKING:
    from foveate.server.launch import RunLoader

PRECISIONS = ("fp32", "int8")
ENGINES = ("torch", "ctranslate2", "ray")


class RunSpec(NamedTuple):
    """How a run is loaded, in plain values that go to other processes."""

    run: str
    checkpoint: str = "best"
    ensemble: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()  # assignments such as decode.kind=diverse_beam
    precision: str = "fp32"
    engine: str = "torch"
    sample: str | None = None  # a file on which an export for the engine is tried

    def load(self) -> Run:
        """The run. Raises ``ConfigError`` where there is no such run, precision or engine."""
        if self.engine == "ray":
            raise ConfigError("--engine ray translates folders: --in FOLDER --out FOLDER")
        _check("engine", self.engine, ENGINES)
        run = load(self.run, self.checkpoint, self.ensemble)
        if self.overrides:
            run = with_search(run, self.overrides)
        if self.engine == "ctranslate2":
            sample = None if self.sample is None else Path(self.sample)
            return _through_ctranslate2(run, self.precision, sample)
        return run if self.precision == "fp32" else at_precision(run, self.precision)


def with_search(run: Run, overrides: Sequence[str]) -> Run:
    """The run with the search of assignments such as ``decode.kind=diverse_beam``.

    Raises ``ConfigError`` for keys outside of ``decode``: they cannot change after the training.
    """
    tree: Tree = {}
    for assignment in overrides:
        tree = merge(tree, assigned(assignment))
    for key in tree.keys() - {"decode"}:
        raise ConfigError(f"{key}: a run stays as it was trained; only decode.… can be changed")
    search = tree.get("decode", {})
    fields = {"kind": search} if isinstance(search, str) else search
    return run.decoding(**fields) if fields else run


def at_precision(run: Run, precision: str) -> Run:
    """The run with its weights in "fp32", as they are, or in "int8" (`foveate.nn.linear`).

    Raises ``ConfigError`` for another name.
    """
    _check("precision", precision, PRECISIONS)
    if precision == "int8":
        from foveate.nn.linear import quantized

        run.model = quantized(run.model)
    return run


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"no {name} {value!r}; there are: {', '.join(known)}")


def _through_ctranslate2(run: Run, precision: str, sample: Path | None) -> Run:
    """The run with its searches on an export, which is made at the first use and cached."""
    from foveate.export.base import export, pointer_to, sample_of
    from foveate.export.ctranslate2 import through_ctranslate2

    quantization = "float32" if precision == "fp32" else precision
    name = f"{str(pointer_to(run)['sha256'])[:32]}-{quantization}"
    folder = cache_folder() / "exports" / name
    if not folder.exists():
        export(run, folder, "ctranslate2", sample_of(run, 100, sample), quantization)
    return through_ctranslate2(run, folder)


# ------------------------------------------------------------------------------ several processes

Job = tuple[list[str], TranslateOptions]  # lines, and the options of `foveate.run.Run.translate`


class ProcessRun(Run):
    """A run whose translations and word links are computed by ``processes`` with the same weights.

    Outputs with forced words, and all else that a run does, are computed in this process. A process
    that is killed is replaced; its callers get a ``WorkerError``. All processes end when the run is
    no longer referenced, or when this process ends.
    """

    def __init__(self, run: Run, spec: RunSpec, processes: int) -> None:
        super().__init__(run.path, run.config, run.task, run.model, run.checkpoint)
        self.apart, self.local, self.processes = True, run, processes
        if not spec.ensemble:  # the same weights, even where a training goes on
            spec = spec._replace(run=str(run.path / run.checkpoint))
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        self.workers = stack.enter_context(Workers(process_work, spec._asdict(), processes))
        with ThreadPoolExecutor(processes) as all_at_once:  # each loads the run at its first call
            list(all_at_once.map(lambda worker: worker(("translate", [], {})), self.workers.all))

    def translate(  # type: ignore[override]  # the same options, by their names
        self,
        lines: Sequence[str],
        progress: Callable[[int], None] | None = None,
        **choices: Any,
    ) -> list[TextAnswer]:
        """As `foveate.run.Run.translate`; ``progress`` is called once, at the end."""
        options = {name: value for name, value in choices.items() if value is not None}
        if isinstance(lines, str) or "wording" in options:
            return super().translate(lines, progress=progress, **options)
        task = self.need(TextToText, "translate")
        task.addressed(lines, options.get("to"))  # raises its errors in this process
        if "prefix" in options:
            task.beginnings(options["prefix"], len(lines))
        rows = _values(self.workers(("translate", list(lines), options)))
        if progress is not None:
            progress(len(rows))
        return [
            TextAnswer(source, texts, scores, cut, [Hypothesis(*h) for h in hypotheses], self)
            for source, texts, scores, cut, hypotheses in rows
        ]

    def in_order(self, jobs: Iterable[Job]) -> Iterator[list[TextAnswer]]:
        """The translations of each job, in the order of the jobs, of which few are taken ahead.

        Their links and maps are computed in this process, since the others translate. Raises
        ``WorkerError`` where a process fails or was killed.
        """

        def next_result() -> list[TextAnswer]:
            return [replace(answer, run=self.local) for answer in pending.popleft().result()]

        pending: deque[Future[list[TextAnswer]]] = deque()
        threads = ThreadPoolExecutor(self.processes)
        try:
            for lines, options in jobs:
                pending.append(threads.submit(self.translate, lines, **options))
                if len(pending) > 2 * self.processes:
                    yield next_result()
            while pending:
                yield next_result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def links(self, pairs: Sequence[tuple[str, Any]], head: Head | None = None) -> list[Links]:
        """As `foveate.run.Run.links`."""
        if head is not None:
            return super().links(pairs, head)
        rows = _values(self.workers(("link", list(pairs))))
        return [{(i, j) for i, j in links} for links in rows]


def process_work(values: Mapping[str, Any]) -> Work:
    """What a process of one thread computes: translations of lines, or word links of pairs.

    ``values`` are those of a `RunSpec`.
    """
    torch.set_num_threads(1)
    run = RunSpec(**values).load()

    def work(kind: str, *arguments: Any) -> Arrays:
        if kind == "link":
            return _arrays(sorted(links) for links in run.links(*arguments))
        lines, options = arguments
        return _arrays(
            (
                answer.source,
                answer.hypotheses,
                answer.scores,
                answer.cut,
                [(h.ids, h.log_probability, h.score, h.ended) for h in answer.outputs],
            )
            for answer in run.translate(lines, **options)
        )

    return work


def _arrays(rows: Iterable[object]) -> Arrays:
    """Rows of plain values as the result of a process."""
    return {"rows": np.frombuffer(json.dumps(list(rows)).encode(), dtype=np.uint8)}


def _values(arrays: Arrays) -> list[Any]:
    """The rows of `_arrays`."""
    return list(json.loads(arrays["rows"].tobytes()))


def load_with_processes(folder: Path, processes: int, **options: Any) -> Run:
    """The run of a folder, with that many processes if any; options are those of `RunSpec`."""
    spec = RunSpec(str(folder), **options)
    run = spec.load()
    return ProcessRun(run, spec, processes) if processes else run


# ------------------------------------------------------------------------------ server


def run_loader(
    precision: str = "fp32",
    engine: str = "torch",
    sample: Path | None = None,
    processes: int = 0,
) -> RunLoader:
    """How a server loads runs. Raises ``ConfigError`` for an unknown precision or engine."""
    from foveate.server.launch import RunLoader

    _check("precision", precision, PRECISIONS)
    _check("engine", engine, ENGINES)
    load = partial(
        load_with_processes,
        processes=processes,
        precision=precision,
        engine=engine,
        sample=None if sample is None else str(sample),
    )
    return RunLoader(load, 1 + processes, engine != "torch")


def batch_threads(threads: int | None, processes: int = 0) -> int:
    """How many batches a server computes at a time, one thread each; on a GPU it is 1.

    Threads that share a batch wait for each other at every step.
    """
    if device() != "cpu":
        return 1
    count = threads or processes or torch.get_num_threads()
    torch.set_num_threads(1)
    return count
