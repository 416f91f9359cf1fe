"""Examples from a run's own data: those that a page suggests, and the scores of a split.

Corpus figures are those of ``foveate evaluate``; the field ``scored`` is the name of the score of
a single example.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field

from foveate.data.catalogue import MissingData
from foveate.data.series import labels as date_labels
from foveate.engine.answers import Answer, LabelAnswer
from foveate.errors import FOR_THE_USER, message_of
from foveate.run import Run
from foveate.run.evaluation import as_examples
from foveate.serve.common import RequestError
from foveate.studio.answers import Send, enlarged_uri
from foveate.studio.schemas import Progress, StudioResponse
from foveate.tasks.abilities import Classifies
from foveate.tasks.base import AnyTask, spread
from foveate.tasks.forecasting import Forecasting, by_window, middle
from foveate.tasks.image_classification import PictureTask
from foveate.tasks.language import Language
from foveate.tasks.metrics import figures_of
from foveate.tasks.text import TextTask, TextToText
from foveate.train.checkpoint import is_imported
from foveate.train.journal import last_samples

EVERY = 16  # examples between two progress events
THUMBNAIL = 56  # minimum size of a thumbnail in pixels
PROMPT = 300  # characters in a prompt
OPENED = "this model was not trained here: its folder holds no data"


class Example(StudioResponse):
    """An example: a text, the number of a picture, or a date; ``wanted`` is the right answer."""

    text: str = ""
    picture: str | None = None
    thumbnail: str = ""
    date: str | None = None
    wanted: str = ""


class ExampleList(StudioResponse):
    """Examples of the run's own data; none, and a note why, where the data cannot be read."""

    examples: list[Example]
    note: str = ""


def examples(run: Run, most: int) -> ExampleList:
    """Return examples spread over the test data, or else those of the last validation."""
    try:
        return ExampleList(examples=_examples(run.task, most))
    except FOR_THE_USER as error:
        samples = [
            Example(text=sample["source"], wanted=sample["reference"])
            for sample in last_samples(run.path)
        ]
        note = f"test data not found; start the studio where you trained: {message_of(error)}"
        note = OPENED if is_imported(run.path) else note
        return ExampleList(examples=samples if isinstance(run.task, TextToText) else [], note=note)


def _examples(task: AnyTask, most: int) -> list[Example]:
    if isinstance(task, PictureTask):
        album = task.album("test")
        return [
            Example(
                text=album.names[i],
                picture=str(i),
                thumbnail=enlarged_uri(task.seen("test", i), THUMBNAIL),
                wanted=album.texts[i][0] if album.texts[i] else "",
            )
            for i in spread(len(album), most)
        ]
    if isinstance(task, Forecasting):
        windows = task.windows_of("test")
        first = windows.first_dates()[list(spread(len(windows), most))]
        return [Example(date=date) for date in date_labels(first, windows.table.dates)]
    if isinstance(task, TextTask):
        corpus = task.corpus("test")
        places = spread(len(corpus), most)
        return [Example(text=corpus.sources[i], wanted=corpus.targets[i]) for i in places]
    halves = list[Example]()  # the first halves of lines, and their continuations
    if isinstance(task, Language):
        lines = [line for line in task.stream_of("valid").text.lines if line.strip()]
        for i in spread(len(lines), most):
            words = lines[i][:PROMPT].split(" ")
            half = max(1, len(words) // 2)
            halves.append(Example(text=" ".join(words[:half]), wanted=" ".join(words[half:])))
    return halves


class EvaluatedExample(StudioResponse):
    """An example: its source, its reference, the output, and its score.

    ``i`` is its number in the split; ``picture`` or ``date`` are sent in a request to inspect it.
    """

    i: int
    source: str
    reference: str = ""
    output: str = ""
    score: float | None
    length: int
    picture: str | None = None
    date: str | None = None


class Evaluated(StudioResponse):
    """The figures of some examples of a split, and these examples.

    ``scored`` names the score of a row; large ones are good where ``better`` is 1, small ones
    where it is −1.
    """

    event: Literal["evaluation"] = "evaluation"
    run: str
    split: str
    count: int
    total: int
    figures: dict[str, float | None]
    signatures: dict[str, str] = Field(default_factory=dict)
    scored: str
    better: Literal[1, -1]
    rows: list[EvaluatedExample]


Rows = list[EvaluatedExample]


@dataclass(frozen=True)
class Scoring:
    """A way of scoring the examples of a split: ``rows`` scores those at given positions.

    ``scored`` is the name of the score, and ``better`` is +1 if a larger one is better; ``figures``
    returns those of all rows, with their signatures: the mean score by default.
    """

    scored: str
    total: int
    rows: Callable[[Sequence[int]], Rows]
    figures: Callable[[Rows], tuple[dict[str, float], dict[str, str]]] | None = None
    better: Literal[1, -1] = 1


def scoring(run: Run, split: str) -> Scoring | None:
    """Return how a run's examples are scored one by one; None if they cannot be.

    Raises `RequestError` for pictures of a split other than "test".
    """
    task = run.task
    if isinstance(task, Forecasting):
        return forecast_scoring(run, task, split)
    if isinstance(task, Language):
        return language_scoring(run, task, split)
    if isinstance(task, PictureTask):
        if split != "test":
            raise RequestError(422, "a picture is named by its number in the test data")
        album = task.album(split)
        return answer_scoring(run, album.names, album.texts, pictures=True)
    if isinstance(task, TextTask) and task.gives != "words":
        corpus = task.corpus(split)
        return answer_scoring(run, corpus.sources, corpus.targets, pictures=False)
    return None


def answer_scoring(
    run: Run, names: Sequence[str], references: Sequence[str] | Sequence[list[str]], pictures: bool
) -> Scoring:
    """Score a label by the probability of the right one, a text or caption by chrF.

    Texts or pictures have one reference each, or several, of which the best one counts.
    """
    labels = isinstance(run.task, Classifies)
    scored = "p of the right label" if labels else "chrf"

    def row(i: int, answer: Answer) -> EvaluatedExample:
        output, own = str(answer), references[i]
        texts = [own] if isinstance(own, str) else own
        if isinstance(answer, LabelAnswer):
            scores = {text: answer.probabilities.get(text) for text in texts}
        else:
            scores = {text: figures_of([output], [text], ("chrf",))[0]["chrf"] for text in texts}
        best = max(scores, key=lambda text: scores[text] or 0.0)
        return EvaluatedExample(
            i=i,
            source=names[i],
            reference=best,
            output=output,
            score=scores[best],
            length=1 if labels and pictures else len((output if pictures else names[i]).split()),
            picture=str(i) if pictures else None,
        )

    def rows(places: Sequence[int]) -> Rows:
        inputs = list(places) if pictures else [names[i] for i in places]
        return list(map(row, places, run.answer(inputs)))

    def figures(rows: Rows) -> tuple[dict[str, float], dict[str, str]]:
        if labels:
            right = [row.output == row.reference for row in rows]
            accuracy = 100 * float(np.mean(right)) if right else np.nan
            return {"accuracy": accuracy, scored: mean_score(rows)}, {}
        outputs, right_ones = [row.output for row in rows], [row.reference for row in rows]
        fields = run.config.task.tree()
        metrics = fields.get("metrics", ("bleu", "chrf"))
        return figures_of(outputs, right_ones, metrics, fields.get("bleu_tokenizer"))

    return Scoring(scored, len(names), rows, figures if labels or not pictures else None)


def forecast_scoring(run: Run, task: Forecasting, split: str) -> Scoring:
    """Score a forecast by its mean squared error on scaled values."""
    windows = task.windows_of(split)
    dates = date_labels(windows.first_dates(), windows.table.dates)

    def rows(places: Sequence[int]) -> Rows:
        part = replace(windows, starts=windows.starts[list(places)])
        errors = by_window(middle(task.predict(run.model, part)), part).tolist()
        size = windows.horizon
        return [
            EvaluatedExample(i=i, source=dates[i], score=error, length=size, date=dates[i])
            for i, error in zip(places, errors, strict=True)
        ]

    return Scoring("mse", len(windows), rows, better=-1)


def language_scoring(run: Run, task: Language, split: str) -> Scoring:
    """Score a line of plain text by its mean log p of a token given all earlier ones."""
    lines = task.stream_of(split).text.lines

    def row(i: int) -> EvaluatedExample:
        log_p = task.log_probabilities(run.model, as_examples(task, lines[i] + "\n").ids)
        words, mean = len(lines[i].split()), float(log_p.mean())
        return EvaluatedExample(i=i, source=lines[i], length=words, score=mean)

    return Scoring("log p of a token", len(lines), lambda places: list(map(row, places)))


def mean_score(rows: Rows) -> float:
    """Return the mean of the scores, NaN without any."""
    scores = [row.score for row in rows if row.score is not None]
    return float(np.mean(scores)) if scores else np.nan


def evaluate(run: Run, name: str, split: str, most: int, send: Send) -> Evaluated:
    """Evaluate at most ``most`` examples spread over a split.

    Raises `RequestError` for a task whose examples cannot be scored one by one.
    """
    try:
        by = scoring(run, split)
    except MissingData as error:
        why = f"no {split} data ({error.reason.rstrip(' .:;')})"
        raise RequestError(422, f"{why}: foveate evaluate {run.folder} --data FILE") from None
    if by is None:
        message = f"this run has the task {run.config.task.kind}: use foveate evaluate {name}"
        raise RequestError(422, message)
    places, rows = spread(by.total, most), list[EvaluatedExample]()
    for first in range(0, len(places), EVERY):
        send(Progress(done=first, total=len(places)))
        rows += by.rows(places[first : first + EVERY])
    mean = {by.scored: mean_score(rows)}
    figures, signatures = by.figures(rows) if by.figures else (mean, dict[str, str]())
    return Evaluated(
        run=name,
        split=split,
        count=len(rows),
        total=by.total,
        figures=dict(figures),
        signatures=signatures,
        scored=by.scored,
        better=by.better,
        rows=rows,
    )
