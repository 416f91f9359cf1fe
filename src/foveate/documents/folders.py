"""A document translated; a folder of documents in parts, and its state, for resuming.

A part's translation is the same in every process. A job stores its state in the output folder and
writes each file atomically, so that it can resume after an interruption at any moment.

    OUT/.foveate/job.json     the options of all translations
    OUT/.foveate/parts/…      translated parts, under the digests of their sources
    OUT/.foveate/done.jsonl   one line per finished file
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from foveate.config import ConfigError, Tree
from foveate.data.bilingual import language_of
from foveate.data.corpus import Meter
from foveate.data.text import CUT, DAMAGED
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.formats import BY_LINES, ENDINGS, output_name, read_document
from foveate.documents.languages import corpora_of, directions
from foveate.documents.memory import AssistedRun, aligner
from foveate.documents.spans import DocumentError
from foveate.documents.translate import joined_all
from foveate.engine.answers import STAYED, TextAnswer, TranslateOptions, Translator
from foveate.files import replace_file, replacing

LINES = 512  # lines in a part: a few seconds of work, the most that is lost with a worker
REFUSED = b"refused"  # begins the reason, worded to follow the file's name, not a translation
Events = dict[str, list[int]]  # event → its lines in a part, from 1; 0 if the line is unknown
NOTE = "; "  # begins an event that is not of lines but a document's note


class FilePart(NamedTuple):
    """A range of bytes in a file, as plain values that can be sent to other processes."""

    file: str
    kind: str  # the format
    start: int  # in bytes
    size: int  # in bytes
    first: int  # number of the first line, from 1
    lines: int
    digest: str  # of the format and the bytes; equal parts have equal translations

    def read(self) -> bytes:
        """Return the bytes of the part. Raises ``ConfigError`` if the file has changed."""
        with open(self.file, "rb") as file:
            file.seek(self.start)
            data = file.read(self.size)
        if _digest(self.kind, data) != self.digest:
            raise ConfigError(f"{self.file} changed while it was being translated; start again")
        return data


@dataclass(frozen=True)
class SourceFile:
    """A file in the folder: its name relative to the folder, and its parts."""

    name: str
    parts: tuple[FilePart, ...]

    @property
    def lines(self) -> int:
        """The number of lines."""
        return sum(part.lines for part in self.parts)

    @property
    def target(self) -> str:
        """The name of its translation, relative to the output folder."""
        return output_name(self.name, self.parts[0].kind if self.parts else "")

    @property
    def digest(self) -> str:
        """A digest of the whole content."""
        return hashlib.blake2b("".join(p.digest for p in self.parts).encode()).hexdigest()[:32]


def files_in(folder: Path, kind: str | None) -> tuple[list[Path], dict[str, list[Path]]]:
    """Return a folder tree's files to translate, sorted by name, and the others by the reason.

    Without a ``kind``, files with unknown extensions are skipped; so are links that lead out of the
    folder, and links to folders. Hidden files are ignored. Raises ``ConfigError`` if there is
    nothing to translate.
    """
    chosen, skipped = list[Path](), dict[str, list[Path]]()
    for path in sorted(folder.rglob("*")):
        linked = path.is_symlink()
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if linked and (path.is_dir() or not is_inside(path, folder)):
            reason = "links to folders" if path.is_dir() else "links that lead out of the folder"
            skipped.setdefault(reason, []).append(path)
        elif path.is_file() and (kind or path.suffix.lower() in ENDINGS):
            chosen.append(path)
        elif path.is_file():
            skipped.setdefault("of unknown format", []).append(path)
    if not chosen:
        known = ", ".join(ENDINGS)
        raise ConfigError(f"{folder} holds no file that ends in {known}; give --format for others")
    return chosen, skipped


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder when all links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


def cut(path: Path, name: str, kind: str, lines: int) -> SourceFile:
    """Split a file into parts of ``lines`` lines; a file in another format is one part."""
    parts, start, first = list[FilePart](), 0, 1
    with path.open("rb") as file:
        by_lines = iter(lambda: b"".join(islice(file, lines)), b"")
        for data in by_lines if kind in BY_LINES else [file.read()]:
            count, digest = data.count(b"\n") + (data[-1:] != b"\n"), _digest(kind, data)
            place = os.path.abspath(path), kind, start, len(data)
            parts.append(FilePart(*place, first, count, digest))
            start, first = start + len(data), first + count
    return SourceFile(name, tuple(parts))


def _digest(kind: str, data: bytes) -> str:
    return hashlib.blake2b(kind.encode() + b"\0" + data, digest_size=16).hexdigest()


def packed(text: bytes, events: Events) -> bytes:
    """Return a translated part as bytes: a line with its events, then the text."""
    some = {event: lines for event, lines in events.items() if lines}
    return json.dumps(some).encode() + b"\n" + text


def unpacked(data: bytes) -> tuple[bytes, Events]:
    """Return the text and the events of a translated part from the bytes of `packed`."""
    events, _, text = data.partition(b"\n")
    return text, json.loads(events)


def translated(
    part: FilePart, run: Translator, options: DocumentOptions, search: TranslateOptions
) -> bytes:
    """Return the translation of a part as `packed`, or why its file cannot be read.

    In formats of lines, invalid UTF-8 is read as U+FFFD.
    """
    data, damaged = part.read(), list[int]()
    if part.kind in BY_LINES:
        lines = [(line, line.decode(errors="replace").encode()) for line in data.split(b"\n")]
        damaged = [number for number, (line, read) in enumerate(lines, start=1) if line != read]
        data = b"\n".join(read for _, read in lines)
    read = BY_LINES.get(part.kind) or partial(read_document, part.kind)
    try:
        document = read(data, options, part.file)
    except DocumentError as error:  # it stops its own file alone
        return REFUSED + str(error).removeprefix(part.file).encode()
    text, answers = translate_document(run, document, search)
    numbered = enumerate(document.passages, start=1)
    places = [n if part.kind in BY_LINES else 0 for n, p in numbered for _ in p.sentences]
    cut = {place for place, answer in zip(places, answers, strict=True) if answer.cut}
    stayed = {places[n - 1] for n in document.stayed}
    events = {DAMAGED: damaged, CUT: sorted(cut), STAYED: sorted(stayed)}
    return packed(text, events | {document.note: [0] * bool(document.note)})


GROWING = ("log.jsonl", "best.json", "trust.json")  # files of a run that do not change its answers


def weights_of(*names: str) -> str:
    """Return a digest of what translations depend on in a packed file, or in checkpoints.

    These are the weights, and the files of the run beside them.
    """
    if Path(names[0]).is_file():
        return hashlib.sha256(Path(names[0]).read_bytes()).hexdigest()[:16]
    from foveate.train import checkpoint
    from foveate.train.stored import WEIGHTS

    digest = hashlib.sha256()
    for name in names:
        path, folder = checkpoint.run_of(Path(name))
        assert folder is not None
        own = [file for file in sorted(path.glob("[!.]*")) if file.is_file()]
        for each in (folder / WEIGHTS, *(file for file in own if file.name not in GROWING)):
            with each.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


class FolderJob:
    """The state of a job in its output folder. Raises ``ConfigError`` if it is another job's."""

    def __init__(self, out: Path, options: Mapping[str, object], names: Sequence[str]) -> None:
        self.out, self.folder = out, out / ".foveate"
        self.parts = self.folder / "parts"
        if double := next((name for name, count in Counter(names).items() if count > 1), None):
            raise ConfigError(f"two files would become {out / double}: rename one")
        for name in ("job.json", "done.jsonl", "parts"):
            self._writable(self.folder / name)
        for name in names:
            self._writable(out / name)
        plain: Tree = json.loads(json.dumps(options))
        if (self.folder / "job.json").exists():
            self._refuse_others(plain)
        else:
            for name in names:
                if (out / name).exists():
                    raise ConfigError(f"{out / name} already exists; give another --out")
            self.parts.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / "job.json", json.dumps(plain, indent=2) + "\n")
        self.parts.mkdir(exist_ok=True)
        self.done: dict[str, Tree] = {}
        done = self.folder / "done.jsonl"
        for text in done.read_bytes().split(b"\n") if done.exists() else []:
            with suppress(ValueError):  # empty, or torn when the job was stopped
                record = json.loads(text)
                self.done[record["file"]] = record

    def _writable(self, path: Path) -> Path:
        """Return a path in the output folder. Raises ``ConfigError`` if links lead out of it."""
        if not is_inside(path, self.out):
            raise ConfigError(f"{path} leads out of {self.out} by a link; remove the link")
        return path

    def _refuse_others(self, options: Tree) -> None:
        before = json.loads((self.folder / "job.json").read_text("utf-8"))
        for key in sorted(before.keys() | options.keys()):
            old, new = before.get(key), options.get(key)
            if old != new:
                raise ConfigError(
                    f"{self.out} was started with {key} = {json.dumps(old)}, now it is "
                    f"{json.dumps(new)}; resume as it was started, or give another --out"
                )

    def store(self, part: FilePart, translation: bytes) -> None:
        """Store the translation of a part, as returned by `packed`."""
        replace_file(self.parts / part.digest, translation)

    def missing(self, sources: Iterable[SourceFile]) -> list[FilePart]:
        """Return the parts whose translations are not stored, in order and without duplicates."""
        parts = {part.digest: part for source in sources for part in source.parts}
        return [part for digest, part in parts.items() if not (self.parts / digest).exists()]

    def finished(self, source: SourceFile) -> Events | None:
        """Return the events of a file that is finished and unchanged on disk, else None."""
        record, path = self.done.get(source.name), self.out / source.target
        if record is None or record["source"] != source.digest or not path.is_file():
            return None
        return record["noted"] if path.stat().st_size == record["size"] else None

    def join(self, source: SourceFile) -> Events:
        """Write a file from its parts, and record it as finished."""
        events: Events = {}
        target = self._writable(self.out / source.target)
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
            log.write(b"\n" + json.dumps(record).encode())  # a torn line before it stays a line
            log.flush()
            os.fsync(log.fileno())
        self.done[source.name] = record
        return events

    def translate(
        self,
        sources: Sequence[SourceFile],
        execute: Callable[[Sequence[FilePart]], Generator[bytes, None, None]],
    ) -> list[str]:
        """Translate and write files; a message for each that cannot be read."""
        missing, messages = self.missing(sources), list[str]()
        reasons: dict[str, str] = {}  # by the digest of a part
        with (
            closing(execute(missing)) as translations,
            Meter("translating", sum(part.lines for part in missing), "lines") as meter,
        ):
            for source in sources:
                for part in self.missing([source]):
                    if part.digest in reasons:
                        continue
                    translation = next(translations)
                    if translation.startswith(REFUSED):
                        reasons[part.digest] = translation.removeprefix(REFUSED).decode()
                    else:
                        self.store(part, translation)
                    meter.add(part.lines)
                if left := self.missing([source]):
                    messages.append(source.name + reasons[left[0].digest])
                else:
                    self.join(source)
            for _ in translations:  # none is left: the executor reports lost workers
                pass
        return messages

    def finish(self) -> None:
        """Remove what only an unfinished job needs."""
        shutil.rmtree(self.parts, ignore_errors=True)


def with_languages(run: Translator | AssistedRun, options: DocumentOptions) -> DocumentOptions:
    """The options with the languages that a run translates from and into, where its files tell.

    Raises ``ConfigError`` where the run is known not to translate into the language of the options.
    """
    run = run.run if isinstance(run, AssistedRun) else run
    try:
        known = directions(corpora_of(run.path), run.path)
    except ConfigError:
        return options
    if options.to is not None:
        fitting = [d for d in known if language_of(d.target) == language_of(options.to)]
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
    run: Translator | AssistedRun, document: Document, search: TranslateOptions
) -> tuple[bytes, list[TextAnswer]]:
    """Return the document in the other language, and the answers to its sentences.

    `Document.stayed` counts those that are left, since no place in the answer kept their spans.
    """
    own = run.run if isinstance(run, AssistedRun) else run
    if not own.languages:
        search = {**search, "to": None}  # it names the language of the document
    answers = run.translate(document.sentences, **search) if document.sentences else []
    return with_answers(document, answers, own, search.get("to")), answers


def with_answers(
    document: Document, answers: Sequence[TextAnswer], run: Translator, to: str | None
) -> bytes:
    """Return the document with the answers of a run to its sentences."""
    each, align = document.answers(map(str, answers)), aligner(run, to if run.languages else None)
    return document.written(joined_all(document.passages, each, align))
