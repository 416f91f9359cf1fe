"""Figures of a trained model on examples, by the libraries that papers cite.

    evaluate(task, engine, examples(task, "test"), SearchRequest(search)) -> Evaluation

Each function is registered for the class of a task; a task of one's own has those of the class it
derives from, and registers others by ``@evaluate.register(MyTask)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.data.catalogue import DataError
from foveate.data.corpus import Text, read_text
from foveate.data.series import Windows, labels
from foveate.data.text import CUT, Corpus, TextData, is_table
from foveate.data.words import language_of
from foveate.decode.engine import SearchRequest, check_finite
from foveate.engine.answers import ModelEngine
from foveate.errors import UserError, checks
from foveate.run.answering import answer
from foveate.run.baselines import MOST, logistic_regression, ridge_regression
from foveate.tasks import forecasting, language, masked, metrics
from foveate.tasks.base import AnyTask, Batch, spread
from foveate.tasks.captioning import Captioning, nearest_captions
from foveate.tasks.classification import (
    LogP,
    Names,
    TextClassification,
    counts_of,
    figures_of_labels,
    numbers_of,
    stripped,
)
from foveate.tasks.engine import members_of
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.image_classification import ROWS, ImageClassification, PictureTask
from foveate.tasks.language import Language, Stream
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.text import AnyTextToText, TextTask, TextToText, paired, read_own, unread

WIDEST, LARGEST = 20, 15  # columns of a table that is printed whole; cells of one that is not


@dataclass(frozen=True)
class Table:
    """Numbers with names for rows and columns, such as a confusion matrix."""

    title: str
    rows: list[str]
    columns: list[str]
    cells: Sequence[Sequence[float]]

    def lines(self) -> list[str]:
        """The table as text; of one with more than `WIDEST` columns the largest cells off the
        diagonal, which of a confusion matrix are the labels that are most often mistaken.
        """
        if len(self.columns) > WIDEST:
            cells = {
                f"{row} → {column}": cell
                for row, cells in zip(self.rows, self.cells, strict=True)
                for column, cell in zip(self.columns, cells, strict=True)
                if row != column and cell
            }
            most = sorted(cells, key=lambda name: -cells[name])[:LARGEST]
            heading = f"{self.title}: the largest {len(most)} off the diagonal (--json prints all)"
            return [heading] + [f"{cells[name]:>6}  {name}" for name in most]
        table = [self.columns, *([str(cell) for cell in row] for row in self.cells)]
        width = max((len(cell) for row in table for cell in row), default=0)
        left = max(map(len, self.rows), default=0)
        names = ["", *self.rows]
        return [self.title] + [
            f"{name:<{left}}  " + " ".join(f"{cell:>{width}}" for cell in row)
            for name, row in zip(names, table, strict=True)
        ]


@dataclass(frozen=True)
class Baseline:
    """Figures of a method of seconds; ``about`` names it, or says why there are none.

    ``better`` are those in which it is better than the model.
    """

    about: str
    figures: dict[str, float] = field(default_factory=dict)
    better: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Against:
    """Another run on the same examples: its figures, and p of the difference by paired bootstrap.

    Metrics without a paired test, such as error rates of whole corpora, are left out.
    """

    run: str
    figures: dict[str, float]
    p: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Figures by name with the signatures of their libraries, and one output for each example.

    ``noted`` lists the examples (from 1) of each event, such as sources that were cut; ``baseline``
    is of the same examples, where it was asked for and the task has one; ``against``, another run.
    ``curves`` of forecasts hold by name the mean squared error of each step ahead, on scaled
    values: the forecast's, the ``teacher_forced`` one where the model reads its own predictions in
    use, and those of the naive forecasts.
    """

    figures: dict[str, float]
    signatures: dict[str, str]
    outputs: list[str] = field(repr=False)
    noted: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    baseline: Baseline | None = None
    against: Against | None = None
    curves: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `NoOutputError` where a loss or an error is not finite."""
        for name in ("loss", "perplexity", "bits_per_character", "mse", "mae"):
            check_finite(self.figures.get(name, 0.0), f"no {name}")


@checks(object)
@singledispatch
def examples(task: AnyTask, split: str) -> Any:
    """Return the examples of a split of the run's own data, as `evaluate` takes them: its name."""
    return split


@singledispatch
def as_examples(task: AnyTask, *columns: object) -> Any:
    """Return examples of the user's own, such as sources and references."""
    raise UserError(f"the task {task.config.kind} is evaluated on a split or on files")


@checks(object)
@singledispatch
def read_examples(task: AnyTask, source: Path, reference: Path | None = None) -> Any:
    """Return the examples of files of the user's own."""
    raise UserError(
        f"the task {task.config.kind} is evaluated on a split of its own data, not on files; to "
        f"read files, register read_examples (foveate.run.evaluation) for {type(task).__name__}"
    )


@checks(Evaluation)
@singledispatch
def evaluate(
    task: AnyTask, engine: ModelEngine, examples: object, request: SearchRequest
) -> Evaluation:
    """Return all figures of a trained model on examples, and its outputs.

    Those of `Task.measure`, on a split, if nothing is registered for the class of the task.
    """
    if not isinstance(examples, str):
        raise UserError(
            f"the task {task.config.kind} is evaluated on a split of its own data alone; for "
            f"others, register evaluate (foveate.run.evaluation) for {type(task).__name__}"
        )
    search: Any = request.search
    with torch.inference_mode():
        own = task.measure(engine.model, examples, search, len(task.lengths(examples)))
    return Evaluation(own.figures, {}, [sample.output for sample in own.samples])


@singledispatch
def baseline(task: AnyTask, examples: object) -> Baseline | None:
    """Return the figures of a method of seconds, such as one fitted to the training data."""
    return None


@as_examples.register(TextToText)
def _as_examples_text(
    task: AnyTextToText, sources: Sequence[str], references: Sequence[str]
) -> Corpus:
    """Pairs of the user's own. Raises `UserError` where one side has more."""
    return paired(sources, references, ("sources", "references"))


@read_examples.register(TextToText)
def _read_pairs(task: AnyTextToText, source: Path, reference: Path | None = None) -> Corpus:
    return read_own(source, reference, task.data)


@evaluate.register(TextToText)
def _evaluate_text(
    task: AnyTextToText, engine: ModelEngine, examples: Corpus, request: SearchRequest
) -> Evaluation:
    answers = answer(task, engine, examples.sources, request)
    outputs = list(map(str, answers))
    names = task.config.metrics, task.config.bleu_tokenizer
    figures, signatures = metrics.figures_of(outputs, examples.references, *names)
    for tag in task.source_tokenizer.tags:
        chosen = [i for i, text in enumerate(examples.sources) if text.startswith(tag)]
        if not chosen:
            continue
        right = [examples.references[i] for i in chosen]
        part, _ = metrics.figures_of([outputs[i] for i in chosen], right, *names)
        figures |= {f"{name} {tag}": value for name, value in part.items()}
    cut = [line for line, answer in zip(examples.lines, answers, strict=True) if answer.cut]
    noted = ({CUT: cut} if cut else {}) | unread(examples)
    if 0 <= figures.get("bleu", 100.0) < 1 and (odd := swapped(examples, outputs)):
        noted[odd] = list(examples.lines)
    return Evaluation(figures, signatures, outputs, noted)


@baseline.register(TextToText)
def _baseline_text(task: AnyTextToText, examples: Corpus) -> Baseline:
    """The figures of copying each source: a model below them has learnt less than nothing."""
    copies = list(map(task.source_tokenizer.bare, examples.sources))
    names = task.config.metrics, task.config.bleu_tokenizer
    return Baseline(
        "copying the source", metrics.figures_of(copies, examples.references, *names)[0]
    )


@as_examples.register(Language)
def _as_examples_language(task: Language, text: str) -> Stream:
    """A text of the user's own."""
    return task.stream(Text(text.removesuffix("\n").split("\n"), text.endswith("\n")))


@read_examples.register(Language)
def _read_language(task: Language, source: Path, reference: Path | None = None) -> Stream:
    if reference is not None:
        raise DataError(f"--reference {reference}: a language model reads one text, not pairs")
    text = read_text(source, TextData())
    if not text.characters:
        raise DataError(f"{source} is empty: nothing to evaluate on")
    return task.stream(text)


@evaluate.register(Language)
@torch.inference_mode()
def _evaluate_language(
    task: Language, engine: ModelEngine, examples: Stream, request: SearchRequest
) -> Evaluation:
    """The figures of a text; the outputs are log-probabilities of its lines."""
    log_p = task.log_probabilities(engine.model, examples.ids, request.batch_tokens)
    figures = language.figures_of(examples, log_p) | {"tokens": float(len(examples))}
    lines = np.add.reduceat(log_p, examples.starts[examples.starts < len(log_p)])
    reaches = dict.fromkeys(task.reach(each) for each in members_of(engine.model))
    how = "; ".join(
        "one pass over the text, the state carried from its beginning"
        if reach is None
        else f"windows of {reach} tokens, each predicted after at least {reach // 2}"
        for reach in reaches
    )
    return Evaluation(figures, {"loss": how}, [f"{value:.4f}" for value in lines])


@as_examples.register(MaskedLanguage)
def _as_examples_masked(task: MaskedLanguage, texts: Sequence[str]) -> Corpus:
    """Texts of the user's own."""
    return Corpus(list(texts), list(texts), range(1, len(texts) + 1))


@read_examples.register(MaskedLanguage)
def _read_masked(task: MaskedLanguage, source: Path, reference: Path | None = None) -> Corpus:
    return read_own(source, None if is_table(source) else source, task.data)


@evaluate.register(MaskedLanguage)
def _evaluate_masked(
    task: MaskedLanguage, engine: ModelEngine, examples: Corpus, request: SearchRequest
) -> Evaluation:
    """Figures and the texts with the guesses filled in; the same places are always hidden."""
    ids, noted = task.cut(examples)
    guesses = task.guess(engine.model, ids, request.batch_tokens)
    outputs = [task.filled(text, guesses, i) for i, text in enumerate(ids)]
    return Evaluation(masked.figures_of(guesses), {}, outputs, noted)


@as_examples.register(TextClassification)
def _as_examples_labels(
    task: TextClassification, texts: Sequence[str], labels: Sequence[str]
) -> Corpus:
    """Examples of the user's own. Raises `UserError` where one side has more."""
    corpus = paired(texts, labels, ("texts", "labels"))
    task.numbers(corpus, Path("example"))
    return corpus


@read_examples.register(TextClassification)
def _read_labels(task: TextClassification, source: Path, reference: Path | None = None) -> Corpus:
    corpus = read_own(source, reference, task.data)
    file = reference or source
    pairs = zip(corpus.lines, corpus.sources, corpus.targets, strict=True)
    corpus.targets = [stripped(pair, file)[2] for pair in pairs]
    task.numbers(corpus, file)
    return corpus


@evaluate.register(TextClassification)
def _evaluate_labels(
    task: TextClassification, engine: ModelEngine, examples: Corpus, request: SearchRequest
) -> Evaluation:
    ids, noted = task.cut(examples)
    log_p = task.predict(engine.model, ids, request.batch_tokens)
    target = numbers_of(examples.targets, task.label_names, lambda i: f"line {examples.lines[i]}")
    return evaluation_of_labels(log_p, target, task.label_names, noted)


@baseline.register(TextClassification)
def _baseline_labels(task: TextClassification, examples: Corpus) -> Baseline:
    train, names = task.corpus("train"), task.label_names
    some = train.take(np.array(spread(len(train), MOST)))
    wanted, target = (numbers_of(c.targets, names, str) for c in (examples, some))
    log_p = logistic_regression(some.sources, target, len(names), examples.sources)
    about = f"logistic regression on TF-IDF of {len(some):,} texts"
    return Baseline(about, figures_of_labels(log_p, wanted))


@evaluate.register(ImageClassification)
def _evaluate_pictures(
    task: ImageClassification, engine: ModelEngine, examples: str, request: SearchRequest
) -> Evaluation:
    """Judge one split of the data; `examples` has read it, which names what is missing."""
    log_p, target = task.judged(engine.model, examples, min(ROWS, request.batch_tokens))
    return evaluation_of_labels(log_p, target, task.label_names)


@evaluate.register(Captioning)
def _evaluate_captions(
    task: Captioning, engine: ModelEngine, examples: str, request: SearchRequest
) -> Evaluation:
    """BLEU-4 of a split against all its captions, and that of the nearest picture's caption."""
    album = task.album(examples)
    outputs = task.described(engine, examples, request)
    own, signature = task.bleu(outputs, album)
    nearest, _ = task.bleu(nearest_captions(task.album("train"), album), album)
    figures = {"bleu": own, "bleu_of_nearest_picture": nearest}
    return Evaluation(figures, dict.fromkeys(figures, signature), outputs)


@read_examples.register(Forecasting)
def _read_series(task: Forecasting, source: Path, reference: Path | None = None) -> Windows:
    """All windows of a file of the user's with the same columns."""
    table = task.read_file(source)
    windows = task.cut(table, (0, len(table)))
    if not len(windows):
        need = task.config.look_back + task.config.horizon
        without = f" without a gap ({table.gap(int(table.gaps[0]))})" if len(table.gaps) else ""
        raise DataError(f"{source} has {len(table)} rows; a window needs {need}{without}")
    return windows


@evaluate.register(Forecasting)
def _evaluate_series(
    task: Forecasting, engine: ModelEngine, examples: Windows, request: SearchRequest
) -> Evaluation:
    model = engine.model
    predicted = task.predict(model, examples)
    figures = forecasting.figures_of(
        predicted, examples, task.scaling, task.naive, task.config.quantiles
    )
    forecasts = {"forecast": forecasting.middle(predicted)}
    if model.feeds_back:
        forecasts["teacher_forced"] = forecasting.middle(task.predict(model, examples, True))
    forecasts |= forecasting.naive_forecasts(examples, task.config.season)
    targets = examples.targets()
    for name, forecast in list(forecasts.items())[1:]:
        figures[f"{name}_mse"] = forecasting.mse(forecast, targets)
        figures[f"{name}_mae"] = forecasting.mae(forecast, targets)
    errors = forecasting.by_window(forecasts["forecast"], examples)
    dates = labels(examples.first_dates(), examples.table.dates)
    return Evaluation(
        figures,
        {name: text for name, text in forecasting.SIGNATURES.items() if name in figures},
        [f"{date}\tmse {error:.6g}" for date, error in zip(dates, errors, strict=True)],
        curves={
            name: np.square(forecast - targets, dtype=np.float64).mean(axis=(0, 2)).tolist()
            for name, forecast in forecasts.items()
        },
    )


@baseline.register(Forecasting)
def _baseline_series(task: Forecasting, examples: Windows) -> Baseline:
    predicted = ridge_regression(task.windows("train"), examples)[..., None]
    figures = forecasting.figures_of(predicted, examples, task.scaling, task.naive, ())
    return Baseline("ridge regression, one linear map for all columns", figures)


examples.register(TextTask, lambda task, split: task.corpus(split))
examples.register(Language, lambda task, split: task.stream_of(split))
examples.register(Forecasting, lambda task, split: task.windows_of(split))


@examples.register(PictureTask)
def _examples_pictures(task: PictureTask[Batch], split: str) -> str:
    task.texts(split) if isinstance(task, ImageClassification) else task.album(split)
    return split


def evaluation_of_labels(
    log_p: LogP, target: Sequence[int], names: Names, noted: dict[str, list[int]] | None = None
) -> Evaluation:
    """All figures, the label given to each example, and how often each was taken for each."""
    counts = counts_of(log_p, target).tolist()
    return Evaluation(
        figures_of_labels(log_p, target),
        {"f1_macro": "mean of 2 tp / (2 tp + fp + fn) over the labels"},
        [names[i] for i in log_p.argmax(axis=1)],
        noted or {},
        {"confusion": Table("true label by label given", list(names), list(names), counts)},
    )


def swapped(examples: Corpus, outputs: Sequence[str]) -> str:
    """Return a note if the sides look swapped: sources in the outputs' language, references not."""
    read, other = language_of(examples.sources), language_of(examples.targets)
    if None in (read, other) or read == other or read != language_of(outputs):
        return ""
    return f"read as {read}, as the outputs do, not as {other}; the sides look swapped"


def beside_baseline(task: AnyTask, examples: object, evaluation: Evaluation) -> Evaluation:
    """Return the evaluation with the figures of the task's baseline, and where that is better."""
    try:
        fitted = baseline(task, examples)
    except DataError as error:
        fitted = Baseline(f"none, since the training data cannot be read: {error}")
    if fitted is not None:
        both = [(n, evaluation.figures.get(n), v) for n, v in fitted.figures.items()]
        better = [n for n, own, v in both if own is not None and task.better(n) * (v - own) > 0]
        fitted = replace(fitted, better=better)
    return replace(evaluation, baseline=fitted)


def against_other(
    task: AnyTextToText, examples: Corpus, run: Path, theirs: Sequence[str], own: Sequence[str]
) -> Against:
    """Return the figures of another ``run`` on the same lines, with p of the difference of each."""
    systems = {"other": theirs, "own": own}
    names, cut = task.config.metrics, task.config.bleu_tokenizer
    paired = metrics.paired_figures(systems, examples.references, names, cut)
    return Against(
        str(run),
        {name: figures["other"].value for name, figures in paired.items()},
        {name: figures["own"].bootstrap or 0.0 for name, figures in paired.items()},
    )
