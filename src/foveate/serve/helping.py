"""What helps the runs of a server: glossaries, memories and banned phrases, by direction.

Lives here: which file is for which direction, and what is said of it at the start. Does not live
here: what aids do (`foveate.documents.memory`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveate.answers import Translation
from foveate.config import ConfigError
from foveate.documents.memory import Aided, Aids, Done, Glossary, Memory
from foveate.run import Run, read_run
from foveate.serve.fleet import Fleet, Place
from foveate.serve.languages import Direction

Files = Sequence[str]  # FILE, or en:fr=FILE, or RUN=FILE


@dataclass(frozen=True)
class Help:
    """What the server is started with; phrases are for all directions."""

    glossary: Files = ()
    memory: Files = ()
    fuzzy: float = 100.0
    banned: Sequence[str] = ()
    copies_unknown: bool = False


class Helped:
    """One direction's aids, and what they have done so far."""

    def __init__(self, aids: Aids) -> None:
        self.aids, self.done = aids, Done()
        self._lock = threading.Lock()

    def translate(self, run: Run, lines: Sequence[str], **choices: Any) -> list[Translation]:
        """As `foveate.run.Run.translate`, with the aids."""
        aided = Aided(run, self.aids)
        found = aided.translate(lines, **choices)
        with self._lock:
            self.done.take(aided.done)
        return found


def equip(fleet: Fleet, said: Help) -> list[str]:
    """Give each direction its aids; a sentence for each that has some.

    Raises ``ConfigError`` naming the file and the line that is wrong, a direction that there is
    not, or a run whose search cannot force terms.
    """
    glossaries = _by_direction(fleet, "--glossary", said.glossary)
    memories = _by_direction(fleet, "--memory", said.memory)
    sentences = []
    for place, direction in _all(fleet):
        key = place.name, direction
        terms = None if key not in glossaries else Glossary.read(glossaries[key])
        known = None if key not in memories else _memory(memories[key], direction, said.fuzzy)
        aids = Aids(terms, (), said.banned, known, said.copies_unknown)
        aids.refuse(read_run(place.folder), place.name)
        if aids:
            place.helped[direction] = Helped(aids)
            words = _words(aids, glossaries.get(key), memories.get(key))
            sentences.append(f"{_code(direction)} ({place.name}): {', '.join(words)}")
    return sentences


def _memory(path: Path, direction: Direction, least: float) -> Memory:
    """The memory of a direction. Raises ``ConfigError`` where it knows nothing of it."""
    found = Memory.read(path, direction.target, least, direction.source)
    if not found.pairs:
        raise ConfigError(f"{path} has no pair from {direction.source} to {direction.target}")
    return found


def _words(aids: Aids, glossary: Path | None, memory: Path | None) -> list[str]:
    words = []
    if aids.glossary is not None:
        words.append(f"glossary {glossary} (terms: {len(aids.glossary.terms):,})")
    if aids.memory is not None:
        least = f", {aids.memory.least:g} % alike will do" if aids.memory.least < 100 else ""
        words.append(f"memory {memory} (pairs: {len(aids.memory.pairs):,}{least})")
    if aids.banned:
        words.append("banned: " + ", ".join(map(repr, aids.banned)))
    if aids.copies_unknown:
        words.append("unknown words are copied")
    return words


# ------------------------------------------------------------------------------ which file for whom


def _all(fleet: Fleet) -> list[tuple[Place, Direction]]:
    return [(place, one) for place in fleet.places.values() for one in place.directions]


def _code(direction: Direction) -> str:
    return f"{direction.source}:{direction.target}"


def _by_direction(fleet: Fleet, option: str, files: Files) -> dict[tuple[str, Direction], Path]:
    """The file of each direction of a run that one is named for."""
    found: dict[tuple[str, Direction], Path] = {}
    for said in files:
        key, equals, name = said.partition("=")
        if not equals or Path(said).exists():
            key, name = "", said
        path = Path(name)
        _check(path, option)
        for place, direction in _meant(fleet, option, key, path):
            if (place.name, direction) in found:
                other = found[place.name, direction]
                raise ConfigError(f"{option}: {other} and {path} are both for {_code(direction)}")
            found[place.name, direction] = path
    return found


def _check(path: Path, option: str) -> None:
    if not path.is_file():
        number = option == "--memory" and str(path).isdecimal()
        hint = "; for a limit of MiB say --weights" if number else ""
        raise ConfigError(f"{option} {path}: there is no such file{hint}")


def _meant(fleet: Fleet, option: str, key: str, path: Path) -> list[tuple[Place, Direction]]:
    """The directions that a key names: a pair of languages, a run, or without one all.

    Without one there has to be one direction, or a TMX, which says its languages itself.
    """
    every = _all(fleet)
    if not key:
        codes = dict.fromkeys(_code(direction) for _, direction in every)
        if len(codes) > 1 and path.suffix.lower() != ".tmx":
            raise ConfigError(
                f"{option} {path}: for which direction? Say {option} {next(iter(codes))}={path}"
            )
        return every
    meant = [(p, d) for p, d in every if key in (p.name, p.folder.name, _code(d))]
    if not meant:
        there = dict.fromkeys(name for p, d in every for name in (_code(d), p.name))
        raise ConfigError(f"{option} {key}={path}: no {key}; there are: {', '.join(there)}")
    return meant
