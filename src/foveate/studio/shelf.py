"""The runs that the studio was given: found, named, loaded when they are first asked for."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from foveate.config import ConfigError
from foveate.run import Run, RunConfig, load, read_run
from foveate.studio.errors import unknown
from foveate.train import journal

CONFIG = "config.toml"
CHOSEN = "best.json"  # says which weights are the run's; a training run changes it


class Shelf:
    """Runs by their ids: the names of their folders, numbered where two are the same."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises ``ConfigError`` where a path is no run and holds none."""
        self.folders: dict[str, Path] = {}
        for path in paths:
            found = list(runs_in(path))
            if not found:
                raise ConfigError(f"{path} is no run and holds none: no {CONFIG} in it or under it")
            for folder in found:
                self.folders.setdefault(self._name(folder), folder)
        self._configs: dict[str, RunConfig] = {}
        self._loaded: dict[str, tuple[int, Run]] = {}
        self._lock = threading.Lock()

    def _name(self, folder: Path) -> str:
        stem = re.sub(r"[^\w.-]+", "-", folder.name) or "run"
        name, number = stem, 2
        while self.folders.get(name, folder) != folder:
            name, number = f"{stem}-{number}", number + 1
        return name

    def folder(self, name: str) -> Path:
        """Where a run lies. Raises `Refused` (404) naming those that are there."""
        if name not in self.folders:
            raise unknown("run", name, f"there are: {', '.join(self.folders)}")
        return self.folders[name]

    def config(self, name: str) -> RunConfig:
        """The config of a run, read once."""
        folder = self.folder(name)
        if name not in self._configs:
            self._configs[name] = read_run(folder)
        return self._configs[name]

    def run(self, name: str) -> Run:
        """A run with its model; loaded anew where its training has chosen other weights.

        Raises ``ConfigError`` where it has no checkpoint.
        """
        folder = self.folder(name)
        chosen = folder / CHOSEN
        stamp = chosen.stat().st_mtime_ns if chosen.is_file() else 0
        with self._lock:
            if name not in self._loaded or self._loaded[name][0] != stamp:
                self._loaded[name] = stamp, load(folder)
            return self._loaded[name][1]

    def log(self, name: str) -> list[journal.Line]:
        """The lines of a run's log."""
        return journal.read(self.folder(name))


def runs_in(path: Path) -> Iterator[Path]:
    """The run that a folder is, or the runs in it and in its folders, by name."""
    path = path.expanduser().resolve()
    if (path / CONFIG).is_file():
        yield path
    elif path.is_dir():
        yield from sorted(child for child in path.iterdir() if (child / CONFIG).is_file())
