"""Translating a folder of documents by processes of this machine or of a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate import __version__
from foveate.cli.engines import RunSpec
from foveate.cli.options import SHOWN, Tally, say
from foveate.config import ConfigError, shipped
from foveate.data.corpus import Arrays, Work, WorkerError, in_order
from foveate.documents import folders
from foveate.documents.base import DocumentOptions
from foveate.documents.folders import with_languages
from foveate.documents.formats import format_of
from foveate.documents.spans import DocumentError, Rules
from foveate.engine.answers import TranslateOptions, Translator
from foveate.errors import message_of
from foveate.system import processors

if TYPE_CHECKING:
    import pyarrow

Values = Mapping[str, Any]  # what `translator` is made of: plain values that go to other processes


def in_processes(
    values: Values, parts: Sequence[folders.FilePart], processes: int | None
) -> Generator[bytes, None, None]:
    """Translate in this process, or in several that end when it ends."""
    if not parts:
        return  # nothing to load a run for
    room = max(1, processors() // values["threads"])
    if not Path(values["run"]["run"]).is_file():
        from foveate.run import device

        room = 1 if device() == "cuda" else room
    for arrays in in_order(translator, values, parts, processes or room):
        yield arrays["answers"].tobytes()


def translator(values: Values) -> Work:
    """Return the work of a process: it translates parts by a run of its own, on ``threads``."""
    spec = RunSpec(**values["run"])
    run: Translator | None = spec.packed({}, values["threads"])
    if run is None:
        import torch

        torch.set_num_threads(values["threads"])
        run = spec.load()
    rules = Rules(tuple(values["protect"]))
    options = DocumentOptions(rules, values["to"], values["again"], draft=values["draft"])
    options = with_languages(run, options)

    def work(*fields: Any) -> Arrays:
        answer = folders.translated(folders.FilePart(*fields), run, options, values["search"])
        return {"answers": np.frombuffer(answer, dtype=np.uint8)}

    return work


# Each worker is an actor that loads the run once. Ray Data starts a lost actor again and translates
# its unfinished parts anew; the translation of a part reaches this process once, in its turn.

STORE = 128 * 2**20  # bytes for results in transit, in a cluster that is started by this process


def on_ray(
    values: Values, parts: Sequence[folders.FilePart], processes: int | None
) -> Generator[bytes, None, None]:
    """Translate on the machines of a Ray cluster."""
    threads = values["threads"]
    with _connected(max(processors(), (processes or 1) * threads)) as ray:
        alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        room = sum(int(own) // threads for own in alive)
        if not room:
            raise ConfigError(f"no machine of the cluster has {threads} processors for a worker")
        count = min(processes or room, len(parts))
        say([f"{count} workers of {'one thread' if threads == 1 else f'{threads} threads'} each"])
        rows = [{"number": n, "part": json.dumps(part)} for n, part in enumerate(parts)]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(dict(values),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=threads,
        )
        workers = set[str]()
        try:
            for number, row in enumerate(data.iter_rows()):
                if row["error"]:
                    raise WorkerError(f"in worker {row['worker']}: {row['error']}")
                if row["number"] != number:
                    raise WorkerError(f"Ray returned part {row['number']} in place of {number}")
                yield row["answer"]
                workers.add(row["worker"])
        except ray.exceptions.RayError as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise WorkerError(
                f"Ray gave up: {reason}; translated parts are stored, the same command continues"
            ) from error
        if len(workers) > count:
            say([f"{len(workers) - count} of the workers replaced a lost one"])


class _Worker:
    """A Ray actor: it loads the run once, and translates a part after the other."""

    def __init__(self, values: Values) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # several would fill the memory of a GPU
        self._values = values
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    @cached_property
    def _work(self) -> Work:
        """The work of translating parts, by the same foveate and weights as the command's."""
        version, spec = self._values["foveate"], RunSpec(**self._values["run"])
        if __version__ != version:
            raise ConfigError(f"it has foveate {__version__}, not {version}; install that version")
        if folders.weights_of(spec.run, *spec.ensemble) != self._values["weights"]:
            raise ConfigError(f"its {spec.run} differs; share the folder, do not copy it")
        return translator(self._values)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Translate the only row of a table; return a table of one row."""
        import pyarrow

        (row,) = batch.to_pylist()
        answer, error = b"", ""
        try:
            answer = self._work(*json.loads(row["part"]))["answers"].tobytes()
        except Exception as problem:  # it would be the same in another worker
            error = f"{type(problem).__name__}: {message_of(problem)}"
        values = {"number": row["number"], "error": error, "worker": self._name}
        columns = {name: pyarrow.array([value]) for name, value in values.items()}
        return pyarrow.table(columns | {"answer": pyarrow.array([answer], pyarrow.large_binary())})


@contextlib.contextmanager
def _connected(processors: int) -> Iterator[ModuleType]:
    """Connect Ray with the cluster of ``RAY_ADDRESS``, or with this machine's processors."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # the rest is in Ray's own files
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:  # Ray checks no password: its ports are for this machine alone
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    import ray.data

    if address.startswith("ray://"):
        raise ConfigError(f"RAY_ADDRESS={address}: work on a machine of the cluster, host:port")
    options: dict[str, object] = {"address": address}
    if address:
        say([f"the Ray cluster at {address}"])
    else:
        say(["RAY_ADDRESS names no cluster: a local one is started"])
        options = {"address": "local", "num_cpus": processors, "num_gpus": 0}
        options["include_dashboard"] = False
        options |= {"object_store_memory": STORE, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {error}") from None
    try:
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False  # foveate draws its own
        context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        yield ray
    finally:
        ray.shutdown()


def translate_folder(
    folder: Path,
    target: Path | None,
    format: str | None,
    spec: RunSpec,
    search: TranslateOptions,
    options: DocumentOptions,
    processes: int | None,
    threads: int,
) -> list[str]:
    """Translate each document of a folder into a file of the same name in another.

    A job that was begun with the same options continues. Raises ``ConfigError`` before any work is
    done for what cannot be translated.
    """
    if target is None:
        raise ConfigError(f"--in {folder} is a folder: give another for --out")
    out = target.resolve()
    if out.is_file() or out == folder.resolve() or folder.resolve() in out.parents:
        raise ConfigError(f"--out {target}: give a folder that is not in {folder}")
    folder, ray = folder.absolute(), spec.engine == "ray"
    if ray:
        from foveate.exchange.base import need

        need("ray", "pyarrow", extra="ray")
        spec = spec._replace(engine="torch")
    spec = _pinned(spec, torch_only={"--engine ray": ray})
    paths, skipped = folders.files_in(folder, format)
    sources = [
        folders.cut(path, name.as_posix(), format_of(path, format), folders.LINES)
        for path, name in ((path, path.relative_to(folder)) for path in paths)
    ]
    same: dict[str, object] = {  # what translations depend on, besides their sources and the run
        "search": search,
        "protect": options.rules.own,
        "to": options.to,
        "again": options.again,
        "draft": options.draft,
        "foveate": __version__,
    }
    weights = folders.weights_of(spec.run, *spec.ensemble)
    values = {"run": spec._asdict(), "weights": weights, "threads": threads, **same}
    same |= {"overrides": spec.overrides, "precision": spec.precision, "engine": spec.engine}
    same |= {"run": weights, "format": format, "lines": folders.LINES}
    job = folders.FolderJob(out, same, [source.target for source in sources])
    unfinished = [source for source in sources if job.finished(source) is None]
    execute = on_ray if ray and job.missing(unfinished) else in_processes
    refused = job.translate(unfinished, lambda parts: execute(values, parts, processes))
    left = {
        why: [p.relative_to(folder).as_posix() for p in paths] for why, paths in skipped.items()
    }
    report = _report(job, sources, len(unfinished), left)
    if refused:
        say(report)
        more = "; …" * (len(refused) > SHOWN)
        raise DocumentError(f"{len(refused):,} not translated: {'; '.join(refused[:SHOWN])}{more}")
    job.finish()
    return report


def _pinned(spec: RunSpec, torch_only: Mapping[str, object]) -> RunSpec:
    """Name the same weights by their checkpoint, which later training does not change.

    A packed file answers if it is named, or if PyTorch is not installed.
    """
    if shipped(Path(spec.run)).is_file() or find_spec("torch") is None:
        file, _ = spec.chosen(torch_only)
        if file is not None:
            return spec._replace(run=os.path.abspath(file))
    from foveate.train import checkpoint

    def weights(name: str) -> str:
        path, folder = checkpoint.run_of(shipped(Path(name)))
        return os.path.abspath(folder or checkpoint.folder_of(path, spec.checkpoint))

    return spec._replace(run=weights(spec.run), ensemble=tuple(map(weights, spec.ensemble)))


def _report(
    job: folders.FolderJob,
    sources: Sequence[folders.SourceFile],
    begun: int,
    skipped: Mapping[str, Sequence[str]],
) -> list[str]:
    tally, notes = Tally(), list[str]()
    finished = {source: job.finished(source) for source in sources}
    for source, events in finished.items():
        for event, lines in (events or {}).items():
            if event.startswith(folders.NOTE):
                notes.append(f"{source.target}{event}")
                continue
            places = (f"{source.name}:{line}" if line else source.name for line in lines)
            tally.note(event, *places)
    tally.remarks += notes[:SHOWN]
    if left := notes[SHOWN:]:
        tally.remarks.append(f"{len(left):,} more such notes")
    count, before = sum(source.lines for source in sources), len(sources) - begun
    new = sum(events is not None for events in finished.values()) - before
    sizes = {"file": len(sources), "line": count}
    summary = ", ".join(f"{n:,} {unit}" + "s" * (n != 1) for unit, n in sizes.items())
    summary += f": {new:,} translated"
    tally.remarks.append(summary + (f", {before:,} were done before" if before else ""))
    for why, paths in skipped.items():
        names = ", ".join(paths[:SHOWN]) + ", …" * (len(paths) > SHOWN)
        tally.remarks.append(f"left out, {why}: {len(paths):,}: {names}")
    return tally.report()
