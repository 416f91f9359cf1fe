"""``foveate translate``: lines of standard input, a document, or a folder of documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
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
    from foveate.look.records import AttentionRecord

PAGE = 200  # sentences drawn on one HTML page at most; browsers want no more

PrefixFile = Annotated[Path | None, typer.Option(help="beginnings of the outputs, line by line")]
Format = Annotated[str | None, typer.Option(help="default: by the ending; a wrong one lists all")]
In = Annotated[Path | None, typer.Option("--in", help="a document, or a folder of them")]
Force = Annotated[list[str] | None, typer.Option(metavar="PHRASE", help="in every output")]


@dataclass(frozen=True)
class LineOutputs:
    """The options of lines: what is written for each, in which language, and how it begins."""

    num_hypotheses: Annotated[int, typer.Option(min=1, help="more: n-best list")] = 1
    scores: Annotated[bool, typer.Option("--scores", help="SCORE TAB TRANSLATION")] = False
    alignments: Annotated[Path | None, typer.Option(help="Pharaoh file 0-0 1-2")] = None
    attention: Annotated[Path | None, typer.Option(help="one HTML file of the maps")] = None
    to: Annotated[str | None, typer.Option(help="language, if the run knows several")] = None
    prefix_file: PrefixFile = None


@dataclass(frozen=True)
class Terms:
    """The options of a glossary, a translation memory, and phrases that outputs must (not) hold."""

    glossary: Annotated[
        Path | None, typer.Option(help="TERM TAB VARIANT|VARIANT: outputs have a variant")
    ] = None
    force: Force = None
    ban: options.Ban = None
    memory: Annotated[Path | None, typer.Option(help="TMX or TSV, looked up first")] = None
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
    target: Annotated[Path | None, typer.Option("--out", help="where it goes")] = None
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="protected in documents, beside URLs, …"),
    ] = None
    again: Annotated[bool, typer.Option("--again", help="in catalogues, retranslate all")] = False
    not_fuzzy: Annotated[
        bool, typer.Option("--not-fuzzy", help="do not mark translations as drafts (PO, XLIFF)")
    ] = False
    terms: Terms = Terms()
    silence: Annotated[
        list[str] | None, typer.Option(metavar="PLACE[:HEAD,…]", help="heads to silence")
    ] = None
    ensemble: options.Ensemble = None
    batch_tokens: options.BatchTokens = None
    length_penalty: options.LengthPenalty = None
    checkpoint: options.Checkpoint = "best"
    precision: options.Precision = "fp32"
    engine: EngineName = "auto"
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="that translate a folder; default: all cores"),
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
        from foveate.documents.formats import format_of, read_document
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
        if kind == "pdf" and target is not None and target.suffix.lower() == ".pdf":
            raise ConfigError(f"--out {target}: of a PDF the text is translated; name a .txt file")
        options = self._document_options()
        messages: list[str] = []
        with self._loaded(messages) as run:
            try:
                data = sys.stdin.buffer.read() if source is None else source.read_bytes()
            except OSError as error:
                raise ConfigError(f"cannot read {source}: {error.strerror}") from None
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
        self._refuse_assistance()
        job = (self.spec, self.search, self._document_options())
        workers = self.processes, self.threads or 1
        return translate_folder(source, self.target, self.format, *job, *workers)

    def _refuse_assistance(self) -> None:
        """Raise ``ConfigError`` for options that work in one process alone."""
        if self.silence:
            raise ConfigError("--silence works in one process: leave it out for a folder")
        if self.terms:
            raise ConfigError("glossary, memory, phrases work in one process: not for a folder")

    def _refuse_line_outputs(self) -> None:
        """Raise ``ConfigError`` for options of lines, which documents do not have."""
        if replace(self.lines, to=None) != LineOutputs():
            raise ConfigError("a document has one translation: no n-best, maps, …")

    def _document_options(self) -> DocumentOptions:
        """Return the options of documents. Raises ``ConfigError`` for an invalid pattern."""
        from foveate.documents.base import DocumentOptions
        from foveate.documents.spans import Rules

        rules = Rules(tuple(self.protect or ()))
        return DocumentOptions(rules, self.lines.to, self.again, draft=not self.not_fuzzy)

    @contextmanager
    def _loaded(self, messages: list[str]) -> Iterator[Translator | AssistedRun]:
        """Load the run with its silenced heads and terms, which add to ``messages``."""
        if self.processes is not None:
            raise ConfigError("--processes is for folders: give --in FOLDER --out FOLDER")
        if self.terms.memory is None and self.terms.fuzzy != 100:
            raise ConfigError(
                "--fuzzy is the similarity accepted in a memory: name one by --memory"
            )
        silence, spec = self.silence or (), self.spec
        run: Translator | None = spec.packed({"--silence": silence}, self.threads, self.verbose)
        silencing: AbstractContextManager[None] = nullcontext()
        if run is None:
            if silence and self.precision == "int8":
                raise ConfigError("--silence changes PyTorch's modules: leave out --precision int8")
            run = loaded = spec.load()
            if silence:
                from foveate.look.edits import edit, silenced

                silencing = edit(loaded.model, silenced(silence))
        if not (silence or self.terms):
            yield run
            return
        from foveate.documents.memory import AssistedRun

        assisted = AssistedRun(run, self.terms.read(self.lines.to))
        with silencing:
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

    tally, number = Tally(), 0
    lines = tally.read(source, CHUNK)
    options: TranslateOptions = {**search, "num_hypotheses": outputs.num_hypotheses}
    with LineFiles(outputs, tally) as files:
        jobs = ((chunk, files.options(chunk, options)) for chunk in lines)
        for texts, chosen in jobs:
            for answer in run.translate(texts, **chosen):
                target.write(_written(answer, number, outputs))
                number += 1
                if answer.cut:
                    tally.note(CUT, number)
                files.add(answer, number)
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


class LineFiles(AbstractContextManager["LineFiles"]):
    """The files beside the translations: prefixes to read, word links and attention to write."""

    def __init__(self, outputs: LineOutputs, tally: Tally) -> None:
        """Raise ``ConfigError`` for a file that cannot be read or has the wrong ending."""
        from foveate.data.text import read_lines

        self.outputs, self.tally, self._count = outputs, tally, 0
        self.records: list[AttentionRecord] = []
        page, prefixes, links = outputs.attention, outputs.prefix_file, outputs.alignments
        if page is not None and page.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"--attention {page}: the maps form one file; end its name in .html")
        self.links = None if links is None else links.open("w", encoding="utf-8", newline="\n")
        try:
            self._file = None if prefixes is None else prefixes.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot read the prefixes {prefixes}: {error.strerror}") from None
        self.damaged = list[int]()
        self.prefixes = read_lines(self._file or (), self.damaged)

    def options(self, lines: Sequence[str], options: TranslateOptions) -> TranslateOptions:
        """Return the options for the next lines, with the beginnings of their outputs.

        Raises ``ConfigError`` if there are fewer of them, or one is not UTF-8.
        """
        path = self.outputs.prefix_file
        if path is None:
            return options
        prefix = list(islice(self.prefixes, len(lines)))
        self._count += len(prefix)
        if len(prefix) < len(lines):
            raise ConfigError(f"{path} ends after line {self._count}; give one for each line")
        if self.damaged:
            raise ConfigError(f"{path}:{self.damaged[0]} is not UTF-8; convert the file")
        return {**options, "prefix": prefix}

    def add(self, answer: TextAnswer, number: int) -> None:
        """Write the links of the answer to a line (from 1), and record its attention."""
        if self.links is not None:
            self.links.write(" ".join(f"{i}-{j}" for i, j in answer.alignment()) + "\n")
        if self.outputs.attention is None or not answer.source.strip():
            return
        if not answer.outputs:
            self.tally.note("not drawn, its translation is from the memory", number)
        elif len(self.records) < PAGE:
            self.records.append(answer.record())
        else:
            self.tally.note(f"not drawn, {self.outputs.attention} holds {PAGE}", number)

    def __exit__(self, *error: object) -> None:
        if self.links is not None:
            self.links.close()
        if self._file is not None:
            if left := sum(1 for _ in self.prefixes):
                message = f"{self.outputs.prefix_file} has {left:,} more lines than the input"
                self.tally.remarks.append(f"{message}: ignored")
            self._file.close()
        if self.outputs.attention is not None and self.records:
            from foveate.look.draw.maps import save_html

            self.tally.remarks += save_html(self.records, self.outputs.attention)
