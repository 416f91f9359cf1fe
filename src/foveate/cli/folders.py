"""A folder of documents through a run: parts, who translates them, and what is done.

The folder is cut into parts, processes of this machine or of a Ray cluster translate them, and what
is done stays done. A part is the same work for all of them, so the bytes that come out do not
depend on who did it.
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
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from foveate import __version__
from foveate.cli.streams import DAMAGED, NAMED, Files, Tally, from_known, translated
from foveate.cli.workers import Loading
from foveate.config import ConfigError
from foveate.data.corpus import Arrays, Meter, Work, WorkerError, cores, in_order
from foveate.documents.documents import (
    BY_LINES,
    ENDINGS,
    Choices,
    format_of,
    read_document,
    rows_of,
    tree_of,
)
from foveate.documents.spans import Rules
from foveate.errors import message_of
from foveate.files import replace_file, replacing
from foveate.run import device
from foveate.tasks.base import CUT
from foveate.train import checkpoint

LINES = 512  # of a part: a few seconds' work, and all that is lost with a worker


class Part(NamedTuple):
    """Some bytes of a file, in plain values that another process can be told."""

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
class Source:
    """A file of the folder: its name in there, and its parts."""

    name: str
    parts: tuple[Part, ...]

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return sum(part.lines for part in self.parts)

    @property
    def digest(self) -> str:
        """Of its whole content."""
        return hashlib.blake2b("".join(p.digest for p in self.parts).encode()).hexdigest()[:32]


def files_in(folder: Path, kind: str | None) -> tuple[list[Path], list[Path]]:
    """The files of a folder and its folders, in the order of their names, and those passed over.

    Without a ``kind`` those are passed over whose endings tell no format. Hidden ones do not
    count. Raises ``ConfigError`` where there is nothing to translate.
    """
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    chosen = [path for path in found if kind or path.suffix.lower() in ENDINGS]
    if not chosen:
        known = ", ".join(ENDINGS)
        raise ConfigError(f"{folder} holds no file that ends in {known}; else give --format")
    return chosen, [path for path in found if path not in set(chosen)]


def cut(path: Path, name: str, kind: str, lines: int) -> Source:
    """A file in parts of so many lines; formats that are no lines are one part.

    Raises ``ConfigError`` naming file and line of a row that holds no text to translate, so that
    this is known before any work is done.
    """
    parts, start, first = list[Part](), 0, 1
    for data in _pieces(path, kind, lines):
        count = _checked(data, kind, path, first)
        digest = _digest(kind, data)
        parts.append(Part(os.path.abspath(path), kind, start, len(data), first, count, digest))
        start, first = start + len(data), first + count
    return Source(name, tuple(parts))


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
            tree_of(row, f"{path}:{number}")
    return len(rows)


def _digest(kind: str, data: bytes) -> str:
    return hashlib.blake2b(kind.encode() + b"\0" + data, digest_size=16).hexdigest()


def once(sources: Iterable[Source]) -> list[Part]:
    """The parts of all sources in order, equal ones once."""
    return list({part.digest: part for source in sources for part in source.parts}.values())


# ------------------------------------------------------------------------------------------- hands
# Who translates the parts of a folder: processes of this machine, or those of a cluster.

Noted = dict[str, list[int]]  # what happened → to which lines of a part, from 1; 0: nobody knows
Answer = tuple[bytes, Noted]  # the translation of a part


@dataclass(frozen=True)
class Order:
    """What is to be done: each part, as `translator` of the plain ``values`` does it.

    ``needed`` are files that whoever works must see, ``say`` tells the user something.
    """

    values: Mapping[str, Any]
    parts: Sequence[Part]
    needed: Sequence[str]
    processes: int | None  # None: as many as there is room for
    threads: int  # of each
    say: Callable[[str], None]


Hands = Callable[[Order], Generator[Answer, None, None]]  # the answers in the order of the parts


def hands_of(loading: Loading) -> tuple[Hands, Loading]:
    """Who does the work by the engine, and how each of them loads the run.

    Raises `ExchangeError` where a package is missing.
    """
    if loading.engine == "ray":
        return through_ray(), loading._replace(engine="torch")
    return by_processes, loading


def by_processes(order: Order) -> Generator[Answer, None, None]:
    """Done by this process alone, or by several more that end when it ends, however it does."""
    if not order.parts:
        return
    room = 1 if device() == "cuda" else max(1, cores() // order.threads)
    count = order.processes or room
    for arrays in in_order(translator, order.values, order.parts, count):
        yield opened(arrays["answers"].tobytes())


def translator(values: Mapping[str, Any]) -> Work:
    """What each of them does: translate parts with a run of its own, on so many threads."""
    import torch

    from foveate.documents.memory import Aided

    torch.set_num_threads(values["threads"])
    run = Aided(Loading(**values["loading"]).load())
    said = Choices(Rules(tuple(values["protect"])), values["to"], values["again"])
    choices = from_known(run.run, said)

    def work(*fields: Any) -> Arrays:
        part = Part(*fields)
        data, damaged = _readable(part)
        read = BY_LINES.get(part.kind) or partial(read_document, part.kind)
        document = read(data, choices, part.file)
        text, answers = translated(run, document, values["search"])
        lines = document.lines or [0] * len(document.passages)
        places = (n for n, p in zip(lines, document.passages, strict=True) for _ in p.sentences)
        long = {place for place, answer in zip(places, answers, strict=True) if answer.cut}
        noted = {DAMAGED: damaged, CUT: sorted(long)}
        return {"answers": np.frombuffer(closed(text, noted), dtype=np.uint8)}

    return work


def closed(text: bytes, noted: Noted) -> bytes:
    """An answer as bytes: what happened on a line, and the translation after it."""
    return (
        json.dumps({what: lines for what, lines in noted.items() if lines}).encode() + b"\n" + text
    )


def opened(data: bytes) -> Answer:
    """An answer of such bytes."""
    noted, _, text = data.partition(b"\n")
    return text, json.loads(noted)


def _readable(part: Part) -> tuple[bytes, list[int]]:
    """The part, in formats of lines with U+FFFD for what is not UTF-8, and the lines with it."""
    data = part.read()
    if part.kind not in BY_LINES:
        return data, []
    damaged = [n for n, line in enumerate(data.split(b"\n"), start=1) if not _sound(line)]
    return data.decode(errors="replace").encode() if damaged else data, damaged


def _sound(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


# ----------------------------------------------------------------------------------------- cluster
# The parts of a folder translated by Ray Data, on the machines of a cluster.
#
# Each worker is a Ray actor that loads the run once. One that dies is started again, and the parts
# that it had in hand are dealt out anew: that is what Ray Data does unless told otherwise. A
# part's
# answer reaches this process once, in its turn.

STORE = 128 * 2**20  # bytes for answers on their way, in a cluster that is started here
SECONDS = 300  # for a machine to say what it sees


def through_ray() -> Hands:
    """The hands of a cluster. Raises `ExchangeError` where Ray Data is not installed."""
    from foveate.export.base import need

    need("ray", "pyarrow", extra="ray")
    return _answers


def _answers(order: Order) -> Generator[Answer, None, None]:
    if not order.parts:
        return
    with _connected(order) as ray:
        rooms = _rooms(ray, order)
        count = min(order.processes or rooms, len(order.parts))
        each = "one thread" if order.threads == 1 else f"{order.threads} threads"
        order.say(f"{count} workers of {each} each")
        rows = [{"number": n, "part": json.dumps(p)} for n, p in enumerate(order.parts)]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(dict(order.values),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=order.threads,
        )
        seen = set[str]()
        try:
            for number, row in enumerate(data.iter_rows()):
                yield _answer(row, number)
                seen.add(row["worker"])
        except ray.exceptions.RayError as error:
            raise WorkerError(
                f"Ray gave up: {_last_line(error)}; what is done is kept, the same command goes on"
            ) from error
        if len(seen) > count:
            order.say(f"{len(seen) - count} of the workers took the place of one that was lost")


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _answer(row: Mapping[str, Any], number: int) -> Answer:
    if row["error"]:
        raise WorkerError(f"in a worker: {row['error']}")
    if row["number"] != number:
        raise WorkerError(f"Ray gave the answer to part {row['number']} in place of {number}")
    return opened(row["answer"])


class _Worker:
    """An actor: it loads the run once, and translates a part after the other."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # several would fill the memory of a GPU
        self._work = translator(values)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def __call__(self, batch: Any) -> Any:
        """The answer to the one row of a table, as such a table."""
        import pyarrow

        (row,) = batch.to_pylist()
        answer, error = b"", ""
        try:
            answer = self._work(*json.loads(row["part"]))["answers"].tobytes()
        except Exception as problem:  # it would be the same in another worker
            error = f"{type(problem).__name__}: {message_of(problem)}"
        found = {"number": row["number"], "error": error, "worker": self._name}
        columns = {name: pyarrow.array([value]) for name, value in found.items()}
        return pyarrow.table(columns | {"answer": pyarrow.array([answer], pyarrow.large_binary())})


# ------------------------------------------------------------------------------ the cluster


@contextlib.contextmanager
def _connected(order: Order) -> Iterator[Any]:
    """Ray, connected with the cluster of ``RAY_ADDRESS`` or one of this machine alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing calls home
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # the rest is in Ray's own files
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:  # Ray asks nobody for a password: its ports are for this machine alone
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    import ray.data

    if address.startswith("ray://"):
        raise ConfigError(f"RAY_ADDRESS={address}: work on a machine of the cluster, host:port")
    if address:
        order.say(f"the Ray cluster at {address}")
        here: dict[str, Any] = {"address": address}
    else:
        order.say("RAY_ADDRESS names no cluster: one of this machine alone is started")
        room = max(cores(), (order.processes or 1) * order.threads)
        here = {"address": "local", "num_cpus": room, "num_gpus": 0, "include_dashboard": False}
        here |= {"object_store_memory": STORE, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**here, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {error}") from None
    try:
        _quiet(ray)
        yield ray
    finally:
        ray.shutdown()


def _quiet(ray: Any) -> None:
    """Answers in the order of the parts, and no bars beside our own."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _rooms(ray: Any, order: Order) -> int:
    """How many workers the machines have room for, each of which has what the workers need.

    Raises ``ConfigError`` naming a machine that does not see a file, or that has another foveate.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def sees(wanted: Mapping[str, int], version: str) -> str:
        """What keeps a machine from working, or nothing; travels whole, for it runs there."""
        import foveate

        if foveate.__version__ != version:
            return f"it has foveate {foveate.__version__}, this one {version}; install the same"
        for path, size in wanted.items():
            if not os.path.isfile(path):
                return f"it does not see {path}; share the folder under the same path, as by NFS"
            if os.path.getsize(path) != size:
                return f"its {path} is another file; share the folder, do not copy it"
        return ""

    rooms, asked = 0, {}
    wanted = {path: Path(path).stat().st_size for path in order.needed}
    check = ray.remote(num_cpus=0, max_retries=0)(sees)
    for node in ray.nodes():
        room = int(node["Resources"].get("CPU", 0)) // order.threads if node["Alive"] else 0
        if room:
            rooms += room
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[node["NodeManagerAddress"]] = check.options(scheduling_strategy=there).remote(
                wanted, __version__
            )
    for machine, answer in asked.items():
        try:
            problem = ray.get(answer, timeout=SECONDS)
        except ray.exceptions.RayError as error:
            problem = _last_line(error)
        if problem:
            raise ConfigError(f"machine {machine} of the cluster: {problem}")
    if not rooms:
        raise ConfigError(f"no machine of the cluster has {order.threads} processors for a worker")
    return rooms


# --------------------------------------------------------------------------------------------- job
# What a folder of translations knows of its making: parts that are done, files that are done.
#
#     OUT/.foveate/job.json     the choices that all of it was made with
#     OUT/.foveate/parts/…      translated parts, under the digests of their sources
#     OUT/.foveate/done.jsonl   a line for each file that is whole
#
# Each file appears whole or not at all, so a job that was stopped at any moment goes on. Does not
# live here: translating (`hands`).


class Job:
    """The state of one job in its output folder. Raises ``ConfigError`` where it has another."""

    def __init__(self, out: Path, choices: Mapping[str, Any], names: Sequence[str]) -> None:
        self.out, self.folder = out, out / ".foveate"
        self.parts = self.folder / "parts"
        plain: dict[str, Any] = json.loads(json.dumps(choices))
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

    def _refuse_others(self, choices: dict[str, Any]) -> None:
        before = json.loads((self.folder / "job.json").read_text("utf-8"))
        for key in sorted(before.keys() | choices.keys()):
            old, new = before.get(key), choices.get(key)
            if old != new:
                raise ConfigError(
                    f"{self.out} was begun with {key} = {json.dumps(old)}, now it is "
                    f"{json.dumps(new)}; go on as it was begun, or give another --out"
                )

    # ---- parts

    def place(self, part: Part) -> Path:
        """Where the translation of a part is kept."""
        return self.parts / part.digest

    def keep(self, part: Part, answer: Answer) -> None:
        """Keep the translation of a part."""
        replace_file(self.place(part), closed(*answer))

    def missing(self, parts: Sequence[Part]) -> list[Part]:
        """Those parts that are not kept."""
        return [part for part in parts if not self.place(part).exists()]

    # ---- files

    def whole(self, source: Source) -> Noted | None:
        """What happened in a file that is done and lies there as it was written; else None."""
        found = self.done.get(source.name)
        path = self.out / source.name
        if found is None or found["source"] != source.digest or not path.is_file():
            return None
        return found["noted"] if path.stat().st_size == found["size"] else None

    def join(self, source: Source) -> Noted:
        """Put the parts of a file together, and note it as done."""
        noted: Noted = {}
        target = self.out / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            for part in source.parts:
                text, happened = opened(self.place(part).read_bytes())
                file.write(text)
                for what, lines in happened.items():
                    noted.setdefault(what, []).extend(part.first - 1 + line for line in lines)
            size = file.tell()
        line = {"file": source.name, "source": source.digest, "size": size, "noted": noted}
        with (self.folder / "done.jsonl").open("ab") as log:
            log.write(b"\n" + json.dumps(line).encode())  # a torn line before it stays one line
            log.flush()
            os.fsync(log.fileno())
        self.done[source.name] = line
        return noted

    def _read_done(self) -> dict[str, dict[str, Any]]:
        path, found = self.folder / "done.jsonl", {}
        for text in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # empty, or torn when the job was stopped
            found[line["file"]] = line
        return found

    def finish(self) -> None:
        """Remove what only an unfinished job needs."""
        shutil.rmtree(self.parts, ignore_errors=True)


# ------------------------------------------------------------------------------------------ corpus
# A folder of documents through a run: N lines in, N lines out, whoever does the work.
#
# The folder is cut into parts (`parts`), these are translated by many at once (`hands`,
# `cluster`),
# and what is done stays done (`job`). A part is the same work for all of them, so the bytes that
# come
# out do not depend on who did it.

GROWING = ("log.jsonl", "best.json")  # files of a run that do not change what it answers


@dataclass(frozen=True)
class Team:
    """How many work, each on how many threads, and how the user is told something."""

    processes: int | None
    threads: int
    say: Callable[[str], None]


def translate_folder(
    files: Files, loading: Loading, choices: Choices, search: dict[str, Any], team: Team
) -> Tally:
    """Translate each document of a folder into a file of the same name in another.

    What was done before by the same choices is not done again. Raises ``ConfigError`` for what
    cannot be translated before any work is done.
    """
    folder, out = _folders(files)
    hands, loading = hands_of(_pinned(loading))
    paths, passed = files_in(folder, files.format)
    sources = [
        cut(path, path.relative_to(folder).as_posix(), files.format or format_of(path), LINES)
        for path in paths
    ]
    values = {
        "loading": loading._asdict(),
        "search": search,
        "protect": choices.rules.own,
        "to": choices.to,
        "again": choices.again,
        "threads": team.threads,
    }
    job = Job(out, _identity(values, files.format), [source.name for source in sources])
    open_ = [source for source in sources if job.whole(source) is None]
    missing = job.missing(once(open_))
    needed = [*_files_of(loading), *sorted({part.file for part in missing})]
    order = Order(values, missing, needed, team.processes, team.threads, team.say)
    left = {part.digest for part in missing}
    with (
        closing(hands(order)) as answers,
        Meter("translating", sum(part.lines for part in missing), "lines") as meter,
    ):
        for source in open_:
            for part in source.parts:
                if part.digest in left:
                    job.keep(part, next(answers))
                    left.remove(part.digest)
                    meter.add(part.lines)
            job.join(source)
        for _ in answers:  # there are no more; who works may say how it went
            pass
    job.finish()
    left_out = [path.relative_to(folder).as_posix() for path in passed]
    return _report(job, sources, len(open_), left_out)


def _folders(files: Files) -> tuple[Path, Path]:
    assert files.source is not None
    if files.target is None:
        raise ConfigError(f"--in {files.source} is a folder: give another for --out")
    folder, out = files.source.resolve(), files.target.resolve()
    if out.is_file() or out == folder or folder in out.parents:
        raise ConfigError(f"--out {files.target}: give a folder that is not in {files.source}")
    return files.source.absolute(), out


# ------------------------------------------------------------------------------ the run


def _pinned(loading: Loading) -> Loading:
    """The same weights by a name that a training which goes on does not change."""
    return loading._replace(
        run=_weights(loading.run, loading.checkpoint),
        ensemble=tuple(_weights(name, loading.checkpoint) for name in loading.ensemble),
    )


def _weights(name: str, which: str) -> str:
    path, folder = checkpoint.place(Path(name))
    return os.path.abspath(folder or checkpoint.folder_of(path, which))


def _files_of(loading: Loading) -> list[str]:
    """What a worker reads of the runs, the weights first."""
    found: list[str] = []
    for name in (loading.run, *loading.ensemble):
        path, folder = checkpoint.place(Path(name))
        assert folder is not None
        own = [file for file in sorted(path.glob("[!.]*")) if file.is_file()]
        found += [str(folder / checkpoint.WEIGHTS)]
        found += [str(file) for file in own if file.name not in GROWING]
    return found


def _identity(values: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """What the translations are a function of, next to their sources."""
    loading = Loading(**values["loading"])
    apart = {"loading", "threads"}
    return {
        "run": _digest_corpus(_files_of(loading)),
        "overrides": loading.overrides,
        "precision": loading.precision,
        "engine": loading.engine,
        **{key: value for key, value in values.items() if key not in apart},
        "format": kind,
        "lines": LINES,
        "foveate": __version__,
    }


def _digest_corpus(paths: Sequence[str]) -> str:
    """One of all files."""
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:16]


# ------------------------------------------------------------------------------ the end


def _report(job: Job, sources: Sequence[Source], new: int, left_out: Sequence[str]) -> Tally:
    tally = Tally()
    for source in sources:
        noted: Noted = job.whole(source) or {}
        for what, lines in noted.items():
            for line in lines:
                tally.note(what, f"{source.name}:{line}" if line else source.name)
    count, before = sum(source.lines for source in sources), len(sources) - new
    said = f"{len(sources):,} files, {count:,} lines: {new:,} translated"
    tally.remarks.append(said + (f", {before:,} were done before" if before else ""))
    if left_out:
        names = ", ".join(left_out[:NAMED]) + ", …" * (len(left_out) > NAMED)
        tally.remarks.append(f"left out, of no known format: {len(left_out):,}: {names}")
    return tally
