"""Examples of a run's own data: those that a page suggests, and the scores of a split.

Corpus figures are those of ``foveate evaluate``; the field ``scored`` names the score of a single
example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foveate.data.series import labels as date_labels
from foveate.errors import is_for_the_user, message_of
from foveate.run import Run
from foveate.server.answers import Send, enlarged_uri
from foveate.server.common import RequestError
from foveate.server.studio_schemas import (
    Evaluated,
    EvaluatedExample,
    Example,
    ExampleList,
    Progress,
)
from foveate.tasks.forecasting import by_window, middle
from foveate.tasks.metrics import figures_of
from foveate.train.journal import last_samples

EVERY = 16  # examples between two events of progress
THUMBNAIL = 56  # least pixels of a small picture
PROMPT = 300  # characters of a prompt


# ------------------------------------------------------------------------------ examples


def examples(run: Run, most: int) -> ExampleList:
    """Examples from all over the test data; without it, those of the last validation."""
    try:
        kinds = {"shown": _pictures, "forecast": _dates, "corpus": _texts, "ids_of": _prompts}
        of_task = next(kind for method, kind in kinds.items() if hasattr(run.task, method))
        return ExampleList(examples=of_task(run.task, most))
    except Exception as error:
        if not is_for_the_user(error):
            raise
        samples = [
            Example(text=sample["source"], wanted=sample["reference"])
            for sample in last_samples(run.path)
        ]
        note = f"the run's own data are not here: {message_of(error)}"
        return ExampleList(examples=samples if hasattr(run.task, "answer") else [], note=note)


def spread(count: int, most: int) -> Sequence[int]:
    """At most so many numbers from 0 to ``count``, evenly."""
    return range(0, count, max(1, count // max(1, most)))[:most]


def _texts(task: Any, most: int) -> list[Example]:
    corpus = task.corpus("test")
    places = spread(len(corpus), most)
    return [Example(text=corpus.sources[i], wanted=corpus.targets[i]) for i in places]


def _prompts(task: Any, most: int) -> list[Example]:
    stream = task.examples("valid")
    lines = [line for line in stream.text.lines if line.strip()]
    examples = []
    for i in spread(len(lines), most):
        words = lines[i][:PROMPT].split(" ")
        half = max(1, len(words) // 2)
        examples.append(Example(text=" ".join(words[:half]), wanted=" ".join(words[half:])))
    return examples


def _pictures(task: Any, most: int) -> list[Example]:
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


def _dates(task: Any, most: int) -> list[Example]:
    windows = task.some("test")
    first = windows.asked()[list(spread(len(windows), most))]
    return [Example(date=date) for date in date_labels(first, windows.table.dates)]


# ------------------------------------------------------------------------------ scores


class Evaluator:
    """How examples of a kind of task are scored."""

    scored, better = "", 1

    def __init__(self, run: Run, split: str, send: Send) -> None:
        self.run, self.split, self.send = run, split, send

    def total(self) -> int:
        """How many examples the split has."""
        raise NotImplementedError

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        """Some of them with their scores."""
        raise NotImplementedError

    def figures(self, rows: Sequence[EvaluatedExample]) -> tuple[dict[str, float], dict[str, str]]:
        """The figures of all, and their signatures."""
        scores = [row.score for row in rows if row.score is not None]
        return {self.scored: float(np.mean(scores)) if scores else np.nan}, {}

    def batches(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Some places at a time, after an event of progress."""
        for first in range(0, len(places), EVERY):
            self.send(Progress(done=first, total=len(places)))
            yield places[first : first + EVERY]


class TextEvaluator(Evaluator):
    """A text for a text, by chrF."""

    scored = "chrf"

    def total(self) -> int:
        return len(self.run.task.corpus(self.split))

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        corpus, rows = self.run.task.corpus(self.split), []
        for batch in self.batches(places):
            lines = [corpus.sources[i] for i in batch]
            for i, answer in zip(batch, self.run.translate(lines), strict=True):
                rows.append(self._row(i, corpus.sources[i], [corpus.targets[i]], str(answer)))
        return rows

    def _row(self, i: int, source: str, references: Sequence[str], output: str) -> EvaluatedExample:
        scores = [_chrf(output, reference) for reference in references]
        best = max(range(len(scores)), key=scores.__getitem__)
        words = len(source.split())
        return EvaluatedExample(
            i=i,
            source=source,
            reference=references[best],
            output=output,
            score=scores[best],
            length=words,
        )

    def figures(self, rows: Sequence[EvaluatedExample]) -> tuple[dict[str, float], dict[str, str]]:
        outputs = [row.output for row in rows]
        references = [row.reference for row in rows]
        fields = self.run.config.task.tree()
        metrics = fields.get("metrics", ("bleu", "chrf"))
        return figures_of(outputs, references, metrics, fields.get("bleu_tokenizer"))


class CaptionEvaluator(TextEvaluator):
    """A caption for a picture, by chrF with the nearest of its references."""

    def total(self) -> int:
        return _picture_count(self.run, self.split)

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        album, task, rows = self.run.task.album(self.split), self.run.task, []
        search = self.run.search(None, None)
        for batch in self.batches(places):
            for i, answer in zip(
                batch, task.caption(self.run.model, list(batch), search), strict=True
            ):
                row = self._row(i, album.names[i], album.texts[i], answer.caption)
                words = len(answer.caption.split())
                rows.append(row.model_copy(update={"picture": str(i), "length": words}))
        return rows

    def figures(self, rows: Sequence[EvaluatedExample]) -> tuple[dict[str, float], dict[str, str]]:
        return Evaluator.figures(self, rows)


class LabelEvaluator(Evaluator):
    """A label for a text, by the probability of the right one."""

    scored = "p of the right label"

    def total(self) -> int:
        return len(self.run.task.corpus(self.split))

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        corpus, rows = self.run.task.corpus(self.split), []
        for batch in self.batches(places):
            texts = [corpus.sources[i] for i in batch]
            for i, answer in zip(batch, self.run.classify(texts), strict=True):
                rows.append(self._row(i, corpus.sources[i], corpus.targets[i], answer))
        return rows

    def _row(self, i: int, source: str, right: str, answer: Any) -> EvaluatedExample:
        score = answer.probabilities.get(right)
        return EvaluatedExample(
            i=i,
            source=source,
            reference=right,
            output=answer.label,
            score=score,
            length=len(source.split()),
        )

    def figures(self, rows: Sequence[EvaluatedExample]) -> tuple[dict[str, float], dict[str, str]]:
        right = [row.output == row.reference for row in rows]
        accuracy = 100 * float(np.mean(right)) if right else np.nan
        return {"accuracy": accuracy} | super().figures(rows)[0], {}


class PictureLabelEvaluator(LabelEvaluator):
    """A label for a picture."""

    def total(self) -> int:
        return _picture_count(self.run, self.split)

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        album, rows = self.run.task.album(self.split), []
        for batch in self.batches(places):
            for i, answer in zip(batch, self.run.classify_images(list(batch)), strict=True):
                row = self._row(i, album.names[i], album.texts[i][0], answer)
                rows.append(row.model_copy(update={"picture": str(i), "length": 1}))
        return rows


class ForecastEvaluator(Evaluator):
    """A forecast, by its mean squared error on scaled values."""

    scored, better = "mse", -1

    def total(self) -> int:
        return len(self.run.task.some(self.split))

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        windows = self.run.task.some(self.split)
        dates = date_labels(windows.asked(), windows.table.dates)
        rows = []
        for batch in self.batches(places):
            part = replace(windows, starts=windows.starts[list(batch)])
            forecast = middle(self.run.task.predict(self.run.model, part))
            for i, error in zip(batch, by_window(forecast, part).tolist(), strict=True):
                row = EvaluatedExample(
                    i=i, source=dates[i], reference="", output="", score=error,
                    length=windows.horizon, date=dates[i],
                )  # fmt: skip
                rows.append(row)
        return rows


class LanguageEvaluator(Evaluator):
    """A line of plain text, by its mean log p of a token after all before it."""

    scored = "log p of a token"

    def total(self) -> int:
        return len(self.run.task.examples(self.split).text.lines)

    def rows(self, places: Sequence[int]) -> list[EvaluatedExample]:
        lines, rows = self.run.task.examples(self.split).text.lines, []
        for batch in self.batches(places):
            for i in batch:
                stream = self.run.task.given(lines[i] + "\n")
                log_p = self.run.task.log_probabilities(self.run.model, stream.ids)
                words = len(lines[i].split())
                rows.append(
                    EvaluatedExample(
                        i=i,
                        source=lines[i],
                        reference="",
                        output="",
                        length=words,
                        score=float(log_p.mean()),
                    )
                )
        return rows


EVALUATORS: dict[str, type[Evaluator]] = {
    "answer": TextEvaluator,
    "caption": CaptionEvaluator,
    "classify": LabelEvaluator,
    "forecast": ForecastEvaluator,
    "log_probabilities": LanguageEvaluator,
}


def evaluate(run: Run, name: str, split: str, most: int, send: Send) -> Evaluated:
    """At most so many examples from all over a split, with their scores.

    Raises `RequestError` for a task whose examples cannot be scored one by one.
    """
    kind = next((kind for method, kind in EVALUATORS.items() if hasattr(run.task, method)), None)
    if kind is LabelEvaluator and run.task.reads == "picture":
        kind = PictureLabelEvaluator
    if kind is None:
        message, hint = f"a run of the task {run.config.task.kind}", f"foveate evaluate {name}"
        raise RequestError(422, message, code="no_evaluation", hint=hint)
    evaluator = kind(run, split, send)
    total = evaluator.total()
    rows = evaluator.rows(spread(total, most))
    figures, signatures = evaluator.figures(rows)
    return Evaluated(
        run=name,
        split=split,
        count=len(rows),
        total=total,
        figures={key: float(value) for key, value in figures.items()},
        signatures=signatures,
        scored=evaluator.scored,
        better=1 if evaluator.better > 0 else -1,
        rows=rows,
    )


def _picture_count(run: Run, split: str) -> int:
    if split != "test":
        message = "pictures are asked for by their numbers in the test data"
        raise RequestError(422, message, code="no_split")
    return len(run.task.album(split))


def _chrf(output: str, reference: str) -> float:
    return figures_of([output], [reference], ("chrf",))[0]["chrf"]
