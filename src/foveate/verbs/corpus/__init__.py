"""A folder of documents through a run: N lines in, N lines out, whoever does the work.

The folder is cut into parts (`parts`), these are translated by many at once (`hands`, `cluster`),
and what is done stays done (`job`). A part is the same work for all of them, so the bytes that come
out do not depend on who did it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveate import __version__
from foveate.config import ConfigError
from foveate.data.corpus import Meter
from foveate.documents.documents import Choices, format_of
from foveate.train import checkpoint
from foveate.verbs import NAMED, Tally
from foveate.verbs.corpus.hands import Noted, Order, hands_of
from foveate.verbs.corpus.job import Job
from foveate.verbs.corpus.parts import LINES, Source, cut, files_in, once
from foveate.verbs.crew import Loading
from foveate.verbs.documents import Files

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
        "run": _digest(_files_of(loading)),
        "overrides": loading.overrides,
        "precision": loading.precision,
        "engine": loading.engine,
        **{key: value for key, value in values.items() if key not in apart},
        "format": kind,
        "lines": LINES,
        "foveate": __version__,
    }


def _digest(paths: Sequence[str]) -> str:
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
