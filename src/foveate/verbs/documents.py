"""Documents through a run: what is cut into sentences is translated and put together again.

Lives here: between passages and a run: batches, memory, glossary, what is said at the end. Does not
live here: what a format is (`foveate.documents.documents`), lines (`foveate.verbs.translate`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from foveate.answers import Translation
from foveate.config import ConfigError
from foveate.documents.documents import Choices, Document, format_of, read_document
from foveate.documents.formats import same
from foveate.documents.memory import Aided, aligner
from foveate.documents.translate import joined_all
from foveate.files import replace_file
from foveate.run import Run
from foveate.server.languages import directions
from foveate.tasks.base import CUT
from foveate.verbs import Tally, Wanted


@dataclass(frozen=True)
class Files:
    """What is read and written: files, or streams where there are none."""

    format: str | None
    source: Path | None
    target: Path | None

    @property
    def given(self) -> bool:
        """Whether a document is meant, and not lines."""
        return (self.format or self.source or self.target) is not None

    @property
    def folder(self) -> bool:
        """Whether all documents of a folder are meant."""
        return self.source is not None and self.source.is_dir()

    def refuse(self, wanted: Wanted, processes: int) -> None:
        """Raise ``ConfigError`` where a document is asked for more than its translation."""
        if self.given and (wanted != Wanted() or (processes > 1 and not self.folder)):
            raise ConfigError("a document has one answer, of one process: no n-best, maps, …")
        if self.given and not self.folder:
            self.kind()

    def kind(self) -> str:
        """The format, by its name or by the ending of the file."""
        return self.format or format_of(self.source or Path(""))

    def read(self, stream: BinaryIO) -> bytes:
        """The document. Raises ``ConfigError`` naming a file that cannot be read."""
        if self.source is None:
            return stream.read()
        try:
            return self.source.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self.source}: {error.strerror}") from None

    def write(self, data: bytes, stream: BinaryIO) -> None:
        """Write it to a file, which appears whole, or to the stream."""
        if self.target is None:
            stream.write(data)
            stream.flush()
        else:
            replace_file(self.target, data)


def from_known(run: Run, choices: Choices) -> Choices:
    """The choices with the languages that a run translates from and into, where its files tell."""
    try:
        known = directions(run.config, run.path)
    except ConfigError:
        return choices
    if choices.to is not None:
        fitting = [one for one in known if same(one.target, choices.to)]
        if not fitting:
            there = ", ".join(f"{one.source} to {one.target}" for one in known)
            raise ConfigError(f"--to {choices.to}: {run.path} translates from {there}")
        known = fitting
    source, target = _only(one.source for one in known), _only(one.target for one in known)
    return replace(choices, source=source, to=choices.to or target)


def _only(languages: Iterable[str]) -> str | None:
    """The one that all of them are."""
    there = set(languages)
    return there.pop() if len(there) == 1 else None


def translate_document(
    run: Aided,
    files: Files,
    choices: Choices,
    search: dict[str, Any],
) -> Tally:
    """Translate a document; its structure, protected spans and markup stay.

    Raises ``ConfigError`` where the run is known not to translate into the language that is wanted.
    """
    where = str(files.source or "standard input")
    choices = from_known(run.run, choices)
    document = read_document(files.kind(), files.read(sys.stdin.buffer), choices, where)
    data, answers = translated(run, document, search)
    tally = Tally()
    for number, answer in enumerate(answers, start=1):
        if answer.cut:
            tally.note(f"of the sentences {CUT}", number)
    files.write(data, sys.stdout.buffer)
    many = f"{len(answers):,} sentence" + "s" * (len(answers) != 1)
    tally.remarks.append(f"{many} translated{document.said}")
    return tally


def translated(
    run: Aided, document: Document, search: dict[str, Any]
) -> tuple[bytes, list[Translation]]:
    """The document in the other language, and the answers to its sentences."""
    lines = [line for passage in document.passages for line in passage.sentences]
    if not run.run.task.source_tokenizer.tags:
        search = search | {"to": None}  # said for the document: the run has one pair
    answers = run.translate(lines, **search) if lines else []
    found = [str(answer) for answer in answers]
    done, each = 0, list[Sequence[str]]()
    for passage in document.passages:
        each.append(found[done : done + len(passage.sentences)])
        done += len(passage.sentences)
    return document.written(joined_all(document.passages, each, aligner(run.run))), answers
