"""How a run is loaded with a search, a precision and an engine, by one process or by several."""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch

from foveate.align.aer import Head, Links
from foveate.answers import TextAnswer
from foveate.config import ConfigError, assigned, merge
from foveate.data.corpus import Arrays, Work, Workers
from foveate.data.readers import read_lines
from foveate.decode.search import Hypothesis
from foveate.files import cache_folder
from foveate.run import Run, device
from foveate.tasks.text_to_text import TextToText

if TYPE_CHECKING:
    from foveate.server.launch import RunLoader


PRECISIONS = ("fp32", "int8")


def decoding(run: Run, overrides: Sequence[str]) -> Run:
    """The run with the search of assignments such as ``decode.kind=diverse_beam``.

    Raises ``ConfigError`` for what is no part of ``decode``: a run stays as it was trained.
    """
    tree: dict[str, Any] = {}
    for assignment in overrides:
        tree = merge(tree, assigned(assignment))
    for key in tree.keys() - {"decode"}:
        raise ConfigError(f"{key}: a run stays as it was trained; only decode.… can be said anew")
    said = tree.get("decode", {})
    choices = {"kind": said} if isinstance(said, str) else said
    return run.decoding(**choices) if choices else run


def at_precision(run: Run, precision: str) -> Run:
    """The run with its weights in "fp32", as they are, or in "int8" (`foveate.nn.linear`).

    Raises ``ConfigError`` for another name.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"no precision {precision!r}; there are: {', '.join(PRECISIONS)}")
    if precision == "int8":
        from foveate.nn.linear import quantized

        run.model = quantized(run.model)
    return run


class Prefixes:
    """The lines of a file with which outputs begin, taken in step with the lines of the input."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[int] = []
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot read the prefixes {path}: {error.strerror}") from None
        self._lines = read_lines(self._file, self.damaged)
        self._taken = 0

    def take(self, count: int) -> list[str]:
        """The next lines. Raises ``ConfigError`` where the file has too few, or one is no UTF-8."""
        found = list(islice(self._lines, count))
        self._taken += len(found)
        if len(found) < count:
            raise ConfigError(f"{self.path} ends after line {self._taken}; give one for each line")
        if self.damaged:
            raise ConfigError(f"{self.path}:{self.damaged[0]} is not UTF-8; no output begins so")
        return found

    def close(self) -> list[str]:
        """Close the file; what to say where it has lines that were not asked for."""
        left = sum(1 for _ in self._lines)
        self._file.close()
        return (
            [f"{self.path} has {left:,} lines more than the input; they were left"] if left else []
        )


# ------------------------------------------------------------------------------------------ export
# Writing runs for other programs, reading theirs, and translating through them.


def export(
    path: Path,
    out: Path,
    to: str,
    checkpoint: str,
    tried: tuple[int, Path | None],
    choices: dict[str, Any],
) -> list[str]:
    """Export a run, and say where it is and what it was held against.

    ``tried`` says how many sentences of which file (None: the validation data) are compared.
    """
    from foveate.export.base import export as export_run
    from foveate.export.base import sample_of
    from foveate.run import load

    run = load(path, checkpoint)
    place, checked = export_run(run, out, to, sample_of(run, *tried), **choices)
    return [f"{place}: {to} of {path}/{run.checkpoint}", str(checked)]


def import_(source: Path, out: Path) -> list[str]:
    """Make a run, or a tokenizer, of what others wrote."""
    from foveate.export.huggingface import import_from

    return [import_from(source, out)]


# ------------------------------------------------------------------------------ engines


def with_engine(run: Run, engine: str, precision: str, sample: Path | None = None) -> Run:
    """The run with searches carried out by an engine, its weights of a precision.

    ``sample`` is what an export is tried on where the run's data are not here. Raises
    ``ConfigError`` where there is no such engine, `ExchangeError` where it cannot have the run.
    """
    if engine not in ENGINES:
        raise ConfigError(f"no engine {engine!r}; there are: {', '.join(ENGINES)}")
    return ENGINES[engine](run, precision, sample)


def _torch(run: Run, precision: str, sample: Path | None) -> Run:

    return at_precision(run, precision)


def _ctranslate2(run: Run, precision: str, sample: Path | None) -> Run:
    """Through an export that is made at the first use and kept in the cache."""
    from foveate.export.base import export as export_run
    from foveate.export.base import pointer_to, sample_of
    from foveate.export.ctranslate2 import through_ctranslate2

    quantization = "float32" if precision == "fp32" else precision
    name = f"{pointer_to(run)['sha256'][:32]}-{quantization}"
    folder = cache_folder() / "exports" / name
    if not folder.exists():
        export_run(run, folder, "ctranslate2", sample_of(run, 100, sample), quantization)
    return through_ctranslate2(run, folder)


def _ray(run: Run, precision: str, sample: Path | None) -> Run:
    """Many runs: the documents of a folder are dealt out to them (`foveate.cli.folders`)."""
    raise ConfigError("--engine ray translates folders: --in FOLDER --out FOLDER")


ENGINES: dict[str, Callable[[Run, str, Path | None], Run]] = {
    "torch": _torch,
    "ctranslate2": _ctranslate2,
    "ray": _ray,
}


# -------------------------------------------------------------------------------------------- crew
# Translating by several processes of one thread each: for many sentences that is the faster half.

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

    def translate(self, jobs: Iterable[Job]) -> Iterator[list[TextAnswer]]:
        """The answers to each job, in the order of the jobs, of which few are taken ahead.

        Raises ``WorkerError`` where a process fails or was killed.
        """
        waiting: deque[Future[list[TextAnswer]]] = deque()
        for job in jobs:
            waiting.append(self._threads.submit(self._one, job))
            if len(waiting) > 2 * self.processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _one(self, job: Job) -> list[TextAnswer]:
        return answers_of(self.workers(job), self.run)


def answers_of(found: Arrays, run: Run) -> list[TextAnswer]:
    """What a `translator` gave back, as answers of a run of this process."""
    return [
        TextAnswer(source, hypotheses, scores, cut, [Hypothesis(*one) for one in outputs], run)
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


def _said(one: TextAnswer) -> tuple[Any, ...]:
    return one.source, one.hypotheses, one.scores, one.cut, [_plain(each) for each in one.found]


def _plain(one: Hypothesis) -> tuple[Any, ...]:
    return one.ids, one.log_probability, one.score, one.ended


# ------------------------------------------------------------------------------------------- staff
# A run whose translations other processes compute, for a server with many connections.
#
# In one process the threads that search and those that serve wait for each other: Python runs one
# of
# them at a time. Does not live here: what the processes do (`foveate.cli.workers`), and the order
# of
# requests (`foveate.server.batching`).

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
    ) -> list[TextAnswer]:
        """As `foveate.run.Run.translate`; ``progress`` is called once, at the end."""
        options = {name: value for name, value in choices.items() if value is not None}
        if isinstance(lines, str) or options.keys() & LOCAL:
            return super().translate(lines, progress=progress, **options)
        self.need(TextToText, "translate").addressed(
            lines, options.get("to")
        )  # raises its errors here
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


# ------------------------------------------------------------------------------------------- serve
# How ``foveate serve`` loads runs, and how many batches it computes at a time.


def run_loader(
    precision: str = "fp32",
    engine: str = "torch",
    sample: Path | None = None,
    processes: int = 0,
) -> RunLoader:
    """How runs are loaded. Raises ``ConfigError`` naming the precisions and engines there are."""
    from foveate.server.launch import RunLoader

    for what, name, known in (
        ("precision", precision, PRECISIONS), ("engine", engine, ENGINES)
    ):  # fmt: skip
        if name not in known:
            raise ConfigError(f"no {what} {name!r}; there are: {', '.join(known)}")
    load = partial(
        load_with_processes,
        processes=processes,
        precision=precision,
        engine=engine,
        sample=None if sample is None else str(sample),
    )
    return RunLoader(load, 1 + processes, engine != "torch")


def batch_threads(threads: int | None, processes: int = 0) -> int:
    """How many batches are computed at a time, one thread each; on a GPU it is one.

    Threads that share a batch wait for each other at every step.
    """
    if device() != "cpu":
        return 1
    count = threads or processes or torch.get_num_threads()
    torch.set_num_threads(1)
    return count
