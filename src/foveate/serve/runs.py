"""The runs of a server, and those that the translation API serves by direction.

Runs are loaded at the first request, unloaded when others need the memory, and reloaded when
training has chosen other weights. Their queues are in `foveate.serve.batching`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foveate.config import ConfigError
from foveate.documents.languages import Direction, corpora_of, directions
from foveate.documents.memory import Assistance, AssistanceCounts, Glossary, TranslationMemory
from foveate.engine.answers import Translator
from foveate.engine.packed import header_of, packed_file
from foveate.serve.batching import Batcher, DirectionAssistance, TranslateLines
from foveate.serve.common import RequestError, unused_name
from foveate.serve.waiting import Batching

if TYPE_CHECKING:
    from foveate.run import Run, RunConfig

MIB = 2**20
SAMPLE = ["the dog runs in the garden and the cat sleeps"] * 4  # for measuring a rate
CHOSEN = "best.json"  # holds the name of the selected checkpoint; training changes it
FileNames = Sequence[str]  # FILE, or en:fr=FILE, or RUN=FILE
log = logging.getLogger("foveate.serve")


Loaded = TypeVar("Loaded")


@dataclass(eq=False)
class StoredRun(Generic[Loaded]):
    """A run in a store, in memory or not."""

    name: str
    folder: Path
    run: Loaded | None = None
    stamp: int = 0  # of the file that selected the weights in memory
    used: float = 0.0
    loads: int = 0

    @cached_property
    def config(self) -> RunConfig:
        """The config, read once."""
        from foveate.run import read_run

        return read_run(self.folder)

    @property
    def search(self) -> str | None:
        """The kind of search."""
        file = self.folder if self.folder.is_file() else packed_file(self.folder)[0]
        return self.config.decode.kind if file is None else header_of(file).search.name

    def chosen_at(self) -> int:
        """Return when training selected the weights, in ns; 0 if no file says so."""
        chosen = self.folder if self.folder.is_file() else self.folder / CHOSEN
        try:
            return chosen.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def weights(self) -> int:
        """Return the bytes of the weights on disk, about as many as in memory."""
        if self.folder.is_file():
            return self.folder.stat().st_size
        from foveate.train import checkpoint
        from foveate.train.stored import WEIGHTS

        return (checkpoint.folder_of(self.folder, "best") / WEIGHTS).stat().st_size


Stored = TypeVar("Stored", bound=StoredRun[Any])


def load_run(folder: Path) -> Run:
    """Load the run in a folder, in PyTorch."""
    from foveate.run import load

    return load(folder)


class RunStore(Generic[Stored, Loaded]):
    """Runs by the names of their folders, numbered if two are the same."""

    def __init__(self, loader: Callable[[Path], Loaded], memory: int | None = None) -> None:
        """``memory`` is in bytes of weights."""
        self.memory, self._loader = memory, loader
        self.runs: dict[str, Stored] = {}
        self._lock, self._loading = threading.Lock(), threading.Lock()

    def new_name(self, folder: Path) -> str:
        """Return a name for a folder that is not in the store yet."""
        return unused_name(re.sub(r"[^\w.-]+", "-", folder.name) or "run", self.runs)

    def load(self, stored: Stored) -> Loaded:
        """Return the loaded run; it is reloaded after other weights were selected.

        If the new weights cannot be read, the run continues with the old ones; if there are
        none, the error is raised.
        """
        stored.used = time.monotonic()
        run: Loaded | None = stored.run
        stamp = stored.chosen_at()
        if run is not None and stamp == stored.stamp:
            return run
        with self._loading:
            run = stored.run
            if run is not None and stamp == stored.stamp:
                return run
            if run is None:
                self._make_room(stored)
            try:
                stored.run = new = self._loader(stored.folder)
                stored.loads += 1
            except Exception as error:
                if run is None:
                    raise
                why = f"{type(error).__name__}: {error}"
                log.error("kept old weights", extra={"run": stored.name, "why": why})
                new = run
            stored.stamp = stamp
            return new

    def _make_room(self, new: Stored) -> None:
        """Unload the least recently used runs until the weights of another one fit."""
        if self.memory is None:
            return
        loaded = [run for run in self.runs.values() if run.run is not None and run is not new]
        sizes = {run.name: run.weights() for run in loaded}
        for run in sorted(loaded, key=lambda run: run.used):
            if sum(sizes.values()) + new.weights() <= self.memory:
                return
            run.run = None
            del sizes[run.name]
            log.info("dropped", extra={"run": run.name})


@dataclass(eq=False)
class ServedRun(StoredRun[Translator]):
    """A run that translates, with its queue."""

    directions: list[Direction] = field(default_factory=list)
    batcher: Batcher[Translator] = field(init=False)
    assistance: dict[Direction, DirectionAssistance] = field(default_factory=dict)
    requested: AssistanceCounts = field(default_factory=AssistanceCounts)  # provided by requests


class RunPool(RunStore[ServedRun, Translator]):
    """Runs by the directions that they translate."""

    def __init__(
        self,
        folders: Sequence[Path],
        named: Mapping[str, str] | None = None,
        memory: int | None = None,
        batching: Batching | None = None,
        loader: Callable[[Path], Translator] = load_run,
    ) -> None:
        """``named`` has directions ("en:fr") by the names of folders, or of files without ending.

        If two runs have the same direction, the first one answers. Raises ``ConfigError`` if a
        folder does not translate, has no weights, or is larger than the memory alone.
        """
        super().__init__(loader, memory)
        self.batching = batching = batching or Batching()
        named = dict(named or {})
        for folder in folders:
            folder = folder.expanduser().resolve()
            served = ServedRun(self.new_name(folder), folder)
            own = named.get(folder.name, named.get(folder.stem))
            served.directions = directions(corpora_of(folder), folder, own)
            if memory is not None and (size := served.weights()) > memory:
                alone = f"{folder} alone has {size // MIB:,} MiB of weights"
                raise ConfigError(f"{alone}: raise --weights")
            sample = TranslateLines(served.directions[0].to), SAMPLE
            served.batcher = Batcher(partial(self.run, served), batching, sample)
            self.runs[served.name] = served
        files = [served.folder for served in self.runs.values()]
        for name in named.keys() - {name for file in files for name in (file.name, file.stem)}:
            those = ", ".join(file.name for file in files)
            raise ConfigError(f"--as {name}={named[name]}: no run is called {name}; use {those}")

    def directions(self) -> list[tuple[ServedRun, Direction]]:
        """Return all directions of all runs."""
        return [(run, direction) for run in self.runs.values() for direction in run.directions]

    def table(self) -> dict[str, list[str]]:
        """Return the targets of each source language."""
        table: dict[str, list[str]] = {}
        for _, direction in self.directions():
            targets = table.setdefault(direction.source, [])
            targets += [direction.target] if direction.target not in targets else []
        return table

    def targets(self) -> list[str]:
        """Return the languages that are translated into."""
        return list(dict.fromkeys(code for codes in self.table().values() for code in codes))

    def find(self, source: str, target: str) -> tuple[ServedRun, Direction] | None:
        """Return the first run that translates between two languages."""
        pair = source, target
        matches = ((run, d) for run, d in self.directions() if (d.source, d.target) == pair)
        return next(matches, None)

    def run(self, served: ServedRun) -> Translator:
        """Return the loaded run. Raises `RequestError` (503) without any file name."""
        try:
            return self.load(served)
        except Exception as error:
            why = {"run": served.name, "why": f"{type(error).__name__}: {error}"}
            log.error("cannot load", extra=why)
            message = f"the model {served.name} cannot be loaded"
            raise RequestError(503, message, retry_after=10) from None

    @property
    def alive(self) -> bool:
        """True if the queues of all runs are answered."""
        return all(run.batcher.alive for run in self.runs.values())

    def close(self, seconds: float) -> bool:
        """Answer what waits and accept nothing more; return whether that was done in time."""
        end = time.monotonic() + seconds
        runs = list(self.runs.values())
        return all([run.batcher.close(max(0.0, end - time.monotonic())) for run in runs])


def equip(
    pool: RunPool,
    glossary: FileNames = (),
    memory: FileNames = (),
    fuzzy: float = 100.0,
    ban: Sequence[str] = (),
) -> list[str]:
    """Give each direction its assistance; return a sentence for each that has some.

    Banned phrases apply to all directions. Raises ``ConfigError`` for a wrong file,
    with the line, for a direction that no run has, or for a run whose search cannot force terms.
    """
    glossaries = _by_direction(pool, "--glossary", glossary)
    memories = _by_direction(pool, "--memory", memory)
    sentences = []
    for run, direction in pool.directions():
        key, terms, known, words = (run.name, direction), None, None, list[str]()
        if (path := glossaries.get(key)) is not None:
            terms = Glossary.read(path)
            words.append(f"glossary {path} (terms: {len(terms.terms):,})")
        if (path := memories.get(key)) is not None:
            source, to = direction.source, direction.target
            known = TranslationMemory.read(path, to, fuzzy, source)
            if not known.pairs:
                raise ConfigError(f"{path} has no pair from {source} to {to}")
            alike = f", {fuzzy:g} % alike will do" if fuzzy < 100 else ""
            words.append(f"memory {path} (pairs: {len(known.pairs):,}{alike})")
        if ban:
            words.append("banned: " + ", ".join(map(repr, ban)))
        assistance = Assistance(terms, (), ban, known)
        assistance.refuse(run.search, run.name)
        if words:
            run.assistance[direction] = DirectionAssistance(assistance)
            sentences.append(f"{direction.code} ({run.name}): {', '.join(words)}")
    return sentences


def _by_direction(
    pool: RunPool, option: str, names: FileNames
) -> dict[tuple[str, Direction], Path]:
    """Return the file of each run's direction that has one."""
    files: dict[tuple[str, Direction], Path] = {}
    for value in names:
        key, equals, name = value.partition("=")
        if not equals or Path(value).exists():
            key, name = "", value
        path = Path(name)
        if not path.is_file():
            number = option == "--memory" and str(path).isdecimal()
            hint = "; for a limit of MiB say --weights" if number else ""
            raise ConfigError(f"{option} {path}: file not found{hint}")
        for run, direction in _named(pool, option, key, path):
            if (run.name, direction) in files:
                other = files[run.name, direction]
                raise ConfigError(f"{option}: {other} and {path} are both for {direction.code}")
            files[run.name, direction] = path
    return files


def _named(pool: RunPool, option: str, key: str, path: Path) -> list[tuple[ServedRun, Direction]]:
    """Return the directions for a key: a language pair, a run, or without a key all.

    Without a key there must be one direction, or a TMX, which declares its languages.
    """
    every = pool.directions()
    if not key:
        codes = dict.fromkeys(direction.code for _, direction in every)
        if len(codes) > 1 and path.suffix.lower() != ".tmx":
            example = f"{option} {next(iter(codes))}={path}"
            raise ConfigError(f"{option} {path}: there are several directions; write {example}")
        return every
    named = [(run, d) for run, d in every if key in (run.name, run.folder.name, d.code)]
    if not named:
        known = dict.fromkeys(name for run, d in every for name in (d.code, run.name))
        raise ConfigError(
            f"{option} {key}={path}: {key} is not a direction or run; there are: {', '.join(known)}"
        )
    return named
