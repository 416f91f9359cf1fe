"""The runs that are served: loaded when they are first asked for, dropped by least use, renewed.

Lives here: which run answers for a direction, and what is in memory. Does not live here: the queue
of each (`foveate.serve.batcher`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foveate.config import ConfigError
from foveate.run import Run, load, read_run
from foveate.serve.batcher import Batcher
from foveate.serve.errors import Refused
from foveate.serve.languages import Direction, directions
from foveate.serve.settings import Batching
from foveate.train import checkpoint

if TYPE_CHECKING:
    from foveate.serve.helping import Helped

CHOSEN = "best.json"  # says which weights are the run's; a training changes it
MIB = 2**20
Load = Callable[[Path], Run]
log = logging.getLogger("foveate.serve")


@dataclass(eq=False)
class Place:
    """A run that is served, in memory or not."""

    name: str
    folder: Path
    directions: list[Direction]
    batcher: Batcher = field(init=False)
    run: Run | None = None
    stamp: int = 0  # of the file that chose the weights in memory
    used: float = 0.0
    loads: int = 0
    helped: dict[Direction, Helped] = field(default_factory=dict)  # see foveate.serve.helping

    def weights(self) -> int:
        """Bytes of the weights on disk: about what they take in memory."""
        folder = checkpoint.folder_of(self.folder, "best")
        return (folder / checkpoint.WEIGHTS).stat().st_size

    def chosen(self) -> int:
        """When its weights were chosen, in ns; 0 where nothing says so."""
        try:
            return (self.folder / CHOSEN).stat().st_mtime_ns
        except FileNotFoundError:
            return 0


class Fleet:
    """Runs by the directions that they translate; several of them, within a limit of memory."""

    def __init__(
        self,
        folders: Sequence[Path],
        named: Mapping[str, str] | None = None,
        memory: int | None = None,
        batching: Batching | None = None,
        loader: Load = load,
        copies: int = 1,
    ) -> None:
        """``named`` gives directions ("en:fr") by the names of folders; ``memory`` is in bytes of
        weights, of which ``loader`` makes so many ``copies``.

        Of two runs with the same direction the first one answers. Raises ``ConfigError`` where a
        folder is no run that translates, has no weights, or is larger than the memory alone.
        """
        self.memory, self._loader, self._copies = memory, loader, copies
        self.batch_seen: Callable[[str, int, float], None] = lambda name, size, seconds: None
        self.places: dict[str, Place] = {}
        self._lock = threading.Lock()
        said = dict(named or {})
        for folder in folders:
            folder = folder.expanduser().resolve()
            name = self._free(folder.name)
            place = Place(name, folder, directions(read_run(folder), folder, said.get(folder.name)))
            if memory is not None and (size := self._size(place)) > memory:
                alone = f"{folder} alone has {size // MIB:,} MiB of weights"
                raise ConfigError(f"{alone}: raise --weights")
            observe = partial(self._seen, name)
            place.batcher = Batcher(partial(self.run, place), batching, observe)
            self.places[name] = place
        for name in said.keys() - {place.folder.name for place in self.places.values()}:
            raise ConfigError(f"--as {name}={said[name]}: no run is called {name}")

    def _free(self, stem: str) -> str:
        name, number = stem, 2
        while name in self.places:
            name, number = f"{stem}-{number}", number + 1
        return name

    def _seen(self, name: str, size: int, seconds: float) -> None:
        self.batch_seen(name, size, seconds)

    # ---- directions

    def table(self) -> dict[str, list[str]]:
        """The targets of each source language."""
        found: dict[str, list[str]] = {}
        for place in self.places.values():
            for one in place.directions:
                targets = found.setdefault(one.source, [])
                targets += [one.target] if one.target not in targets else []
        return found

    def find(self, source: str, target: str) -> tuple[Place, Direction] | None:
        """Who translates so."""
        for place in self.places.values():
            for one in place.directions:
                if (one.source, one.target) == (source, target):
                    return place, one
        return None

    # ---- memory

    def run(self, place: Place) -> Run:
        """The run of a place, loaded where it is not, loaded anew where other weights were chosen.

        Weights that cannot be read are no reason to stop: the run goes on with those that it has.
        """
        place.used = time.monotonic()
        run, stamp = place.run, place.chosen()
        if run is not None and stamp == place.stamp:
            return run
        try:
            return self._load(place)
        except Exception as error:
            why = {"run": place.name, "why": f"{type(error).__name__}: {error}"}
            log.error("cannot load" if run is None else "kept old weights", extra=why)
            if run is None:
                raise Refused(503, f"the model {place.name} cannot be loaded", 10) from None
            place.run, place.stamp = run, stamp
        return run

    def load(self) -> None:
        """Load all runs now; what is wrong with one of them is raised."""
        for place in self._all():
            self._load(place)

    def _load(self, place: Place) -> Run:
        stamp = place.chosen()
        with self._lock:
            if place.run is None:
                self._make_room(place)
            place.run = run = self._loader(place.folder)
            place.stamp = stamp
            place.loads += 1
        return run

    def _make_room(self, new: Place) -> None:
        """Drop what was used least of late until the weights of another run fit."""
        if self.memory is None:
            return
        there = [one for one in self.places.values() if one.run is not None and one is not new]
        sizes = {one.name: self._size(one) for one in there}
        for one in sorted(there, key=lambda one: one.used):
            if sum(sizes.values()) + self._size(new) <= self.memory:
                return
            one.run = None
            del sizes[one.name]
            log.info("dropped", extra={"run": one.name})

    def _size(self, place: Place) -> int:
        return self._copies * place.weights()

    def close(self, seconds: float) -> bool:
        """Answer what waits and take nothing more; whether that was done in the time."""
        end = time.monotonic() + seconds
        left = [one.batcher.close(max(0.0, end - time.monotonic())) for one in self._all()]
        return all(left)

    def _all(self) -> list[Place]:
        return list(self.places.values())
