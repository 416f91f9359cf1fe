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
from itertools import chain
from typing import NamedTuple

from foveate.data.corpus import Meter
from foveate.documents.base import Document
from foveate.engine.answers import TextAnswer, TranslateOptions, Translator
from foveate.engine.calibration import Calibration, Estimate, Signals, calibration_file
from foveate.errors import ConfigError
from foveate.files import replace_file

PORTION = 256  # sentences translated before the progress is shown
LEAST = 50  # held-out lines that a calibration needs
SHOWN = 2_000  # sentences on a page at most, those to look at first
CHAPTER = re.compile(r"(?:chapter|chapitre|kapitel|cap[ií]tulo|bab|pasal)\s+\S+|#+\s+\S.*", re.I)
COLUMNS = ("unit", "chapter", "source", "draft", "chrf", "low", "high", "colour", "second", "new")


def answered(
    model: Translator, lines: Sequence[str], search: TranslateOptions, label: str = "translating"
) -> list[TextAnswer]:
    """Translate lines, showing the progress."""
    answers = list[TextAnswer]()
    with Meter(label, len(lines), "sentences") as meter:
        for first in range(0, len(lines), PORTION):
            answers += model.translate(lines[first : first + PORTION], **search)
            meter.add(len(answers) - meter.done)
    return answers


def calibrate(
    model: Translator, sources: Sequence[str], references: Sequence[str], to: str | None = None
) -> str:
    """Fit and store the calibration of a model on held-out lines; return what it is worth.

    Raises ``ConfigError`` for fewer than `LEAST` lines.
    """
    from foveate.run.pack import calibrated

    if len(sources) < LEAST:
        few = f"{len(sources)} held-out lines are too few to calibrate with"
        raise ConfigError(f"{few}: give at least {LEAST}, better 500")
    answers = answered(model, sources, {"to": to}, "calibrating")
    calibration = calibrated(model, references, answers)
    file = calibration_file(model.path)
    replace_file(file, calibration.model_dump_json(indent=1) + "\n")
    signals = [own for own in model.signals(answers) if own]
    wide = sum(high - low for _, low, high in map(calibration.estimate, signals)) / len(signals)
    mean = calibration.mean(signals).chrf
    return (
        f"{file}: fitted to {calibration.sentences:,} sentences, whose mean chrF is {mean:.1f}; "
        f"intervals of 80 % are {wide:.0f} chrF wide on average"
    )


def calibration_of(model: Translator, name: str) -> Calibration:
    """Return the calibration of a model. Raises ``ConfigError`` that says how to make it."""
    own = model.calibration
    if own is None or not own.deviation:
        raise ConfigError(
            f"{name} has no calibration for its weights: make it from held-out lines with their "
            f"translations, foveate draft {name} --calibrate valid.src valid.tgt"
        )
    return own


class Thresholds(NamedTuple):
    """A sentence is red below ``red``, yellow below ``yellow``, else green."""

    red: float = 40.0
    yellow: float = 60.0

    def colour(self, estimate: Estimate | None) -> str:
        """Return the colour of an estimate; red without any, since it was not translated."""
        if estimate is None or estimate.chrf < self.red:
            return "red"
        return "yellow" if estimate.chrf < self.yellow else "green"


@dataclass(frozen=True)
class DraftSentence:
    """A sentence of a draft; ``estimate`` is None if it stayed in the source language.

    ``second`` is the chrF of another model's translation against it, ``new`` the words of the
    source that occur in no training source.
    """

    unit: str
    chapter: str
    source: str
    draft: str
    signals: Signals
    estimate: Estimate | None
    colour: str
    second: float | None
    new: Sequence[str]

    @property
    def cells(self) -> list[str]:
        """Its columns, as text."""
        numbers = ["", "", ""] if self.estimate is None else [f"{x:.1f}" for x in self.estimate]
        second = "" if self.second is None else f"{self.second:.1f}"
        texts = [self.unit, self.chapter, self.source, self.draft]
        return [*texts, *numbers, self.colour, second, ", ".join(self.new)]


@dataclass(frozen=True)
class Draft:
    """The sentences of a drafted document, in its order."""

    name: str
    sentences: Sequence[DraftSentence]
    calibration: Calibration
    thresholds: Thresholds

    @cached_property
    def order(self) -> list[DraftSentence]:
        """The sentences, those with the lowest estimates first."""
        return sorted(self.sentences, key=lambda s: -1.0 if s.estimate is None else s.estimate.chrf)

    @cached_property
    def chapters(self) -> dict[str, Estimate]:
        """The mean of each chapter with its interval, and under "" that of the whole book."""
        signals: dict[str, list[Signals]] = {"": []}
        for sentence in self.sentences:
            for name in {"", sentence.chapter} if sentence.estimate is not None else ():
                signals.setdefault(name, []).append(sentence.signals)
        return {name: self.calibration.mean(own) for name, own in signals.items() if own}

    def table(self) -> str:
        """Return the sentences as TSV, with a header."""
        rows = [COLUMNS, *(sentence.cells for sentence in self.order)]
        return "".join("\t".join(" ".join(c.split()) for c in row) + "\n" for row in rows)

    def report(self) -> str:
        """Return the counts of each colour and the mean, in a sentence."""
        colours = [sentence.colour for sentence in self.sentences]
        counts = ", ".join(f"{colours.count(name):,} {name}" for name in ("red", "yellow", "green"))
        if "" not in self.chapters:
            return counts
        chrf, low, high = self.chapters[""]
        return f"{counts}; expected chrF {chrf:.1f} ({low:.1f} to {high:.1f})"

    def page(self) -> str:
        """Return one HTML file: the chapters, and the sentences to look at first."""
        page = resources.files("foveate.documents").joinpath("draft.html").read_text("utf-8")
        chapters = [
            f"<tr><td>{html.escape(name or 'whole book')}</td>{_bar(*estimate)}</tr>"
            for name, estimate in self.chapters.items()
        ]
        parts = {
            "title": html.escape(self.name),
            "report": html.escape(self.report()),
            "left": f"The first {SHOWN:,} of " if len(self.sentences) > SHOWN else "All ",
            "count": f"{len(self.sentences):,}",
            "red": f"{self.thresholds.red:g}",
            "yellow": f"{self.thresholds.yellow:g}",
            "chapters": "\n".join(chapters),
            "rows": "\n".join(map(_row, self.order[:SHOWN])),
        }
        return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], page)


def _bar(chrf: float, low: float, high: float) -> str:
    """Return a mean as two cells of a table: its numbers, and a bar of its interval."""
    bar = f'<i style="margin-left:{low:.1f}%;width:{max(0.5, high - low):.1f}%"></i>'
    return f"<td>{chrf:.1f} <small>{low:.1f}–{high:.1f}</small></td><td class=bar>{bar}</td>"


def _row(sentence: DraftSentence) -> str:
    unit, _, source, draft, chrf, low, high, colour, second, new = map(html.escape, sentence.cells)
    estimate = f"<b>{chrf}</b> <small>{low}–{high}</small>" if chrf else "<b>not translated</b>"
    notes = f"<p>Not in the training data: {new}</p>" * bool(new)
    notes += f"<p>The second draft agrees by {second} chrF.</p>" * bool(second)
    return (
        f"<tr class={colour}><td>{unit}</td><td>{colour}<br>{estimate}</td>"
        f"<td>{source}</td><td>{draft}{notes}</td></tr>"
    )


def drafted(
    name: str,
    document: Document,
    answers: Sequence[TextAnswer],
    model: Translator,
    calibration: Calibration,
    thresholds: Thresholds,
    second: Sequence[str] = (),
) -> Draft:
    """Return the draft of a document that is translated by a model, which is written already.

    ``second`` are another model's translations of its sentences.
    """
    agreement: Sequence[float | None] = [None] * len(answers)
    if second:
        from foveate.tasks.metrics import sentence_scores

        agreement = sentence_scores("chrf", second, list(map(str, answers))).tolist()
    stayed, search = set(document.stayed), _new_words(model)
    labels, signals = _units(document), model.signals(answers)
    shown = [both for passage in document.passages for both in passage.shown]
    sentences = list[DraftSentence]()
    for number, answer in enumerate(answers):
        left = number + 1 in stayed or not signals[number]
        estimate = None if left else calibration.estimate(signals[number])
        sentences.append(
            DraftSentence(
                *labels[number], *shown[number], signals[number], estimate,
                thresholds.colour(estimate), agreement[number], search(answer.source),
            )
        )  # fmt: skip
    return Draft(name, sentences, calibration, thresholds)


def _units(document: Document) -> list[tuple[str, str]]:
    """Return unit and chapter of each sentence: by the names of passages, else by headings."""
    if document.units:
        named = zip(document.units, document.passages, strict=True)
        units = chain.from_iterable([unit] * len(passage.sentences) for unit, passage in named)
        return [(unit, unit.rpartition(":")[0]) for unit in units]
    chapter, labels = "", list[tuple[str, str]]()
    for number, sentence in enumerate(document.sentences, start=1):
        chapter = sentence if CHAPTER.fullmatch(sentence.rstrip(".")) else chapter
        labels.append((f"sentence {number}", chapter))
    return labels


def _new_words(model: Translator) -> Callable[[str], list[str]]:
    try:
        from foveate.run.words import word_search
    except ModuleNotFoundError:  # without PyTorch there is no run with training data
        return lambda text: []
    return word_search(model)
