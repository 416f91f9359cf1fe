"""Translating a folder of documents in parts, by processes of this machine or of a Ray cluster.

Each translated part is stored in the output folder, so that a job that was stopped continues. A
part is the same work for every process: the output does not depend on the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foveate import __version__
from foveate.answers import TextAnswer, TranslateOptions
from foveate.cli.options import DAMAGED, SHOWN, Tally, say
from foveate.cli.workers import RunSpec
from foveate.config import ConfigError, Tree
from foveate.data.corpus import Arrays, Meter, Work, WorkerError, cores, in_order
from foveate.documents.formats import (
    BY_LINES,
    ENDINGS,
    Document,
    DocumentOptions,
    format_of,
    jsonl_object,
    read_document,
    rows_of,
    same_language,
)
from foveate.documents.memory import aligner
from foveate.documents.spans import Rules
from foveate.documents.translate import joined_all
from foveate.errors import message_of
from foveate.files import replace_file, replacing
from foveate.run import Run, device
from foveate.server.languages import directions
from foveate.tasks.base import CUT
from foveate.tasks.text_to_text import TextToText
from foveate.train import checkpoint
from foveate.train.tensors import WEIGHTS

if TYPE_CHECKING:
    import pyarrow

LINES = 512  # of a part: a few seconds' work, which is all that is lost with a worker


class FilePart(NamedTuple):
    """Some bytes of a file, in plain values that go to other processes."""

    file: str
    kind: str  # the format
    start: int  # in bytes
    size: int  # in bytes
    first: int  # number of its first line, from 1
    lines: int
    digest: str  # of the format and the bytes: equal parts have equal translations

    def read(self) -> bytes:
        """Its bytes. Raises ``ConfigError`` where the file is no longer what it was."""
        with open(self.file, "rb") as file:
            file.seek(self.start)
            data = file.read(self.size)
        if _digest(self.kind, data) != self.digest:
            raise ConfigError(f"{self.file} was changed while it was translated; start again")
        return data


@dataclass(frozen=True)
class SourceFile:
    """A file of the folder: its name in the folder, and its parts."""

    name: str
    parts: tuple[FilePart, ...]

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return sum(part.lines for part in self.parts)

    @property
    def digest(self) -> str:
        """Of its whole content."""
        return hashlib.blake2b("".join(p.digest for p in self.parts).encode()).hexdigest()[:32]


def files_in(folder: Path, kind: str | None) -> tuple[list[Path], list[Path]]:
    """The files of a folder and its folders to translate, and those to skip, ordered by name.

    Without a ``kind``, files whose endings name no format are skipped. Hidden files do not count.
    Raises ``ConfigError`` where there is nothing to translate.
    """
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    chosen = [path for path in files if kind or path.suffix.lower() in ENDINGS]
    if not chosen:
        known = ", ".join(ENDINGS)
        raise ConfigError(f"{folder} holds no file that ends in {known}; else give --format")
    return chosen, [path for path in files if path not in set(chosen)]


def cut(path: Path, name: str, kind: str, lines: int) -> SourceFile:
    """A file in parts of ``lines`` lines each; a file of another format is one part.

    Raises ``ConfigError`` naming file and line of a row that holds no text to translate, so that
    this is known before any work is done.
    """
    parts, start, first = list[FilePart](), 0, 1
    for data in _pieces(path, kind, lines):
        count = _checked(data, kind, path, first)
        digest = _digest(kind, data)
        parts.append(FilePart(os.path.abspath(path), kind, start, len(data), first, count, digest))
        start, first = start + len(data), first + count
    return SourceFile(name, tuple(parts))


def _pieces(path: Path, kind: str, lines: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        if kind not in BY_LINES:
            yield file.read()
            return
        while piece := b"".join(islice(file, lines)):
            yield piece


def _checked(data: bytes, kind: str, path: Path, first: int) -> int:
    """How many lines a part has, each of which can be read."""
    if kind not in BY_LINES:
        return max(1, data.count(b"\n"))
    rows = rows_of(data.decode(errors="replace"))
    if kind == "jsonl":
        for number, (row, _) in enumerate(rows, start=first):
            jsonl_object(row, f"{path}:{number}")
    return len(rows)


def _digest(kind: str, data: bytes) -> str:
    return hashlib.blake2b(kind.encode() + b"\0" + data, digest_size=16).hexdigest()


def once(sources: Iterable[SourceFile]) -> list[FilePart]:
    """The parts of all sources in order, equal ones once."""
    return list({part.digest: part for source in sources for part in source.parts}.values())


# ------------------------------------------------------------------------------ documents


def with_languages(run: Run, options: DocumentOptions) -> DocumentOptions:
    """The options with the languages that a run translates from and into, where its files tell.

    Raises ``ConfigError`` where the run is known not to translate into the language of the options.
    """
    try:
        known = directions(run.config, run.path)
    except ConfigError:
        return options
    if options.to is not None:
        fitting = [d for d in known if same_language(d.target, options.to)]
        if not fitting:
            names = ", ".join(f"{d.source} to {d.target}" for d in known)
            raise ConfigError(f"--to {options.to}: {run.path} translates from {names}")
        known = fitting
    sources, targets = {d.source for d in known}, {d.target for d in known}
    return replace(
        options,
        source=sources.pop() if len(sources) == 1 else None,
        to=options.to or (targets.pop() if len(targets) == 1 else None),
    )


def translate_document(
    run: Run, document: Document, search: TranslateOptions
) -> tuple[bytes, list[TextAnswer]]:
    """The document in the other language, and the answers to its sentences."""
    sentences = [sentence for passage in document.passages for sentence in passage.sentences]
    if not run.need(TextToText, "translate").source_tokenizer.tags:
        search = {**search, "to": None}  # it names the language of the document
    answers = run.translate(sentences, **search) if sentences else []
    texts = iter([str(answer) for answer in answers])
    each = [list(islice(texts, len(passage.sentences))) for passage in document.passages]
    return document.written(joined_all(document.passages, each, aligner(run))), answers


# ------------------------------------------------------------------------------ executors

Events = dict[str, list[int]]  # event → its lines in a part, from 1; 0 where the line is unknown
PartTranslation = tuple[bytes, Events]


@dataclass(frozen=True)
class Assignment:
    """The parts to translate, as `translator` of plain ``values`` does it; ``files`` are read."""

    values: Mapping[str, object]
    parts: Sequence[FilePart]
    files: Sequence[str]
    processes: int | None  # None: as many as there is room for
    threads: int  # of each process


Executor = Callable[[Assignment], Generator[PartTranslation, None, None]]  # in the order of parts


def executor_of(spec: RunSpec) -> tuple[Executor, RunSpec]:
    """The executor of an engine, and how each of its workers loads the run.

    Raises `ExchangeError` where a package is missing.
    """
    if spec.engine != "ray":
        return in_processes, spec
    from foveate.export.base import need

    need("ray", "pyarrow", extra="ray")
    return on_ray, spec._replace(engine="torch")


def in_processes(assignment: Assignment) -> Generator[PartTranslation, None, None]:
    """Translate in this process, or in several that end when it ends."""
    if not assignment.parts:
        return
    room = 1 if device() == "cuda" else max(1, cores() // assignment.threads)
    count = assignment.processes or room
    for arrays in in_order(translator, assignment.values, assignment.parts, count):
        yield unpacked(arrays["answers"].tobytes())


def translator(values: Mapping[str, Any]) -> Work:
    """What each worker does: translate parts with a run of its own, on that many threads."""
    import torch

    torch.set_num_threads(values["threads"])
    run = RunSpec(**values["run"]).load()
    rules = Rules(tuple(values["protect"]))
    options = with_languages(run, DocumentOptions(rules, values["to"], values["again"]))

    def work(*fields: Any) -> Arrays:
        part = FilePart(*fields)
        data, damaged = _as_utf8(part)
        read = BY_LINES.get(part.kind) or partial(read_document, part.kind)
        document = read(data, options, part.file)
        text, answers = translate_document(run, document, values["search"])
        lines = document.lines or [0] * len(document.passages)
        places = (n for n, p in zip(lines, document.passages, strict=True) for _ in p.sentences)
        cut = {place for place, answer in zip(places, answers, strict=True) if answer.cut}
        events = {DAMAGED: damaged, CUT: sorted(cut)}
        return {"answers": np.frombuffer(packed(text, events), dtype=np.uint8)}

    return work


def packed(text: bytes, events: Events) -> bytes:
    """A translated part as bytes: a line of its events, then the text."""
    some = {event: lines for event, lines in events.items() if lines}
    return json.dumps(some).encode() + b"\n" + text


def unpacked(data: bytes) -> PartTranslation:
    """A translated part from the bytes of `packed`."""
    events, _, text = data.partition(b"\n")
    return text, json.loads(events)


def _as_utf8(part: FilePart) -> tuple[bytes, list[int]]:
    """The part, in formats of lines with U+FFFD for what is not UTF-8, and the lines with it."""
    data, damaged = part.read(), list[int]()
    if part.kind in BY_LINES:
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.decode(errors="replace").encode() != line:
                damaged.append(number)
    return data.decode(errors="replace").encode() if damaged else data, damaged


# ------------------------------------------------------------------------------ Ray
# Each worker is an actor that loads the run once. Ray Data starts a lost actor again and translates
# its unfinished parts anew; the translation of a part reaches this process once, in its turn.

STORE = 128 * 2**20  # bytes for results in transit, in a cluster that is started by this process
SECONDS = 300  # for a machine to check its files


def on_ray(assignment: Assignment) -> Generator[PartTranslation, None, None]:
    """Translate on the machines of a Ray cluster."""
    if not assignment.parts:
        return
    with _connected(assignment) as ray:
        room = _room(ray, assignment)
        count = min(assignment.processes or room, len(assignment.parts))
        threads = assignment.threads
        say([f"{count} workers of {'one thread' if threads == 1 else f'{threads} threads'} each"])
        rows = [{"number": n, "part": json.dumps(p)} for n, p in enumerate(assignment.parts)]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(dict(assignment.values),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=threads,
        )
        workers = set[str]()
        try:
            for number, row in enumerate(data.iter_rows()):
                if row["error"]:
                    raise WorkerError(f"in a worker: {row['error']}")
                if row["number"] != number:
                    raise WorkerError(f"Ray returned part {row['number']} in place of {number}")
                yield unpacked(row["answer"])
                workers.add(row["worker"])
        except ray.exceptions.RayError as error:
            raise WorkerError(
                f"Ray gave up: {_last_line(error)}; translated parts are stored, the same command "
                "continues"
            ) from error
        if len(workers) > count:
            say([f"{len(workers) - count} of the workers took the place of one that was lost"])


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


class _Worker:
    """A Ray actor: it loads the run once, and translates a part after the other."""

    def __init__(self, values: Mapping[str, object]) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # several would fill the memory of a GPU
        self._work = translator(values)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """The translation of the only row of a table, as such a table."""
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
def _connected(assignment: Assignment) -> Iterator[ModuleType]:
    """Ray, connected with the cluster of ``RAY_ADDRESS`` or one of this machine alone."""
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
        say(["RAY_ADDRESS names no cluster: one of this machine alone is started"])
        room = max(cores(), (assignment.processes or 1) * assignment.threads)
        options = {"address": "local", "num_cpus": room, "num_gpus": 0, "include_dashboard": False}
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


def _room(ray: ModuleType, assignment: Assignment) -> int:
    """How many workers the machines of the cluster have room for.

    Raises ``ConfigError`` naming a machine that does not see a file, or that has another foveate.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def problem_of(sizes: Mapping[str, int], version: str) -> str:
        """What prevents a machine from working, or nothing; it is sent whole and runs there."""
        import foveate

        if foveate.__version__ != version:
            return f"it has foveate {foveate.__version__}, this one {version}; install the same"
        for path, size in sizes.items():
            if not os.path.isfile(path):
                return f"it does not see {path}; share the folder under the same path, as by NFS"
            if os.path.getsize(path) != size:
                return f"its {path} is another file; share the folder, do not copy it"
        return ""

    room, checks = 0, {}
    sizes = {path: Path(path).stat().st_size for path in assignment.files}
    check = ray.remote(num_cpus=0, max_retries=0)(problem_of)
    for node in ray.nodes():
        own = int(node["Resources"].get("CPU", 0)) // assignment.threads if node["Alive"] else 0
        if own:
            room += own
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            checks[node["NodeManagerAddress"]] = check.options(scheduling_strategy=place).remote(
                sizes, __version__
            )
    for machine, result in checks.items():
        try:
            problem = ray.get(result, timeout=SECONDS)
        except ray.exceptions.RayError as error:
            problem = _last_line(error)
        if problem:
            raise ConfigError(f"machine {machine} of the cluster: {problem}")
    if not room:
        raise ConfigError(
            f"no machine of the cluster has {assignment.threads} processors for a worker"
        )
    return room


# ------------------------------------------------------------------------------ jobs
# A job stores its state in the output folder, each file written at once, so that it can continue
# after it was stopped at any moment.
#
#     OUT/.foveate/job.json     the options that all translations are made with
#     OUT/.foveate/parts/…      translated parts, under the digests of their sources
#     OUT/.foveate/done.jsonl   a line for each finished file


class FolderJob:
    """The state of a job in its output folder. Raises ``ConfigError`` where it is of another."""

    def __init__(self, out: Path, options: Mapping[str, object], names: Sequence[str]) -> None:
        self.out, self.folder = out, out / ".foveate"
        self.parts = self.folder / "parts"
        plain: Tree = json.loads(json.dumps(options))
        if (self.folder / "job.json").exists():
            self._refuse_others(plain)
        else:
            for name in names:
                if (out / name).exists():
                    raise ConfigError(f"{out / name} is there already; give another --out")
            self.parts.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / "job.json", json.dumps(plain, indent=2) + "\n")
        self.parts.mkdir(exist_ok=True)
        self.done = self._read_done()

    def _refuse_others(self, options: Tree) -> None:
        before = json.loads((self.folder / "job.json").read_text("utf-8"))
        for key in sorted(before.keys() | options.keys()):
            old, new = before.get(key), options.get(key)
            if old != new:
                raise ConfigError(
                    f"{self.out} was begun with {key} = {json.dumps(old)}, now it is "
                    f"{json.dumps(new)}; go on as it was begun, or give another --out"
                )

    def store(self, part: FilePart, translation: PartTranslation) -> None:
        """Store the translation of a part."""
        replace_file(self.parts / part.digest, packed(*translation))

    def missing(self, parts: Sequence[FilePart]) -> list[FilePart]:
        """The parts whose translations are not stored."""
        return [part for part in parts if not (self.parts / part.digest).exists()]

    def finished(self, source: SourceFile) -> Events | None:
        """The events of a file that is finished and lies there as it was written; else None."""
        record, path = self.done.get(source.name), self.out / source.name
        if record is None or record["source"] != source.digest or not path.is_file():
            return None
        return record["noted"] if path.stat().st_size == record["size"] else None

    def join(self, source: SourceFile) -> Events:
        """Write a file from its parts, and record it as finished."""
        events: Events = {}
        target = self.out / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            for part in source.parts:
                text, of_part = unpacked((self.parts / part.digest).read_bytes())
                file.write(text)
                for event, lines in of_part.items():
                    events.setdefault(event, []).extend(part.first - 1 + line for line in lines)
            size = file.tell()
        record = {"file": source.name, "source": source.digest, "size": size, "noted": events}
        with (self.folder / "done.jsonl").open("ab") as log:
            log.write(b"\n" + json.dumps(record).encode())  # a torn line before it stays one line
            log.flush()
            os.fsync(log.fileno())
        self.done[source.name] = record
        return events

    def _read_done(self) -> dict[str, Tree]:
        path, records = self.folder / "done.jsonl", {}
        for text in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                record = json.loads(text)
            except ValueError:
                continue  # empty, or torn when the job was stopped
            records[record["file"]] = record
        return records

    def finish(self) -> None:
        """Remove what only an unfinished job needs."""
        shutil.rmtree(self.parts, ignore_errors=True)


# ------------------------------------------------------------------------------ folders

GROWING = ("log.jsonl", "best.json")  # files of a run that do not change its answers


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

    A job that was begun with the same options continues. Raises ``ConfigError`` for what cannot be
    translated before any work is done.
    """
    if target is None:
        raise ConfigError(f"--in {folder} is a folder: give another for --out")
    out = target.resolve()
    if out.is_file() or out == folder.resolve() or folder.resolve() in out.parents:
        raise ConfigError(f"--out {target}: give a folder that is not in {folder}")
    folder = folder.absolute()
    execute, spec = executor_of(_pinned(spec))
    paths, skipped = files_in(folder, format)
    sources = [
        cut(path, path.relative_to(folder).as_posix(), format or format_of(path), LINES)
        for path in paths
    ]
    values = {
        "run": spec._asdict(),
        "search": search,
        "protect": options.rules.own,
        "to": options.to,
        "again": options.again,
        "threads": threads,
    }
    job = FolderJob(out, _identity(spec, values, format), [source.name for source in sources])
    unfinished = [source for source in sources if job.finished(source) is None]
    missing = job.missing(once(unfinished))
    files = [*_files_of(spec), *sorted({part.file for part in missing})]
    assignment = Assignment(values, missing, files, processes, threads)
    left = {part.digest for part in missing}
    with (
        closing(execute(assignment)) as translations,
        Meter("translating", sum(part.lines for part in missing), "lines") as meter,
    ):
        for source in unfinished:
            for part in source.parts:
                if part.digest in left:
                    job.store(part, next(translations))
                    left.remove(part.digest)
                    meter.add(part.lines)
            job.join(source)
        for _ in translations:  # none is left: the executor reports lost workers
            pass
    job.finish()
    return _report(job, sources, len(unfinished), [p.relative_to(folder) for p in skipped])


def _pinned(spec: RunSpec) -> RunSpec:
    """The same weights by the name of a checkpoint, which later training does not change."""

    def weights(name: str) -> str:
        path, folder = checkpoint.place(Path(name))
        return os.path.abspath(folder or checkpoint.folder_of(path, spec.checkpoint))

    return spec._replace(run=weights(spec.run), ensemble=tuple(map(weights, spec.ensemble)))


def _files_of(spec: RunSpec) -> list[str]:
    """The files that a worker reads of the runs, the weights first."""
    files: list[str] = []
    for name in (spec.run, *spec.ensemble):
        path, folder = checkpoint.place(Path(name))
        assert folder is not None
        own = [file for file in sorted(path.glob("[!.]*")) if file.is_file()]
        files += [str(folder / WEIGHTS)]
        files += [str(file) for file in own if file.name not in GROWING]
    return files


def _identity(spec: RunSpec, values: Mapping[str, object], format: str | None) -> dict[str, object]:
    """What the translations depend on, besides their sources."""
    weights = hashlib.sha256()
    for path in _files_of(spec):
        with open(path, "rb") as file:
            weights.update(hashlib.file_digest(file, "sha256").digest())
    return {
        "run": weights.hexdigest()[:16],
        "overrides": spec.overrides,
        "precision": spec.precision,
        "engine": spec.engine,
        **{key: value for key, value in values.items() if key not in ("run", "threads")},
        "format": format,
        "lines": LINES,
        "foveate": __version__,
    }


def _report(
    job: FolderJob, sources: Sequence[SourceFile], new: int, skipped: Sequence[Path]
) -> list[str]:
    tally = Tally()
    for source in sources:
        for event, lines in (job.finished(source) or {}).items():
            places = (f"{source.name}:{line}" if line else source.name for line in lines)
            tally.note(event, *places)
    count, before = sum(source.lines for source in sources), len(sources) - new
    summary = f"{len(sources):,} files, {count:,} lines: {new:,} translated"
    tally.remarks.append(summary + (f", {before:,} were done before" if before else ""))
    if skipped:
        names = ", ".join(p.as_posix() for p in skipped[:SHOWN]) + ", …" * (len(skipped) > SHOWN)
        tally.remarks.append(f"left out, of no known format: {len(skipped):,}: {names}")
    return tally.report()
