"""Scores on a split of the run's own data: figures, and a row for each example.

Lives here: what is judged of which kind of task. Corpus figures are those of ``foveate evaluate``;
what an example scores on its own is said in ``scored``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from foveate.data.series import labels as date_labels
from foveate.run import Run
from foveate.studio.errors import Refused
from foveate.studio.examples import spread
from foveate.studio.told import Told
from foveate.tasks.forecasting import by_window, middle
from foveate.tasks.metrics import figures_of

TOGETHER = 16  # examples between two words about how far it is
Say = Callable[[Any], None]


class Progress(Told):
    """How many examples are done."""

    event: Literal["progress"] = "progress"
    done: int
    total: int


class Row(Told):
    """An example: what went in, what was right, what came out, and its score.

    ``i`` is its number in the split; ``picture`` and ``date`` are what to ask to inspect it.
    """

    i: int
    source: str
    reference: str
    output: str
    score: float | None
    length: int
    picture: str | None = None
    date: str | None = None


class Evaluated(Told):
    """The figures of some examples of a split, and all of these.

    ``scored`` names the score of a row; it is better large where ``better`` is 1, small where −1.
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
    rows: list[Row]


class Judge:
    """How examples of a kind of task are judged."""

    scored, better = "", 1

    def __init__(self, run: Run, split: str, say: Say) -> None:
        self.run, self.split, self.say = run, split, say

    def total(self) -> int:
        """How many examples the split has."""
        raise NotImplementedError

    def rows(self, places: Sequence[int]) -> list[Row]:
        """Some of them, judged."""
        raise NotImplementedError

    def figures(self, rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, str]]:
        """The figures of all, and how they are counted."""
        known = [row.score for row in rows if row.score is not None]
        return {self.scored: float(np.mean(known)) if known else np.nan}, {}

    def told(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Some places at a time, and a word about how far it is."""
        for first in range(0, len(places), TOGETHER):
            self.say(Progress(done=first, total=len(places)))
            yield places[first : first + TOGETHER]


class Texts(Judge):
    """A text for a text, by chrF."""

    scored = "chrf"

    def total(self) -> int:
        return len(self.run.task.corpus(self.split))

    def rows(self, places: Sequence[int]) -> list[Row]:
        corpus, found = self.run.task.corpus(self.split), []
        for some in self.told(places):
            lines = [corpus.sources[i] for i in some]
            for i, answer in zip(some, self.run.translate(lines), strict=True):
                found.append(self._row(i, corpus.sources[i], [corpus.targets[i]], str(answer)))
        return found

    def _row(self, i: int, source: str, references: Sequence[str], output: str) -> Row:
        scores = [_chrf(output, reference) for reference in references]
        best = max(range(len(scores)), key=scores.__getitem__)
        words = len(source.split())
        return Row(
            i=i,
            source=source,
            reference=references[best],
            output=output,
            score=scores[best],
            length=words,
        )

    def figures(self, rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, str]]:
        outputs, wanted = [row.output for row in rows], [row.reference for row in rows]
        own = self.run.config.task.tree()
        metrics = own.get("metrics", ("bleu", "chrf"))
        return figures_of(outputs, wanted, metrics, own.get("bleu_tokenizer"))


class Captions(Texts):
    """A caption for a picture, by chrF with the nearest of its references."""

    def total(self) -> int:
        return _pictures(self.run, self.split)

    def rows(self, places: Sequence[int]) -> list[Row]:
        album, task, found = self.run.task.album(self.split), self.run.task, []
        search = self.run.search(None, None)
        for some in self.told(places):
            for i, answer in zip(
                some, task.caption(self.run.model, list(some), search), strict=True
            ):
                row = self._row(i, album.names[i], album.texts[i], answer.caption)
                words = len(answer.caption.split())
                found.append(row.model_copy(update={"picture": str(i), "length": words}))
        return found

    def figures(self, rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, str]]:
        return Judge.figures(self, rows)


class Labels(Judge):
    """A label for a text, by the p of the right one."""

    scored = "p of the right label"

    def total(self) -> int:
        return len(self.run.task.corpus(self.split))

    def rows(self, places: Sequence[int]) -> list[Row]:
        corpus, found = self.run.task.corpus(self.split), []
        for some in self.told(places):
            texts = [corpus.sources[i] for i in some]
            for i, answer in zip(some, self.run.classify(texts), strict=True):
                found.append(self._row(i, corpus.sources[i], corpus.targets[i], answer))
        return found

    def _row(self, i: int, source: str, right: str, answer: Any) -> Row:
        score = answer.probabilities.get(right)
        return Row(
            i=i,
            source=source,
            reference=right,
            output=answer.label,
            score=score,
            length=len(source.split()),
        )

    def figures(self, rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, str]]:
        right = [row.output == row.reference for row in rows]
        accuracy = 100 * float(np.mean(right)) if right else np.nan
        return {"accuracy": accuracy} | super().figures(rows)[0], {}


class PictureLabels(Labels):
    """A label for a picture."""

    def total(self) -> int:
        return _pictures(self.run, self.split)

    def rows(self, places: Sequence[int]) -> list[Row]:
        album, found = self.run.task.album(self.split), []
        for some in self.told(places):
            for i, answer in zip(some, self.run.classify_images(list(some)), strict=True):
                row = self._row(i, album.names[i], album.texts[i][0], answer)
                found.append(row.model_copy(update={"picture": str(i), "length": 1}))
        return found


class Windows(Judge):
    """A forecast, by its mean squared error on scaled values."""

    scored, better = "mse", -1

    def total(self) -> int:
        return len(self.run.task.some(self.split))

    def rows(self, places: Sequence[int]) -> list[Row]:
        windows = self.run.task.some(self.split)
        dates = date_labels(windows.asked(), windows.table.dates)
        found = []
        for some in self.told(places):
            part = replace(windows, starts=windows.starts[list(some)])
            forecast = middle(self.run.task.predict(self.run.model, part))
            for i, error in zip(some, by_window(forecast, part).tolist(), strict=True):
                row = Row(
                    i=i, source=dates[i], reference="", output="", score=error,
                    length=windows.horizon, date=dates[i],
                )  # fmt: skip
                found.append(row)
        return found


class Lines(Judge):
    """A line of plain text, by its mean log p of a token after all before it."""

    scored = "log p of a token"

    def total(self) -> int:
        return len(self.run.task.examples(self.split).text.lines)

    def rows(self, places: Sequence[int]) -> list[Row]:
        lines, found = self.run.task.examples(self.split).text.lines, []
        for some in self.told(places):
            for i in some:
                stream = self.run.task.given(lines[i] + "\n")
                log_p = self.run.task.log_probabilities(self.run.model, stream.ids)
                words = len(lines[i].split())
                found.append(
                    Row(
                        i=i,
                        source=lines[i],
                        reference="",
                        output="",
                        length=words,
                        score=float(log_p.mean()),
                    )
                )
        return found


JUDGES: dict[str, type[Judge]] = {
    "answer": Texts,
    "caption": Captions,
    "classify": Labels,
    "classify_images": PictureLabels,
    "forecast": Windows,
    "log_probabilities": Lines,
}


def evaluated(run: Run, name: str, split: str, most: int, say: Say) -> Evaluated:
    """At most so many examples from all over a split, judged.

    Raises `Refused` for a task whose examples cannot be judged one by one.
    """
    kind = next((kind for method, kind in JUDGES.items() if hasattr(run.task, method)), None)
    if kind is None:
        hint = f"foveate evaluate {name}"
        raise Refused(422, "no_evaluation", f"a run of the task {run.config.task.kind}", hint)
    judge = kind(run, split, say)
    total = judge.total()
    rows = judge.rows(spread(total, most))
    figures, signatures = judge.figures(rows)
    return Evaluated(
        run=name,
        split=split,
        count=len(rows),
        total=total,
        figures={key: float(value) for key, value in figures.items()},
        signatures=signatures,
        scored=judge.scored,
        better=1 if judge.better > 0 else -1,
        rows=rows,
    )


def _pictures(run: Run, split: str) -> int:
    if split != "test":
        raise Refused(422, "no_split", "pictures are asked for by their numbers in the test data")
    return len(run.task.album(split))


def _chrf(output: str, reference: str) -> float:
    return figures_of([output], [reference], ("chrf",))[0]["chrf"]
