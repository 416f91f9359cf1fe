"""A run whose translations other processes compute, for a server with many connections.

In one process the threads that search and those that serve wait for each other: Python runs one of
them at a time. Does not live here: what the processes do (`foveate.verbs.crew`), and the order of
requests (`foveate.server.batching`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from foveate.align.aer import Head, Links
from foveate.answers import Translation
from foveate.data.corpus import Arrays, Work, Workers
from foveate.run import Run
from foveate.verbs.crew import Loading, answers_of, own, read, said, translations

LOCAL = {"prefix", "wording"}  # options that are handled in this process


class ProcessRun(Run):
    """A run whose translations and word links come of ``processes`` that have the same weights.

    Outputs with a prefix or with forced words, and all else that a run does, are computed in this
    process. A process that is killed is replaced; its callers get a ``WorkerError``. All processes
    end when the run is no longer referenced.
    """

    def __init__(self, run: Run, loading: Loading, processes: int) -> None:
        super().__init__(run.path, run.config, run.task, run.model, run.checkpoint)
        self.apart = True
        stack, same = ExitStack(), loading._replace(run=str(run.path / run.checkpoint))
        weakref.finalize(self, stack.close)
        self.workers = stack.enter_context(Workers(process_work, same._asdict(), processes))
        with ThreadPoolExecutor(processes) as all_at_once:  # each loads the run at its first call
            list(all_at_once.map(lambda worker: worker(("translate", [], {})), self.workers.all))

    def translate(  # type: ignore[override]  # the same choices, by their names
        self,
        lines: Sequence[str],
        progress: Callable[[int], None] | None = None,
        **choices: Any,
    ) -> list[Translation]:
        """As `foveate.run.Run.translate`; ``progress`` is called once, at the end."""
        options = {name: value for name, value in choices.items() if value is not None}
        if isinstance(lines, str) or options.keys() & LOCAL:
            return super().translate(lines, progress=progress, **options)
        self.can("addressed", "translate")(lines, options.get("to"))  # raises its errors here
        translations = answers_of(self.workers(("translate", list(lines), options)), self)
        if progress is not None:
            progress(len(translations))
        return translations

    def links(self, pairs: Sequence[tuple[str, Any]], head: Head | None = None) -> list[Links]:
        """As `foveate.run.Run.links`."""
        if head is not None:
            return super().links(pairs, head)
        aligned = read(self.workers(("link", list(pairs))))
        return [{(i, j) for i, j in links} for links in aligned]


def process_work(values: Mapping[str, Any]) -> Work:
    """What a process computes: translations of lines, or word links of pairs."""
    run = own(values)

    def work(what: str, *given: Any) -> Arrays:
        return translations(run, *given) if what == "translate" else _links(run, *given)

    return work


def _links(run: Run, pairs: list[tuple[str, Any]]) -> Arrays:
    return said(map(sorted, run.links(pairs)))


def load_with_processes(folder: Path, processes: int, **options: Any) -> Run:
    """The run of a folder with so many processes, or without any; options are of `Loading`."""
    loading = Loading(str(folder), **options)
    run = loading.load()
    return ProcessRun(run, loading, processes) if processes else run
