"""Drafts: a document translated with an estimate of the quality of each sentence.

The estimates are those of `foveate.engine.calibration`, fitted by `calibrate` to held-out lines.
`Draft.table` and `Draft.page` list the sentences, those to look at first first.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from foveate.data.corpus import Meter
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.formats import format_of, read_document
from foveate.documents.whole import with_answers, with_languages
from foveate.engine.answers import TextAnswer, Translator
from foveate.engine.calibration import Calibration, Estimate, Signals, calibration_file
from foveate.errors import ConfigError
from foveate.files import read_bytes, replace_file

MOST_BYTES = 100 * 2**20  # of a document
PORTION = 256  # sentences translated before the progress is shown
LEAST = 50  # held-out lines that a calibration needs
SHOWN = 2_000  # sentences on a page at most, those to look at first
CHAPTER = re.compile(r"(?:chapter|chapitre|kapitel|cap[ií]tulo|bab|pasal)\s+\S+|#+\s+\S.*", re.I)
COLUMNS = ("unit", "chapter", "source", "draft", "chrf", "low", "high", "colour", "second", "new")


def answered(model: Translator, lines: Sequence[str], to: str | None) -> list[TextAnswer]:
    """Translate lines, showing the progress."""
    answers = list[TextAnswer]()
    with Meter("translating", len(lines), "sentences") as meter:
        for first in range(0, len(lines), PORTION):
            answers += model.translate(lines[first : first + PORTION], to=to)
            meter.add(len(answers) - meter.done)
    return answers


def calibrate(
    model: Translator, sources: Sequence[str], references: Sequence[str], to: str | None = None
) -> str:
    """Fit the calibration of a model to held-out lines, and store it; return how wide it is.

    Raises ``ConfigError`` for fewer than `LEAST` lines.
    """
    from foveate.tasks.metrics import sentence_scores

    answers = answered(model, sources, to)
    rows = [n for n, answer in enumerate(answers) if answer.outputs]
    if len(rows) < LEAST:
        raise ConfigError(f"{len(rows)} held-out lines are too few: give {LEAST}, better 500")
    texts, right = [str(answers[n]) for n in rows], [references[n] for n in rows]
    figures = sentence_scores("chrf", texts, right).tolist()
    signals = model.signals([answers[n] for n in rows])
    calibration = Calibration.fit(signals, figures, model.digest)
    file = calibration_file(model.path)
    replace_file(file, calibration.model_dump_json(indent=1) + "\n")
    wide = sum(high - low for _, low, high in map(calibration.estimate, signals)) / len(rows)
    return (
        f"{file}: fitted to {len(rows):,} sentences, whose mean chrF is "
        f"{sum(figures) / len(rows):.1f}; intervals of 80 % are {wide:.0f} chrF wide on average"
    )


@dataclass(frozen=True)
class DraftSentence:
    """A sentence of a draft; ``estimate`` is None if it stayed in the source language.

    ``second`` is the chrF of another model's translation against it, ``new`` the words of the
    source that occur in no training source.
    """

    unit: str
    source: str
    draft: str
    signals: Signals
    estimate: Estimate | None
    colour: str
    second: float | None
    new: Sequence[str]

    @property
    def chapter(self) -> str:
        """The part of the unit's name before a colon."""
        return self.unit.rpartition(":")[0]

    @property
    def cells(self) -> list[str]:
        """Its `COLUMNS`, as text."""
        figures = [*(self.estimate or [None] * 3), self.second]
        *numbers, second = ["" if figure is None else f"{figure:.1f}" for figure in figures]
        texts = [self.unit, self.chapter, self.source, self.draft]
        return [*texts, *numbers, self.colour, second, ", ".join(self.new)]


@dataclass(frozen=True)
class Draft:
    """The sentences of a drafted document, in its order."""

    name: str
    sentences: Sequence[DraftSentence]
    calibration: Calibration

    @cached_property
    def order(self) -> list[DraftSentence]:
        """The sentences, those with the lowest estimates first."""
        return sorted(self.sentences, key=lambda s: -1.0 if s.estimate is None else s.estimate.chrf)

    @cached_property
    def means(self) -> dict[str, Estimate]:
        """The mean of the whole book with its interval, and that of each chapter."""
        signals: dict[str, list[Signals]] = {"whole book": []}
        for sentence in self.sentences:
            for name in filter(None, ("whole book", sentence.chapter)):
                signals.setdefault(name, []).extend([sentence.signals] * bool(sentence.estimate))
        return {name: self.calibration.mean(own) for name, own in signals.items() if own}

    def table(self) -> str:
        """Return the sentences as TSV, with a header."""
        rows = [COLUMNS, *(sentence.cells for sentence in self.order)]
        return "".join("\t".join(" ".join(c.split()) for c in row) + "\n" for row in rows)

    def report(self) -> str:
        """Return the counts of each colour and the mean, in a sentence."""
        colours = [sentence.colour for sentence in self.sentences]
        counts = [f"{colours.count(name):,} {name}" for name in ("red", "yellow", "green")]
        means = ["expected chrF {:.1f} ({:.1f} to {:.1f})".format(*m) for m in self.means.values()]
        return ", ".join([*counts, *means[:1]])

    def page(self) -> str:
        """Return one HTML file: the chapters, and the sentences to look at first."""
        page = resources.files("foveate.documents").joinpath("draft.html").read_text("utf-8")
        chapters = (
            f"<tr><td>{html.escape(name)}</td><td>{chrf:.1f} <small>{low:.1f}–{high:.1f}</small>"
            f"</td><td><meter max=100 value={chrf:.1f}></meter></td></tr>"
            for name, (chrf, low, high) in self.means.items()
        )
        parts = {
            "title": html.escape(self.name),
            "report": self.report(),
            "count": f"{min(SHOWN, len(self.sentences)):,} of {len(self.sentences):,}",
            "chapters": "\n".join(chapters),
            "rows": "\n".join(map(_row, self.order[:SHOWN])),
        }
        return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], page)


def _row(sentence: DraftSentence) -> str:
    unit, _, source, draft, chrf, low, high, colour, second, new = map(html.escape, sentence.cells)
    estimate = f"<b>{chrf}</b> <small>{low}–{high}</small>" if chrf else "<b>not translated</b>"
    notes = f"<p>Not in the training data: {new}</p>" * bool(new)
    notes += f"<p>The second draft agrees by {second} chrF.</p>" * bool(second)
    return (
        f"<tr class={colour}><td>{unit}</td><td>{colour}<br>{estimate}</td>"
        f"<td>{source}</td><td>{draft}{notes}</td></tr>"
    )


def write_draft(
    model: Translator, name: str, book: Path, out: Path, to: str | None = None,
    limits: tuple[float, float] = (40.0, 60.0), second: Translator | None = None,
) -> list[str]:  # fmt: skip
    """Write the draft of a document, its table and its page; return what they hold.

    A sentence is red below the first of the ``limits``, yellow below the second, else green; red
    if it stayed in the source language. Raises ``ConfigError`` if the model, which a user calls by
    ``name``, has no calibration, and ``OSError`` for a document of more than `MOST_BYTES`.
    """
    calibration = model.calibration
    if calibration is None or not calibration.deviation:
        raise ConfigError(
            f"{name} has no calibration for its weights: make it from held-out lines with their "
            f"translations, foveate draft {name} --calibrate valid.src valid.tgt"
        )
    options = with_languages(model, DocumentOptions(to=to))
    document = read_document(format_of(book), read_bytes(book, MOST_BYTES), options, str(book))
    language = to if model.languages else None  # else it names the language of the document
    answers = answered(model, document.sentences, language)
    replace_file(out, with_answers(document, answers, model, language))
    agreement = _agreement(answers, document, second, language)
    shown = [both for passage in document.passages for both in passage.shown]
    stayed, search, sentences = set(document.stayed), _new_words(model), list[DraftSentence]()
    rows = zip(_units(document), shown, model.signals(answers), agreement, strict=True)
    for n, (unit, (source, text), signals, second_chrf) in enumerate(rows, start=1):
        left = n in stayed or not signals
        estimate = None if left else calibration.estimate(signals)
        above = 0 if estimate is None else sum(estimate.chrf >= limit for limit in limits)
        colour, new = ("red", "yellow", "green")[above], search(source)
        sentences.append(
            DraftSentence(unit, source, text, signals, estimate, colour, second_chrf, new)
        )
    draft = Draft(book.name, sentences, calibration)
    table, page = (out.with_name(f"{out.name}.trust.{ending}") for ending in ("tsv", "html"))
    replace_file(table, draft.table())
    replace_file(page, draft.page())
    return [f"{out}{document.note}", f"{table}, {page}: {draft.report()}"]


def _agreement(
    answers: Sequence[TextAnswer], document: Document, second: Translator | None, to: str | None
) -> Sequence[float | None]:
    """Return the chrF of a second model's translations against each answer."""
    if second is None:
        return [None] * len(answers)
    from foveate.tasks.metrics import sentence_scores

    others = answered(second, document.sentences, to if second.languages else None)
    scores: list[float] = sentence_scores(
        "chrf", list(map(str, others)), list(map(str, answers))
    ).tolist()
    return scores


def _units(document: Document) -> list[str]:
    """Return the unit of each sentence: the name of its passage, else a number in a chapter."""
    if document.units:
        named = zip(document.units, document.passages, strict=True)
        return [unit for unit, passage in named for _ in passage.sentences]
    chapter, units = "", list[str]()
    for number, sentence in enumerate(document.sentences, start=1):
        chapter = f"{sentence}:" if CHAPTER.fullmatch(sentence.rstrip(".")) else chapter
        units.append(f"{chapter}{number}")
    return units


def _new_words(model: Translator) -> Callable[[str], list[str]]:
    try:
        from foveate.run.words import word_search
    except ModuleNotFoundError:  # without PyTorch there is no run with training data
        return lambda text: []
    return word_search(model)
