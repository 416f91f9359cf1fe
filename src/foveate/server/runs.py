"""The runs that the translation API serves, and the glossaries and memories of their directions.

Runs are loaded at the first request, unloaded when others need the memory, and loaded again when a
training has chosen other weights. Their queues are in `foveate.server.batching`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from foveate.config import ConfigError
from foveate.documents.memory import Assistance, Glossary, TranslationMemory
from foveate.run import Run, load, read_run
from foveate.server.batching import Batcher, Batching, DirectionAssistance
from foveate.server.common import RequestError, chosen_at, unused_name
from foveate.server.languages import Direction, directions
from foveate.train import checkpoint
from foveate.train.tensors import WEIGHTS

MIB = 2**20
FileNames = Sequence[str]  # FILE, or en:fr=FILE, or RUN=FILE
log = logging.getLogger("foveate.server")


@dataclass(eq=False)
class ServedRun:
    """A run that is served, in memory or not."""

    name: str
    folder: Path
    directions: list[Direction]
    batcher: Batcher = field(init=False)
    run: Run | None = None
    stamp: int = 0  # of the file that chose the weights in memory
    used: float = 0.0
    loads: int = 0
    assistance: dict[Direction, DirectionAssistance] = field(default_factory=dict)

    def weights(self) -> int:
        """Bytes of the weights on disk: about what they take in memory."""
        folder = checkpoint.folder_of(self.folder, "best")
        return (folder / WEIGHTS).stat().st_size


class RunPool:
    """Runs by the directions that they translate; several of them, within a limit of memory."""

    def __init__(
        self,
        folders: Sequence[Path],
        named: Mapping[str, str] | None = None,
        memory: int | None = None,
        batching: Batching | None = None,
        loader: Callable[[Path], Run] = load,
        copies: int = 1,
    ) -> None:
        """``named`` gives directions ("en:fr") by the names of folders; ``memory`` is in bytes of
        weights, of which ``loader`` makes so many ``copies``.

        Of two runs with the same direction the first one answers. Raises ``ConfigError`` where a
        folder is no run that translates, has no weights, or is larger than the memory alone.
        """
        self.memory, self._loader, self._copies = memory, loader, copies
        self.observe_batch: Callable[[str, int, float], None] = lambda name, size, seconds: None
        self.runs: dict[str, ServedRun] = {}
        self._lock = threading.Lock()
        named = dict(named or {})
        for folder in folders:
            folder = folder.expanduser().resolve()
            name = unused_name(folder.name, self.runs)
            languages = directions(read_run(folder), folder, named.get(folder.name))
            served = ServedRun(name, folder, languages)
            if memory is not None and (size := self._size(served)) > memory:
                alone = f"{folder} alone has {size // MIB:,} MiB of weights"
                raise ConfigError(f"{alone}: raise --weights")
            observe = partial(self._observe, name)
            served.batcher = Batcher(partial(self.run, served), batching, observe)
            self.runs[name] = served
        for name in named.keys() - {served.folder.name for served in self.runs.values()}:
            raise ConfigError(f"--as {name}={named[name]}: no run is called {name}")

    def _observe(self, name: str, size: int, seconds: float) -> None:
        self.observe_batch(name, size, seconds)

    # ---- directions

    def directions(self) -> list[tuple[ServedRun, Direction]]:
        """All directions of all runs."""
        return [(run, direction) for run in self.runs.values() for direction in run.directions]

    def table(self) -> dict[str, list[str]]:
        """The targets of each source language."""
        table: dict[str, list[str]] = {}
        for _, direction in self.directions():
            targets = table.setdefault(direction.source, [])
            targets += [direction.target] if direction.target not in targets else []
        return table

    def find(self, source: str, target: str) -> tuple[ServedRun, Direction] | None:
        """The first run that translates between two languages."""
        for run, direction in self.directions():
            if (direction.source, direction.target) == (source, target):
                return run, direction
        return None

    # ---- memory

    def run(self, served: ServedRun) -> Run:
        """The loaded run; it is loaded again after other weights were chosen.

        Where the new weights cannot be read, the run continues with the old ones.
        """
        served.used = time.monotonic()
        run, stamp = served.run, chosen_at(served.folder)
        if run is not None and stamp == served.stamp:
            return run
        try:
            return self._load(served)
        except Exception as error:
            why = {"run": served.name, "why": f"{type(error).__name__}: {error}"}
            log.error("cannot load" if run is None else "kept old weights", extra=why)
            if run is None:
                message = f"the model {served.name} cannot be loaded"
                raise RequestError(503, message, retry_after=10) from None
            served.run, served.stamp = run, stamp
        return run

    def load(self) -> None:
        """Load all runs now; the error of any of them is raised."""
        for served in self.runs.values():
            self._load(served)

    def _load(self, served: ServedRun) -> Run:
        stamp = chosen_at(served.folder)
        with self._lock:
            if served.run is None:
                self._make_room(served)
            served.run = run = self._loader(served.folder)
            served.stamp = stamp
            served.loads += 1
        return run

    def _make_room(self, new: ServedRun) -> None:
        """Unload the least recently used runs until the weights of another one fit."""
        if self.memory is None:
            return
        loaded = [run for run in self.runs.values() if run.run is not None and run is not new]
        sizes = {run.name: self._size(run) for run in loaded}
        for run in sorted(loaded, key=lambda run: run.used):
            if sum(sizes.values()) + self._size(new) <= self.memory:
                return
            run.run = None
            del sizes[run.name]
            log.info("dropped", extra={"run": run.name})

    def _size(self, served: ServedRun) -> int:
        return self._copies * served.weights()

    @property
    def alive(self) -> bool:
        """Whether the queues of all runs are answered."""
        return all(run.batcher.alive for run in self.runs.values())

    def close(self, seconds: float) -> bool:
        """Answer what waits and accept nothing more; whether that was done in the time."""
        end = time.monotonic() + seconds
        runs = list(self.runs.values())
        return all([run.batcher.close(max(0.0, end - time.monotonic())) for run in runs])


# ------------------------------------------------------------------------------ glossaries


@dataclass(frozen=True)
class TranslationOptions:
    """Glossaries and memories by direction; banned phrases and copying are for all directions."""

    glossary: FileNames = ()
    memory: FileNames = ()
    fuzzy: float = 100.0
    banned: Sequence[str] = ()
    copies_unknown: bool = False

    def equip(self, pool: RunPool) -> list[str]:
        """Give each direction its assistance; a sentence for each that has some.

        Raises ``ConfigError`` naming the file and the line that is wrong, a direction that no run
        has, or a run whose search cannot force terms.
        """
        glossaries = _by_direction(pool, "--glossary", self.glossary)
        memories = _by_direction(pool, "--memory", self.memory)
        sentences = []
        for run, direction in pool.directions():
            key = run.name, direction
            terms = None if key not in glossaries else Glossary.read(glossaries[key])
            memory = None if key not in memories else self._memory(memories[key], direction)
            assistance = Assistance(terms, (), self.banned, memory, self.copies_unknown)
            assistance.refuse(read_run(run.folder), run.name)
            if assistance:
                run.assistance[direction] = DirectionAssistance(assistance)
                words = _words(assistance, glossaries.get(key), memories.get(key))
                sentences.append(f"{direction.code} ({run.name}): {', '.join(words)}")
        return sentences

    def _memory(self, path: Path, direction: Direction) -> TranslationMemory:
        """The memory of a direction. Raises ``ConfigError`` where it has no pair of it."""
        memory = TranslationMemory.read(path, direction.target, self.fuzzy, direction.source)
        if not memory.pairs:
            raise ConfigError(f"{path} has no pair from {direction.source} to {direction.target}")
        return memory


def _words(assistance: Assistance, glossary: Path | None, memory: Path | None) -> list[str]:
    words = []
    if assistance.glossary is not None:
        words.append(f"glossary {glossary} (terms: {len(assistance.glossary.terms):,})")
    if assistance.memory is not None:
        least = (
            f", {assistance.memory.least:g} % alike will do"
            if assistance.memory.least < 100
            else ""
        )
        words.append(f"memory {memory} (pairs: {len(assistance.memory.pairs):,}{least})")
    if assistance.banned:
        words.append("banned: " + ", ".join(map(repr, assistance.banned)))
    if assistance.copies_unknown:
        words.append("unknown words are copied")
    return words


def _by_direction(
    pool: RunPool, option: str, names: FileNames
) -> dict[tuple[str, Direction], Path]:
    """The file of each direction of a run that has one."""
    files: dict[tuple[str, Direction], Path] = {}
    for value in names:
        key, equals, name = value.partition("=")
        if not equals or Path(value).exists():
            key, name = "", value
        path = Path(name)
        if not path.is_file():
            number = option == "--memory" and str(path).isdecimal()
            hint = "; for a limit of MiB say --weights" if number else ""
            raise ConfigError(f"{option} {path}: there is no such file{hint}")
        for run, direction in _named(pool, option, key, path):
            if (run.name, direction) in files:
                other = files[run.name, direction]
                raise ConfigError(f"{option}: {other} and {path} are both for {direction.code}")
            files[run.name, direction] = path
    return files


def _named(pool: RunPool, option: str, key: str, path: Path) -> list[tuple[ServedRun, Direction]]:
    """The directions that a key names: a pair of languages, a run, or without a key all.

    Without a key there has to be one direction, or a TMX, which names its languages itself.
    """
    every = pool.directions()
    if not key:
        codes = dict.fromkeys(direction.code for _, direction in every)
        if len(codes) > 1 and path.suffix.lower() != ".tmx":
            raise ConfigError(
                f"{option} {path}: for which direction? Say {option} {next(iter(codes))}={path}"
            )
        return every
    named = [(run, d) for run, d in every if key in (run.name, run.folder.name, d.code)]
    if not named:
        known = dict.fromkeys(name for run, d in every for name in (d.code, run.name))
        raise ConfigError(f"{option} {key}={path}: no {key}; there are: {', '.join(known)}")
    return named
