"""``foveate draft``: a document translated with an estimate of each sentence's quality."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foveate.cli.options as options
from foveate.cli.answers import EngineChoice
from foveate.cli.engines import RunSpec
from foveate.cli.options import say
from foveate.cli.translate import Format
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from foveate.documents.base import Document
    from foveate.engine.answers import TextAnswer, Translator

MOST_BYTES = 100 * 2**20  # of a document
Held = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="SOURCE TARGET", help="held-out lines: fit the estimates to them"),
]
Second = Annotated[Path | None, typer.Option(metavar="RUN", help="also compare with its draft")]
Limit = typer.Option(min=0, max=100, help="chrF below which a sentence has this colour")


@dataclass(frozen=True)
class DraftRequest:
    """The arguments of ``foveate draft``."""

    run: options.RunPath
    book: Annotated[Path | None, typer.Argument(metavar="[BOOK]", help="the document")] = None
    out: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="its draft")] = None
    calibrate: Held = None
    second: Second = None
    red: Annotated[float, Limit] = 40.0
    yellow: Annotated[float, Limit] = 60.0
    to: Annotated[str | None, typer.Option(help="language, if the run knows several")] = None
    format: Format = None
    beam_size: options.BeamSize = None
    choice: EngineChoice = field(default_factory=EngineChoice)

    def check(self) -> None:
        """Raise ``ConfigError`` for arguments that do not fit together."""
        if self.calibrate is None and self.book is None:
            raise ConfigError("name a document, BOOK OUT, or held-out lines: --calibrate SRC TGT")
        if self.book is not None and self.out is None:
            raise ConfigError(f"{self.book}: name the draft to write behind the document")
        if self.red > self.yellow:
            raise ConfigError(f"--red {self.red:g} is above --yellow {self.yellow:g}")

    def read(self, book: Path, model: Translator) -> Document:
        """Read the document, of at most `MOST_BYTES`."""
        from foveate.documents.base import DocumentOptions
        from foveate.documents.formats import format_of, read_document
        from foveate.documents.whole import with_languages
        from foveate.files import read_bytes

        kind = format_of(book, self.format)
        content = read_bytes(book, MOST_BYTES)
        how = with_languages(model, DocumentOptions(to=self.to))
        return read_document(kind, content, how, str(book))

    def answers(self, model: Translator, document: Document) -> list[TextAnswer]:
        """Translate the sentences of the document by a model."""
        from foveate.documents.drafts import answered

        to = self.to if model.languages else None
        return answered(model, document.sentences, {"beam_size": self.beam_size, "to": to})

    def write(self, book: Path, out: Path, model: Translator) -> list[str]:
        """Write the draft, its table and its page; return what they hold."""
        from foveate.documents.drafts import Thresholds, calibration_of, drafted
        from foveate.documents.whole import with_answers
        from foveate.files import replace_file

        calibration = calibration_of(model, str(self.run))
        document = self.read(book, model)
        answers = self.answers(model, document)
        to = self.to if model.languages else None
        replace_file(out, with_answers(document, answers, model, to))
        other = [] if self.second is None else self.answers(_loaded(self.second), document)
        draft = drafted(
            book.name, document, answers, model, calibration, Thresholds(self.red, self.yellow),
            list(map(str, other)),
        )  # fmt: skip
        table, page = (out.with_name(f"{out.name}.trust.{ending}") for ending in ("tsv", "html"))
        replace_file(table, draft.table())
        replace_file(page, draft.page())
        return [f"{out}{document.note}", f"{table}, {page}: {draft.report()}"]


def _loaded(run: Path) -> Translator:
    spec = RunSpec(str(options.named(run)))
    return spec.packed({}) or spec.load()


def draft(request: DraftRequest) -> None:
    """Translate a document and say how far to trust it."""
    request.check()
    spec, packed = request.choice.packed(request.run)
    model = packed or spec.load()
    if request.calibrate is not None:
        from foveate.data.text import TextData, read_pairs
        from foveate.documents.drafts import calibrate

        held = read_pairs(*request.calibrate, TextData())
        say([calibrate(model, held.sources, held.targets, request.to)])
    if request.book is not None and request.out is not None:
        say(request.write(request.book, request.out, model))
