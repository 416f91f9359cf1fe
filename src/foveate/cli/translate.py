"""``foveate translate``: lines, a document, or a folder of documents; ``foveate draft``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TextIO

import typer

import foveate.cli.options as options
from foveate.cli.engines import EngineName, RunSpec, Verbose
from foveate.cli.options import CHUNK, Tally, hint, one_line, say
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from foveate.documents.base import DocumentOptions
    from foveate.documents.memory import Assistance, AssistedRun
    from foveate.engine.answers import TextAnswer, TranslateOptions, Translator

Format = Annotated[str | None, typer.Option(help="default: by the file's ending")]
In = Annotated[Path | None, typer.Option("--in", help="document or folder")]
Force = Annotated[list[str] | None, typer.Option(metavar="PHRASE", help="phrase in every output")]
Held = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="SOURCE TARGET", help="fit the estimates to held-out lines"),
]
Second = Annotated[Path | None, typer.Option(metavar="RUN", help="run whose draft to compare")]
Limit = typer.Option(min=0, max=100, help="a chrF below it gets this colour")


@dataclass(frozen=True)
class LineOutputs:
    """The options of lines: what is written for each, and in which language."""

    num_hypotheses: Annotated[int, typer.Option(min=1, help="outputs per line")] = 1
    scores: Annotated[bool, typer.Option("--scores", help="print SCORE TAB TRANSLATION")] = False
    alignments: Annotated[Path | None, typer.Option(help="file for links 0-0 1-2")] = None
    to: Annotated[str | None, typer.Option(help="target language, if several")] = None


@dataclass(frozen=True)
class Terms:
    """The options of a glossary, a translation memory, and phrases that outputs must (not) hold."""

    glossary: Annotated[Path | None, typer.Option(help="lines TERM TAB VARIANT|VARIANT")] = None
    force: Force = None
    ban: options.Ban = None
    memory: Annotated[Path | None, typer.Option(help="TMX or TSV to look up first")] = None
    fuzzy: options.Fuzzy = 100.0

    def __bool__(self) -> bool:
        """Return whether anything but ``fuzzy`` is set."""
        return replace(self, fuzzy=100.0) != Terms()

    def read(self, to: str | None) -> Assistance:
        """Read the files. Raises ``ConfigError`` naming a phrase or line that is wrong."""
        from foveate.documents.memory import Assistance, Glossary, TranslationMemory

        forced, banned = self.force or (), self.ban or ()
        for option, phrases in (("--force", forced), ("--ban", banned)):
            if not all(phrase.strip() for phrase in phrases):
                raise ConfigError(f"{option} names an empty phrase; give a word, or leave it out")
        terms = None if self.glossary is None else Glossary.read(self.glossary)
        known = None if self.memory is None else TranslationMemory.read(self.memory, to, self.fuzzy)
        return Assistance(terms, forced, banned, known)


@dataclass(frozen=True)
class Request:
    """The options of ``foveate translate``.

    Each method translates all of its source and returns the messages for standard error.
    """

    run: options.RunPath
    overrides: options.Decode = None
    beam_size: options.BeamSize = None
    lines: LineOutputs = LineOutputs()
    format: Format = None
    source: In = None
    target: Annotated[Path | None, typer.Option("--out", help="file or folder to write")] = None
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="text to keep unchanged, like URLs"),
    ] = None
    again: Annotated[bool, typer.Option("--again", help="retranslate all entries (PO, …)")] = False
    not_fuzzy: Annotated[
        bool, typer.Option("--not-fuzzy", help="do not mark translations as drafts")
    ] = False
    terms: Terms = Terms()
    ensemble: options.Ensemble = None
    batch_tokens: options.BatchTokens = None
    length_penalty: options.LengthPenalty = None
    checkpoint: options.Checkpoint = "best"
    precision: options.Precision = "fp32"
    engine: EngineName = "auto"
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="processes for a folder; default: all cores"),
    ] = None
    threads: options.Threads = None
    verbose: Verbose = False

    @property
    def spec(self) -> RunSpec:
        """The plain values of loading the run."""
        others = tuple(map(str, self.ensemble or ())), tuple(self.overrides or ())
        return RunSpec(str(self.run), self.checkpoint, *others, self.precision, self.engine)

    @property
    def search(self) -> TranslateOptions:
        """The keyword arguments of ``Run.translate``."""
        return {
            "beam_size": self.beam_size, "length_penalty": self.length_penalty,
            "batch_tokens": self.batch_tokens, "to": self.lines.to,
        }  # fmt: skip

    def translate_stdin(self) -> list[str]:
        """Translate lines of standard input; write a line of standard output for each."""
        own = {"protect": self.protect, "again": self.again, "not-fuzzy": self.not_fuzzy}
        if option := next((name for name, value in own.items() if value), None):
            raise ConfigError(f"--{option} is for documents: name one with --in, or a --format")
        messages: list[str] = []
        with self._loaded(messages) as run:
            hint("Type one sentence per line; Ctrl-D ends.")
            tally = translate_lines(run, sys.stdin.buffer, sys.stdout, self.lines, self.search)
        return tally.report() + messages

    def translate_document(self) -> list[str]:
        """Translate a document of a file or standard input to a file or standard output."""
        from foveate.data.text import CUT
        from foveate.documents.folders import translate_document, with_languages
        from foveate.documents.formats import check_output, format_of, read_document
        from foveate.engine.answers import STAYED
        from foveate.files import replace_file

        self._refuse_line_outputs()
        source, target = self.source, self.target
        if self.format is None and source is None:
            raise ConfigError(
                f"--out {target} needs --in FILE, or --format for a document on standard input; "
                "lines go to a file by > FILE"
            )
        kind = format_of(source or Path(), self.format)
        check_output(target or Path(), kind)
        options = self._document_options()
        messages: list[str] = []
        with self._loaded(messages) as run:
            data = sys.stdin.buffer.read() if source is None else source.read_bytes()
            name = str(source or "standard input")
            document = read_document(kind, data, with_languages(run, options), name)
            data, answers = translate_document(run, document, self.search)
            tally = Tally()
            tally.note(f"of the sentences {CUT}", *(n for n, a in enumerate(answers, 1) if a.cut))
            tally.note(f"of the sentences {STAYED}", *document.stayed)
            if target is None:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            else:
                replace_file(target, data)
        done = len(answers) - len(document.stayed)
        count = f"{done:,} sentence" + "s" * (done != 1)
        return [*tally.report(), f"{count} translated{document.note}", *messages]

    def translate_folder(self, source: Path) -> list[str]:
        """Translate all documents of a folder into another folder, under the same names."""
        from foveate.cli.folders import translate_folder

        self._refuse_line_outputs()
        if self.terms:
            raise ConfigError("glossary, memory, phrases work in one process: not for a folder")
        job = (self.spec, self.search, self._document_options())
        workers = self.processes, self.threads or 1
        return translate_folder(source, self.target, self.format, *job, *workers)

    def _refuse_line_outputs(self) -> None:
        """Raise ``ConfigError`` for options of lines, which documents do not have."""
        if replace(self.lines, to=None) != LineOutputs():
            raise ConfigError("a document has one translation: no n-best, links, …")

    def _document_options(self) -> DocumentOptions:
        """Return the options of documents. Raises ``ConfigError`` for an invalid pattern."""
        from foveate.documents.base import DocumentOptions
        from foveate.documents.spans import Rules

        rules = Rules(tuple(self.protect or ()))
        return DocumentOptions(rules, self.lines.to, self.again, draft=not self.not_fuzzy)

    @contextmanager
    def _loaded(self, messages: list[str]) -> Iterator[Translator | AssistedRun]:
        """Load the run with its terms, which add to ``messages``."""
        if self.processes is not None:
            raise ConfigError("--processes is for folders: give --in FOLDER --out FOLDER")
        if self.terms.memory is None and self.terms.fuzzy != 100:
            raise ConfigError(
                "--fuzzy is the similarity accepted in a memory: name one by --memory"
            )
        run: Translator = self.spec.packed({}, self.threads, self.verbose) or self.spec.load()
        if not self.terms:
            yield run
            return
        from foveate.documents.memory import AssistedRun

        assisted = AssistedRun(run, self.terms.read(self.lines.to))
        yield assisted
        messages += assisted.report()


def translate(request: Request) -> None:
    """Translate lines of stdin, a document, or a folder of them."""
    source = request.source
    if source is not None and source.is_dir():
        messages = request.translate_folder(source)
    elif source is not None or request.target is not None or request.format is not None:
        messages = request.translate_document()
    else:
        messages = request.translate_stdin()
    say(messages)


def translate_lines(
    run: Translator | AssistedRun,
    source: BinaryIO,
    target: TextIO,
    outputs: LineOutputs,
    search: TranslateOptions,
) -> Tally:
    """Translate a stream, a line for a line and in order, in bounded memory.

    ``search`` goes to ``run.translate``. Several hypotheses have the usual form of n-best lists:
    ``line ||| hypothesis ||| features ||| score``, lines counted from 0.
    """
    from foveate.data.text import CUT

    tally, number, links = Tally(), 0, outputs.alignments
    options: TranslateOptions = {**search, "num_hypotheses": outputs.num_hypotheses}
    opened = nullcontext() if links is None else links.open("w", encoding="utf-8", newline="\n")
    with opened as file:
        for texts in tally.read(source, CHUNK):
            for answer in run.translate(texts, **options):
                target.write(_written(answer, number, outputs))
                number += 1
                if answer.cut:
                    tally.note(CUT, number)
                if file is not None:
                    file.write(" ".join(f"{i}-{j}" for i, j in answer.alignment()) + "\n")
            target.flush()
    return tally


def _written(answer: TextAnswer, number: int, outputs: LineOutputs) -> str:
    """Return the lines of output for one line of input."""
    if outputs.num_hypotheses > 1:
        return "".join(
            f"{number} ||| {one_line(text)} ||| model= {score:.6f} ||| {score:.6f}\n"
            for text, score in zip(answer.hypotheses, answer.scores, strict=True)
        )
    line = one_line(answer.hypotheses[0]) + "\n"
    return f"{answer.scores[0]:.6f}\t{line}" if outputs.scores else line


def draft(
    run: options.RunPath,
    book: Annotated[Path | None, typer.Argument(metavar="[BOOK]", help="the document")] = None,
    out: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="draft to write")] = None,
    calibrate: Held = None,
    second: Second = None,
    red: Annotated[float, Limit] = 40.0,
    yellow: Annotated[float, Limit] = 60.0,
    to: Annotated[str | None, typer.Option(help="target language, if several")] = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Translate a document and say how far to trust it."""
    if (book is None and calibrate is None) or (book is None) != (out is None):
        raise ConfigError("name a document and its draft, BOOK OUT, or --calibrate SOURCE TARGET")
    if red > yellow:
        raise ConfigError(f"--red {red:g} is above --yellow {yellow:g}: lower it")
    from foveate.documents import drafts

    spec = RunSpec(str(run), checkpoint)
    model = spec.packed({}, threads) or spec.load()
    if calibrate is not None:
        from foveate.data.text import TextData, read_pairs

        held = read_pairs(*calibrate, TextData())
        say([drafts.calibrate(model, held.sources, held.targets, to)])
    if book is not None and out is not None:
        own = None if second is None else RunSpec(str(options.named(second)))
        other = None if own is None else own.packed({}) or own.load()
        say(drafts.write_draft(model, str(run), book, out, to, (red, yellow), other))
