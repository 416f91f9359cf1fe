"""Drafts: a document translated with an estimate of the quality of each sentence.

The estimates are those of `foveate.documents.trust`, fitted by `calibrate` to held-out lines and
stored beside the model. `write_draft` lists the sentences in a table and a page, those to look at
first first.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from foveate.config import ConfigError, from_json
from foveate.data.catalogue import DataError
from foveate.data.corpus import Meter
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.folders import with_answers, with_languages
from foveate.documents.formats import check_output, format_of, read_document
from foveate.documents.trust import Estimate, Trust, mean_of, signals
from foveate.engine.answers import TextAnswer, Translator
from foveate.engine.packed import NAME, PackedModel
from foveate.files import read_bytes, replace_file

MOST_BYTES = 100 * 2**20  # of a document
PORTION = 256  # sentences translated before the progress is shown
LEAST = 50  # held-out lines that a calibration needs
SHOWN = 2_000  # sentences on a page at most, those to look at first
CHAPTER = re.compile(r"(?:chapter|chapitre|kapitel|cap[ií]tulo|bab|pasal)\s+\S+|#+\s+\S.*", re.I)
COLUMNS = ("unit", "chapter", "source", "draft", "chrf", "low", "high", "colour", "second", "new")


def answered(model: Translator, lines: Sequence[str], to: str | None) -> list[TextAnswer]:
    """Translate lines, showing the progress; ``to`` is for models of several languages."""
    answers, language = list[TextAnswer](), to if model.languages else None
    with Meter("translating", len(lines), "sentences") as meter:
        for first in range(0, len(lines), PORTION):
            answers += model.translate(lines[first : first + PORTION], to=language)
            meter.add(len(answers) - meter.done)
    return answers


def trust_file(model: Path) -> Path:
    """Return where the calibration of a run's folder or of a packed file is stored."""
    if model.is_dir() or model.name == NAME:
        return (model if model.is_dir() else model.parent) / "trust.json"
    return model.with_suffix(".trust.json")


def digest_of(model: Translator) -> str:
    """Return the sha256 of the weights of a run, or of the run of which a packed file was made."""
    if isinstance(model, PackedModel):
        return model.header.made_of.get("sha256", "")
    from foveate.run import Run
    from foveate.train.stored import WEIGHTS, sha256

    own = isinstance(model, Run) and model.path / model.checkpoint / WEIGHTS
    return sha256(own) if own and own.is_file() else ""  # an ensemble has no such file


def calibrate(
    model: Translator, sources: Sequence[str], references: Sequence[str], to: str | None = None
) -> str:
    """Fit the estimates of a model to held-out lines, and store them; return how wide they are.

    Raises ``ConfigError`` for fewer than `LEAST` lines.
    """
    from foveate.tasks.metrics import sentence_scores

    answers = answered(model, sources, to)
    rows = [n for n, answer in enumerate(answers) if answer.outputs]
    if len(rows) < LEAST:
        raise ConfigError(f"{len(rows)} held-out lines are too few: give {LEAST}, better 500")
    texts, right = [str(answers[n]) for n in rows], [references[n] for n in rows]
    chrf, each = sentence_scores("chrf", texts, right), signals(model, [answers[n] for n in rows])
    trust, file = Trust.fit(each, chrf.tolist(), digest_of(model)), trust_file(model.path)
    replace_file(file, trust.model_dump_json(indent=1) + "\n")
    wide = sum(own.high - own.low for own in map(trust.estimate, each)) / len(rows)
    return (
        f"{file}: fitted to {len(rows):,} sentences, whose mean chrF is {chrf.mean():.1f}; "
        f"intervals of 80 % are {wide:.0f} chrF wide on average"
    )


def trust_of(model: Translator, name: str) -> Trust:
    """Return the calibration of a model, which a user calls by ``name``.

    Raises ``ConfigError`` if it has none for its weights.
    """
    file = trust_file(model.path)
    trust = from_json(file, Trust.parse) if file.is_file() else None
    if trust is None or trust.weights != digest_of(model):
        raise ConfigError(
            f"{name} has no calibration for its weights: make it from held-out lines with their "
            f"translations, foveate draft {name} --calibrate valid.src valid.tgt"
        )
    return trust


class DraftSentence(NamedTuple):
    """A sentence of a draft; ``estimate`` is None if it stayed in the source language.

    ``second`` is the chrF of another model's translation against it, ``new`` the words of the
    source that occur in no training source.
    """

    unit: str
    source: str
    draft: str
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
        """Return its `COLUMNS`, as text on one line."""
        figures = [*(self.estimate or [None] * 3)[:3], self.second]
        *numbers, second = ["" if figure is None else f"{figure:.1f}" for figure in figures]
        texts = [self.unit, self.chapter, self.source, self.draft]
        cells = [*texts, *numbers, self.colour, second, ", ".join(self.new)]
        return [" ".join(cell.split()) for cell in cells]


def write_draft(
    model: Translator, name: str, book: Path, out: Path, to: str | None = None,
    limits: tuple[float, float] = (40.0, 60.0), second: Translator | None = None,
) -> list[str]:  # fmt: skip
    """Write the draft of a document, its table and its page; return what they hold.

    A sentence is red below the first of the ``limits``, yellow below the second, else green; red
    if it stayed in the source language. Raises ``ConfigError`` as `trust_of`, and ``OSError`` for a
    document of more than `MOST_BYTES`.
    """
    trust = trust_of(model, name)
    if not out.parent.is_dir():  # said before hours of work
        raise ConfigError(f"{out}: the folder {out.parent} does not exist; make it first")
    check_output(out, kind := format_of(book))
    options = with_languages(model, DocumentOptions(to=to))
    document = read_document(kind, read_bytes(book, MOST_BYTES), options, str(book))
    answers = answered(model, document.sentences, to)
    replace_file(out, with_answers(document, answers, model, to))
    shown = [both for passage in document.passages for both in passage.shown]
    rows = zip(shown, _units(document), signals(model, answers), strict=True)
    agreement = _agreement(document.sentences, answers, second, to)
    stayed, search, sentences = set(document.stayed), _new_words(model), list[DraftSentence]()
    for n, ((source, text), unit, own) in enumerate(rows):
        estimate = None if n + 1 in stayed or not own else trust.estimate(own)
        above = 0 if estimate is None else sum(estimate.chrf >= limit for limit in limits)
        colour, other = ("red", "yellow", "green")[above], agreement[n] if agreement else None
        sentences.append(DraftSentence(unit, source, text, estimate, colour, other, search(source)))
    sentences.sort(key=lambda sentence: (sentence.estimate or Estimate(-1, 0, 0, 0)).chrf)
    table, page = (out.with_name(f"{out.name}.trust.{ending}") for ending in ("tsv", "html"))
    lines = ["\t".join(cells) for cells in (COLUMNS, *(row.cells for row in sentences))]
    replace_file(table, "".join(f"{line}\n" for line in lines))
    report, text = _page(book.name, sentences, limits)
    replace_file(page, text)
    return [f"{out}{document.note}", f"{table}, {page}: {report}"]


def _agreement(
    lines: Sequence[str], answers: Sequence[TextAnswer], second: Translator | None, to: str | None
) -> list[float]:
    """Return the chrF of a second model's translations against each answer; [] without one."""
    if second is None:
        return []
    from foveate.tasks.metrics import sentence_scores

    others = answered(second, lines, to)
    scores = sentence_scores("chrf", list(map(str, others)), list(map(str, answers)))
    return [float(score) for score in scores]


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
    """Return a function that lists the words of a text that a model never saw in training."""
    folder = model.path if model.path.is_dir() else model.path.parent
    try:
        from foveate.run import read_run
        from foveate.run.answering import unknown_words, words_without_piece
    except ModuleNotFoundError:  # training data are read with PyTorch
        return lambda text: []
    with suppress(ConfigError, DataError, OSError):
        config = read_run(folder)
        task = config.task.build(config.data)
        task.restore(folder)
        return partial(unknown_words, task)
    return partial(words_without_piece, model.sides("translate").source_tokenizer)


def _page(
    name: str, sentences: Sequence[DraftSentence], limits: tuple[float, float]
) -> tuple[str, str]:
    """Return the counts and the mean in a sentence, and one HTML file with all chapters."""
    estimates: dict[str, list[Estimate]] = {"whole book": []}
    for sentence in sentences:
        if sentence.estimate is not None:
            for part in ("whole book", sentence.chapter):
                estimates.setdefault(part, []).append(sentence.estimate)
    means = {part: mean_of(own) for part, own in estimates.items() if part and own}
    colours = [sentence.colour for sentence in sentences]
    report = ", ".join(f"{colours.count(colour)} {colour}" for colour in ("red", "yellow", "green"))
    if "whole book" in means:
        chrf, low, high, _ = means["whole book"]
        report += f"; expected chrF {chrf:.1f} ({low:.1f} to {high:.1f})"
    own = {
        "report": report,
        "count": len(sentences),
        "limits": limits,
        "chapters": [[part, *(f"{x:.1f}" for x in mean[:3])] for part, mean in means.items()],
        "rows": [sentence.cells for sentence in sentences[:SHOWN]],
    }
    parts = {"title": html.escape(name), "draft": json.dumps(own).replace("<", "\\u003c")}
    page = resources.files("foveate.documents").joinpath("draft.html").read_text("utf-8")
    return report, re.sub(r"{{(\w+)}}", lambda part: parts[part[1]], page)
