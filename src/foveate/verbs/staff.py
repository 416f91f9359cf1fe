"""A run that has other processes translate: a server's, whose own process has many to talk to.

In one process the threads that search and those that talk wait for each other: Python runs one of
them at a time. Lives here: a run as the server knows it, with processes behind it. Does not live
here: what these do (`foveate.verbs.crew`), and who is answered when (`foveate.serve.batcher`).
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

HERE = {"prefix", "wording"}  # what no process is told


class Staffed(Run):
    """A run whose translations and word links come of ``processes`` that have the same weights.

    What is to begin with a prefix, to hold given words, or to be looked into otherwise is made
    here. A process that is killed is followed by another; who waited for it gets a
    ``WorkerError``. They end when nobody holds the run any more.
    """

    def __init__(self, run: Run, loading: Loading, processes: int) -> None:
        super().__init__(run.path, run.config, run.task, run.model, run.checkpoint)
        self.apart = True
        stack, same = ExitStack(), loading._replace(run=str(run.path / run.checkpoint))
        weakref.finalize(self, stack.close)
        self.workers = stack.enter_context(Workers(hand, same._asdict(), processes))
        with ThreadPoolExecutor(processes) as all_at_once:  # each loads the run at its first call
            list(all_at_once.map(lambda worker: worker(("translate", [], {})), self.workers.all))

    def translate(  # type: ignore[override]  # the same choices, by their names
        self,
        lines: Sequence[str],
        progress: Callable[[int], None] | None = None,
        **choices: Any,
    ) -> list[Translation]:
        """As `foveate.run.Run.translate`; ``progress`` is told once, at the end."""
        given = {name: value for name, value in choices.items() if value is not None}
        if isinstance(lines, str) or given.keys() & HERE:
            return super().translate(lines, progress=progress, **given)
        self.can("addressed", "translate")(lines, given.get("to"))  # errors are said here
        found = answers_of(self.workers(("translate", list(lines), given)), self)
        if progress is not None:
            progress(len(found))
        return found

    def links(self, pairs: Sequence[tuple[str, Any]], head: Head | None = None) -> list[Links]:
        """As `foveate.run.Run.links`."""
        if head is not None:
            return super().links(pairs, head)
        found = read(self.workers(("link", list(pairs))))
        return [{(i, j) for i, j in links} for links in found]


def hand(values: Mapping[str, Any]) -> Work:
    """What a process does: translate lines, or link the words of pairs."""
    run = own(values)

    def work(what: str, *given: Any) -> Arrays:
        return translations(run, *given) if what == "translate" else _links(run, *given)

    return work


def _links(run: Run, pairs: list[tuple[str, Any]]) -> Arrays:
    return said(map(sorted, run.links(pairs)))


def staffed(folder: Path, processes: int, **choices: Any) -> Run:
    """A run of a folder with so many processes, or without any; choices are of `Loading`."""
    loading = Loading(str(folder), **choices)
    run = loading.load()
    return Staffed(run, loading, processes) if processes else run
