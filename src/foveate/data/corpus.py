"""Corpora, prepared once by all processors and read from memory-mapped files."""

import atexit
import errno
import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as rust
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foveate.config import import_own
from foveate.data.catalogue import DataError, MissingData
from foveate.data.text import (
    BILINGUAL,
    READERS,
    BadLine,
    ColumnWriter,
    Corpus,
    MappedTexts,
    Reading,
    TextData,
    TokenIds,
    at,
    decoded_lines,
    ending_of,
    is_table,
    mapped,
    portions,
)
from foveate.data.tokenizer import Tokenizer, valid
from foveate.errors import UserError
from foveate.files import cache_folder, locked, sync, write_text
from foveate.system import processors


class Meter(Progress):
    """A progress bar on standard error with rate, elapsed and remaining time, as a context."""

    def __init__(
        self, label: str, total: float | None, unit: str, console: Console | None = None
    ) -> None:
        """Take ``total`` in ``unit``, or None if it is unknown."""
        self.done, self.unit, self._began = 0.0, unit, time.monotonic()
        console = console or Console(stderr=True)
        words = TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[rate]}")
        columns = (*words, TimeElapsedColumn(), TimeRemainingColumn())
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._own = self.add_task(escape(label), total=total, rate="")

    def add(self, amount: float) -> None:
        """Advance by an amount."""
        self.done += amount
        rate = self.done / max(1e-9, time.monotonic() - self._began)
        self.update(self._own, completed=self.done, rate=f"{rate:,.0f} {self.unit}/s")

    def busy(self) -> None:
        """Show that work of unknown length continues."""
        self.update(self._own, total=None, rate="")


Span = tuple[int, int]  # from the first row to the one after the last
Arrays = dict[str, NDArray[Any]]
Values = Mapping[str, Any]  # plain values, sent as JSON
Work = Callable[..., Arrays]  # called with a span, or other plain values
Maker = Callable[[Values], Work]  # plain values → the work that they describe

ENOUGH = 100_000  # rows from which extra processes pay off
ROWS = 20_000  # rows of a span


def in_order(
    maker: Maker, values: Values, spans: Sequence[tuple[Any, ...]], processes: int | None = None
) -> Iterator[Arrays]:
    """Yield the results of ``maker(values)`` for each span, in order; the first error is raised.

    ``maker`` must be a function of a module. Without ``processes`` there is one per core, or only
    this one for fewer rows than `ENOUGH`; with them ``spans`` may be any arguments. Spans not begun
    when the caller stops are not computed.
    """
    if processes is None:
        processes = processors() if sum(stop - first for first, stop in spans) >= ENOUGH else 1
    processes = min(processes, len(spans))
    if processes <= 1:
        yield from starmap(maker(values), spans)
        return
    with worker_processes(maker, values, processes) as answers:
        yield from answers(spans)


def spans_of(rows: int, size: int = ROWS) -> list[Span]:
    """Cut all rows into spans."""
    return [(first, min(first + size, rows)) for first in range(0, rows, size)]


class WorkerError(UserError):
    """The work failed in another process, or that process was killed."""


class Worker:
    """A process that does the work on one span, or other plain values, after another.

    It is started as a program of its own: nothing is forked, and no script runs a second time. If
    this process is killed, the worker reads the end of its input and exits. Values are sent as
    JSON, arrays as raw bytes.
    """

    def __init__(self, maker: Maker, values: Values) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        variables = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | variables,
        )
        self._send((maker.__module__, maker.__name__, values))

    def __call__(self, values: Sequence[object]) -> Arrays:
        self._send(values)
        stream = self._process.stdout
        assert stream is not None
        line = stream.readline()
        header = json.loads(line) if line else "the process ended; was it killed, or out of memory?"
        if isinstance(header, str):
            raise WorkerError(f"in another process: {header}")
        arrays: Arrays = {}
        for key, (dtype, shape) in header.items():
            content = stream.read(math.prod(shape) * np.dtype(dtype).itemsize)
            arrays[key] = np.frombuffer(content, dtype=dtype).reshape(shape)
        return arrays

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended; reading the answer reports it
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process, also during its work."""
        self._process.kill()

    def close(self) -> None:
        """End the process and its pipes."""
        self.kill()
        self._process.communicate()


@contextmanager
def worker_processes(
    maker: Maker, values: Values, count: int
) -> Iterator[Callable[..., Iterator[Arrays]]]:
    """Yield a function of spans: the next idle one of the processes answers each, in order."""
    idle, threads = queue.SimpleQueue[Worker](), ThreadPoolExecutor(count)

    def work(span: Sequence[object]) -> Arrays:
        worker = idle.get()
        try:
            return worker(span)
        finally:
            idle.put(worker)

    with ExitStack() as stack:
        for _ in range(count):
            idle.put(stack.enter_context(closing(Worker(maker, values))))
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        yield functools.partial(threads.map, work)


def serve() -> None:
    """Run as a worker: the first line of standard input is the work, each other line a span."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # left to the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    sys.stdout = sys.stderr  # prints must not mix with the answers
    module, name, values = json.loads(sys.stdin.buffer.readline())
    work: Work | None = None
    for line in sys.stdin.buffer:
        try:
            if work is None:
                import_own()
                work = getattr(importlib.import_module(module), name)(values)
            arrays: Arrays = work(*json.loads(line))
        except Exception as error:
            answers.write(json.dumps(f"{type(error).__name__}: {error}").encode() + b"\n")
        else:
            header = {key: [a.dtype.name, a.shape] for key, a in arrays.items()}
            answers.write(json.dumps(header).encode() + b"\n")
            answers.writelines(a.tobytes() for a in arrays.values())
        try:
            answers.flush()
        except BrokenPipeError:  # the process that started this one has ended
            os._exit(1)


FORMAT = 2  # raised when a file is read or stored in another way (tests/test_prepared.py)
MANIFEST = "manifest.json"
DAYS = 30  # after which an unused folder is removed


def stored(key: Mapping[str, object], make: Callable[[Path], None], verify: bool = False) -> Path:
    """Return the cached folder of a key, filled by ``make`` if it does not exist yet.

    The name is a hash of the key and of `FORMAT`; the cache is that of `foveate.data.catalogue`, or
    the folder ``FOVEATE_PREPARED``. A folder whose files have other sizes, or with ``verify`` other
    contents, is made again. A killed process leaves no folder that looks complete. If several
    processes need a folder, one makes it and the others wait.
    """
    plain = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    target = _root() / hashlib.sha256(plain.encode()).hexdigest()[:32]
    if _whole(target, verify):
        return target
    with locked(target.with_suffix(".lock")):
        if not _whole(target, verify):
            _make(target, make)
            _forget(target.parent)
    return target


def digest_of(file: Path) -> str:
    """Return a hash of the content of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()[:32]


def origin(cls: type | Callable[..., object]) -> str:
    """Return the name of a class or function and, if not foveate's, a hash of its file."""
    if cls.__module__.startswith("foveate."):
        return cls.__qualname__
    try:
        return f"{cls.__qualname__} {digest_of(Path(inspect.getfile(inspect.unwrap(cls))))}"
    except (OSError, TypeError):  # typed into a notebook: never in the cache
        return f"{cls.__qualname__} {os.urandom(16).hex()}"


def _make(target: Path, make: Callable[[Path], None]) -> None:
    new = target.with_suffix(".new")
    for old in (new, target):  # left by a killed process, or damaged
        shutil.rmtree(old, ignore_errors=True)
    try:
        new.mkdir()
        make(new)
        files = {f.name: (f.stat().st_size, digest_of(f)) for f in sorted(new.iterdir())}
        for name in files:
            sync(new / name)
        write_text(new / MANIFEST, json.dumps(files))
        sync(new / MANIFEST)
        os.replace(new, target)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f"{target.parent} has too little free space for prepared data"
        raise DataError(f"{where}: free some, or name another folder in FOVEATE_PREPARED") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _whole(folder: Path, verify: bool) -> bool:
    """Return whether a folder has all its files at their sizes; update its time of use."""
    manifest = folder / MANIFEST
    try:
        files = {folder / name: entry for name, entry in json.loads(manifest.read_bytes()).items()}
        whole = all(file.stat().st_size == size for file, (size, _) in files.items())
        if verify and not all(digest_of(file) == digest for file, (_, digest) in files.items()):
            return False
    except (OSError, ValueError):
        return False
    with suppress(OSError):  # a read-only cache
        os.utime(manifest)
    return whole


def content_of(folder: Path) -> str:
    """Return a hash of the columns of a stored folder, computed when they were written."""
    files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    columns = {name: entry for name, entry in files.items() if name not in (FACTS, NUMBERS)}
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()


def _forget(root: Path) -> None:
    """Remove folders that were not used, or begun and not finished, for `DAYS` days."""
    for sign in (*root.glob(f"*/{MANIFEST}"), *root.glob("*.new")):
        with suppress(OSError):
            if sign.stat().st_mtime < time.time() - DAYS * 86_400:
                shutil.rmtree(sign if sign.is_dir() else sign.parent, ignore_errors=True)


def _root() -> Path:
    """Return the folder of the cache, or a temporary one if the cache is not writable."""
    named = os.environ.get("FOVEATE_PREPARED")
    root = Path(named).expanduser() if named else cache_folder() / "prepared"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary()
    return root if os.access(root, os.W_OK) else _temporary()


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="foveate-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


FACTS = "corpus.json"
TOKENIZER = "tokenizer.json"  # file of a tokenizer in the cache
NUMBERS = "numbers"  # column of the line numbers


def prepare_texts(readings: Sequence[Reading]) -> Corpus:
    """Return the pairs of all readings, concatenated, read or taken from the cache.

    Raises `DataError` like reading does; then nothing is cached.
    """
    parts = [
        {"kind": origin(type(reading)), "content": [digest_of(f) for f in reading.files]}
        | reading.key()
        | _own_code(reading)
        for reading in readings
    ]
    folder = stored({"texts": parts}, lambda folder: _write_texts(folder, readings))
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    sizes = facts["sizes"]
    numbers = np.arange(len(sizes), dtype=np.min_scalar_type(len(sizes)))
    return Corpus(
        sources=MappedTexts.open(folder, "source"),
        targets=MappedTexts.open(folder, "target"),
        lines=mapped(folder / NUMBERS, np.dtype(np.int64)),
        skipped=[BadLine(*bad) for bad in facts["skipped"]],
        dropped=facts["dropped"],
        parts=np.repeat(numbers, sizes) if len(sizes) > 1 else None,
        folder=folder,
    )


def _own_code(reading: Reading) -> dict[str, list[str]]:
    """Return the code of a user's own by which files are read, if there is any."""
    form = reading.config.format
    readers = {READERS.get(ending_of(file)) for file in reading.files} | {
        form.owner if form else None
    }
    own = [r for r in readers if r is not None and not r.__module__.startswith("foveate.")]
    return {"code": sorted(map(origin, own))} if own else {}


def _write_texts(folder: Path, readings: Sequence[Reading]) -> None:
    files = [file for reading in readings for file in dict.fromkeys(reading.files)]
    packed = any(file.suffix == ".gz" for file in files)
    total = None if packed else sum(file.stat().st_size for file in files) / 1e6
    sizes = []
    with ExitStack() as stack:
        meter = stack.enter_context(Meter("reading text", total, "MB"))
        sides = [stack.enter_context(ColumnWriter(folder, side)) for side in ("source", "target")]
        lines = stack.enter_context((folder / NUMBERS).open("wb"))
        for reading in readings:
            sizes.append(0)
            for pairs in portions(reading, ROWS):
                numbers, *texts = zip(*pairs, strict=True)
                lines.write(np.array(numbers, dtype=np.int64).tobytes())
                size = sum(side.add_texts(rows) for side, rows in zip(sides, texts, strict=True))
                meter.add((size + 2 * len(pairs)) / 1e6)
                sizes[-1] += len(pairs)
    dropped = Counter[str]()
    for reading in readings:
        dropped.update(reading.dropped)
    skipped = [(bad.file, bad.line, bad.reason) for reading in readings for bad in reading.skipped]
    facts = {"sizes": sizes, "dropped": dict(dropped), "skipped": skipped}
    write_text(folder / FACTS, json.dumps(facts))


def prepare_ids(
    folder: Path,
    tokenizers: Mapping[str, Tokenizer],
    end: Sequence[int] = (),
    processes: int | None = None,
) -> list[TokenIds]:
    """Return the ids of columns of texts, each by its tokenizer, encoded or from the cache.

    ``end`` are ids appended to every row. The result is the same for any ``processes``.
    """
    saved = {side: tokenizer.text() for side, tokenizer in tokenizers.items()}
    key = {
        "ids": folder.name,
        "end": list(end),
        "library": rust.__version__,
        "code": {side: origin(type(tokenizer)) for side, tokenizer in tokenizers.items()},
        "tokenizers": {s: hashlib.sha256(text.encode()).hexdigest() for s, text in saved.items()},
    }

    def make(new: Path) -> None:
        for side, text in saved.items():
            write_text(new / f"{side}.json", text)
        modules = sorted({type(tokenizer).__module__ for tokenizer in tokenizers.values()})
        values = {
            "texts": str(folder),
            "tokenizers": {side: str(new / f"{side}.json") for side in saved},
            "modules": modules,
            "end": list(end),
        }
        sizes = {side: tokenizer.vocab_size for side, tokenizer in tokenizers.items()}
        _write_ids(new, values, sizes, 1 if "__main__" in modules else processes)

    stored_ids = stored(key, make)
    return [TokenIds.open(stored_ids, f"{side}.ids") for side in tokenizers]


def learn_tokenizer(
    config: Tokenizer.Config, lines: Callable[[], Iterable[str]], label: str = "tokenizer"
) -> Tokenizer:
    """Return the tokenizer of a config trained on lines, from the cache if it was trained before.

    Each call of ``lines`` must give the same lines. The cache key is a hash of the lines, the
    config, the code and the version of the library; a damaged entry is trained again.
    """
    empty: Tokenizer = config.build()
    if empty.pieces:  # a kind without training
        return empty
    text = hashlib.sha256()
    count = 0
    for line in valid(lines()):
        text.update(line.encode() + b"\xff")  # a byte that never occurs in UTF-8
        count += 1
    key = {
        "tokenizer": config.tree(),
        "lines": text.hexdigest(),
        "library": rust.__version__,
        "code": origin(type(empty)),
    }
    seconds: list[float] = []

    def make(new: Path) -> None:
        began = time.monotonic()
        with Meter(f"training the {config.kind} {label}", count, "lines") as meter:
            empty.train(_counted(lines(), meter))
        seconds.append(time.monotonic() - began)
        empty.save(new / TOKENIZER)

    folder = stored(key, make, verify=True)
    if not seconds:
        print(f"{config.kind} {label} from the cache: {folder}", file=sys.stderr)
    elif seconds[0] > 1:
        print(f"{config.kind} {label} trained in {seconds[0]:,.0f} s", file=sys.stderr)
    return Tokenizer.load(folder / TOKENIZER)


def _counted(lines: Iterable[str], meter: Meter) -> Iterator[str]:
    """Yield the lines, counted by the meter, which then shows that the work continues."""
    for portion in portions(lines, 1000):
        yield from portion
        meter.add(len(portion))
    meter.busy()


def _write_ids(new: Path, values: Values, sizes: Mapping[str, int], processes: int | None) -> None:
    rows = len(MappedTexts.open(Path(values["texts"]), next(iter(sizes))))
    spans = spans_of(rows)
    with ExitStack() as stack:
        meter = stack.enter_context(Meter("making tokens", rows, "lines"))
        writers = {
            side: stack.enter_context(
                ColumnWriter(new, f"{side}.ids", np.min_scalar_type(size - 1))
            )
            for side, size in sizes.items()
        }
        results = in_order(encoder, values, spans, processes)
        for (first, stop), arrays in zip(spans, results, strict=True):
            for side, writer in writers.items():
                writer.add(arrays[side], arrays[f"{side} lengths"])
            meter.add(stop - first)


def encoder(values: Values) -> Work:
    """Return work on spans: the ids of texts, flat, and how many each has."""
    for module in values["modules"]:  # user modules register their kinds
        importlib.import_module(module)
    folder, end = Path(values["texts"]), values["end"]
    sides = {
        side: (Tokenizer.load(file), MappedTexts.open(folder, side))
        for side, file in values["tokenizers"].items()
    }

    def encode(first: int, stop: int) -> Arrays:
        arrays = {}
        for side, (tokenizer, texts) in sides.items():
            ids = tokenizer.encode_ids(texts[first:stop])
            ids = [row + end for row in ids] if end else ids
            lengths = np.fromiter(map(len, ids), np.int64, len(ids))
            dtype = np.min_scalar_type(tokenizer.vocab_size - 1)
            arrays[side] = np.fromiter(chain.from_iterable(ids), dtype, lengths.sum())
            arrays[f"{side} lengths"] = lengths
        return arrays

    return encode


def sample(count: int, most: int, seed: int) -> Sequence[int] | NDArray[np.int64]:
    """Return at most ``most`` of ``count`` rows, in order: all, or some drawn by the seed."""
    if count <= most:
        return range(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False, shuffle=False))


LINES = "lines"  # the column of a prepared text
SPLITS = ("train", "valid", "test")
Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Text:
    """The lines of a text; ``ended`` is true if the last one has its line end.

    Lines mapped from the files of a ``folder`` come with their number of characters, ``counted``.
    """

    lines: Sequence[str]
    ended: bool = True
    folder: Path | None = None
    counted: int | None = None

    @property
    def characters(self) -> int:
        """The number of characters, counting one for the end of each line."""
        if self.counted is not None:
            return self.counted
        return sum(map(len, self.lines)) + len(self.lines) - (not self.ended)


def read_text(path: Path, config: TextData) -> Text:
    """Read the lines of a file, plain or ``.gz``, in UTF-8.

    Raises `DataError` with the file and the first line that is not UTF-8; with ``on_bad_line =
    "skip"`` its bad bytes are read as U+FFFD.
    """
    return Text(list(_lines(path, config)))


def _lines(path: Path, config: TextData) -> Iterator[str]:
    if is_table(path):
        what = "pairs: name it as task.source of a translation"
        what = what if ending_of(path) in BILINGUAL else "rows: write its texts as .txt, one a line"
        raise DataError(f"{path} is not a text file, but holds {what}")
    for number, (line, why) in enumerate(decoded_lines(path), start=1):
        if why and config.on_bad_line == "error":
            raise DataError(
                f"{path}:{number}: {why}; fix it, or read such bytes as U+FFFD: "
                'data.on_bad_line = "skip"'
            )
        yield line


def _cut(lines: Iterable[str], start: int, stop: int) -> Iterator[tuple[str, bool]]:
    """Yield the parts of lines between two characters, and whether each has its line end."""
    done = 0
    for line in lines:
        part = (line + "\n")[max(0, start - done) : max(0, stop - done)]
        done += len(line) + 1
        if part:
            yield part.removesuffix("\n"), part.endswith("\n")


def read_text_split(pattern: str, shares: Shares, split: str, config: TextData) -> Text:
    """Return the text of one of the splits train, valid, test, which stays in files.

    If the pattern has no ``{split}``, the file is cut by ``shares`` of its characters, in this
    order. Raises `DataError` if the split is empty.
    """
    path, whole = at(pattern, split, config.splits), "{split}" in pattern
    if not whole and split not in SPLITS:
        raise DataError(f"{pattern} has no {{split}}; it is cut into {', '.join(SPLITS)}")
    part = None if whole else (shares, split)
    chosen = {"part": part, "bad": config.on_bad_line, "packed": path.suffix == ".gz"}
    key = {"text": digest_of(path), **chosen}
    folder = stored(key, lambda new: _write_lines(new, path, part, config))
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if not facts["characters"]:
        raise MissingData(
            f"{pattern} has nothing for {split}:",
            f"task.shares = {list(shares)} are the shares of train, valid and test",
        )
    return Text(MappedTexts.open(folder, LINES), facts["ended"], folder, facts["characters"])


def _limits(shares: Shares, split: str, characters: int) -> tuple[int, int]:
    """Return the first character of a split, and the one after its last."""
    limits = np.cumsum((0.0, *shares)) * characters + 1e-6  # 0.7 + 0.2 + 0.1 is below 1
    number = SPLITS.index(split)
    return int(limits[number]), int(limits[number + 1])


def _write_lines(
    folder: Path, path: Path, part: tuple[Shares, str] | None, config: TextData
) -> None:
    """Write the lines of a file, or of the part of a split."""
    characters, ended, limits = 0, True, (0, sys.maxsize)
    if part is not None:
        limits = _limits(*part, sum(len(line) + 1 for line in _lines(path, config)))
    total = None if path.suffix == ".gz" else path.stat().st_size / 1e6
    with Meter("reading text", total, "MB") as meter, ColumnWriter(folder, LINES) as writer:
        for pieces in portions(_cut(_lines(path, config), *limits), ROWS):
            meter.add((writer.add_texts([line for line, _ in pieces]) + len(pieces)) / 1e6)
            characters += sum(len(line) + end for line, end in pieces)
            ended = pieces[-1][1]
    write_text(folder / FACTS, json.dumps({"characters": characters, "ended": ended}))
