"""A run answers: events as it works, and what came of it. What is fitting is up to its task.

Lives here: the answers of tasks that label, fill in and forecast, and who answers for which task.
Texts that are written token by token have a file of their own (`foveate.studio.writing`).
"""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.series import labels as date_labels
from foveate.look.drawing import (
    AnyDrawing,
    Curve,
    LinesDrawing,
    Mark,
    PictureDrawing,
    Word,
    WordsDrawing,
    listed,
)
from foveate.run import Run
from foveate.studio.asking import Ask
from foveate.studio.pictures import data_uri, opened
from foveate.studio.told import DrawnDone, LabelDone, Probability, SourceToken, Start, TextDone
from foveate.tasks.forecasting import Forecast

Say = Callable[[Any], None]
AnyDone = TextDone | LabelDone | DrawnDone
Reads = Literal["text", "picture", "series"]
Gives = Literal["text", "label", "forecast", "words"]


class Answerer(ABC):
    """What a kind of task does when it is asked: ``method`` is what its tasks have."""

    method: ClassVar[str]
    reads: ClassVar[Reads] = "text"
    gives: ClassVar[Gives]
    can: ClassVar[tuple[str, ...]] = ()

    def start(self, run: Run, name: str, ask: Ask) -> Start:
        """What is read."""
        return Start(run=name)

    @abstractmethod
    def answer(self, run: Run, ask: Ask, say: Say) -> AnyDone:
        """Work, saying events on the way."""


class TextLabeller(Answerer):
    """A label for a text."""

    method, gives, can = "classify", "label", ("classify",)

    def start(self, run: Run, name: str, ask: Ask) -> Start:
        return Start(run=name, source=source_tokens(run.task.tokenizer, ask.text))

    def answer(self, run: Run, ask: Ask, say: Say) -> LabelDone:
        [found] = run.classify([ask.text])
        return LabelDone(labels=_probabilities(found.probabilities), cut=found.cut)


class PictureLabeller(Answerer):
    """A label for a picture."""

    method, reads, gives, can = "classify_images", "picture", "label", ("classify",)

    def answer(self, run: Run, ask: Ask, say: Say) -> LabelDone:
        with opened(ask.picture) as picture:
            [found] = run.classify_images([picture])
            pixels, name = run.task.shown(picture)
        labels = _probabilities(found.probabilities)
        return LabelDone(labels=labels, drawings=[shown(pixels, f"{name} → {found.label}")])


class Filler(Answerer):
    """Some tokens of a text are hidden, as in a validation, and guessed."""

    method, gives, can = "guess", "words", ("fill",)

    def answer(self, run: Run, ask: Ask, say: Say) -> DrawnDone:
        encoded, task = run.task.tokenizer.encode(ask.text), run.task
        found = task.guess(run.model, [encoded.ids])
        guesses = dict(zip(found.places[0].tolist(), found.guessed[0], strict=True))
        words = []
        for place, (token, (start, end)) in enumerate(
            zip(encoded.ids, encoded.offsets, strict=True)
        ):
            guess = guesses.get(place)
            told = task.tokenizer.decode([token if guess is None else guess])
            before = ask.text[start:end]
            words.append(
                Word(
                    text=told.strip() or before.strip(),
                    value=None if guess is None else float(guess == token),
                    space=before.startswith(" ") or ask.text[max(0, start - 1) : start] == " ",
                    note="" if guess is None else f"hidden; there stood {before.strip()!r}",
                )
            )
        title = f"{found.right} of {found.count} hidden tokens guessed right"
        return DrawnDone(drawings=[WordsDrawing(title=title, words=words, told="right or wrong")])


class Foreteller(Answerer):
    """The next rows of a series: after its end, after a table of the user's, or at a date."""

    method, reads, gives, can = "forecast", "series", "forecast", ("forecast",)

    def answer(self, run: Run, ask: Ask, say: Say) -> DrawnDone:
        if ask.csv is not None:
            table, ahead = self.brought(run, ask.csv)
            return DrawnDone(drawings=self.drawn(run, table, ahead, ask.channel))
        table = run.task.table()
        ahead = run.forecast() if ask.date is None else run.task.forecast_at(run.model, ask.date)
        return DrawnDone(drawings=self.drawn(run, table, ahead, ask.channel))

    def brought(self, run: Run, csv: str) -> tuple[Any, Forecast]:
        """A table of the user's and what comes after it. Raises `ConfigError` naming a line."""
        with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
            path = Path(folder) / "series.csv"
            path.write_text(csv, encoding="utf-8")
            try:
                return run.task.read_file(path), run.forecast(path)
            except (ConfigError, DataError) as error:
                raise ConfigError(str(error).replace(str(path), "the table")) from None

    def drawn(self, run: Run, table: Any, ahead: Forecast, channel: str | None) -> list[AnyDrawing]:
        """Each channel, or one: what was read, what is said of the future, and what came."""
        if channel is not None and channel not in ahead.names:
            raise ConfigError(f"no channel {channel!r}; there are: {', '.join(ahead.names)}")
        chosen = range(len(ahead.names)) if channel is None else [ahead.names.index(channel)]
        return [self._lines(run, table, ahead, number) for number in chosen]

    def _lines(self, run: Run, table: Any, ahead: Forecast, number: int) -> LinesDrawing:
        first = int(np.searchsorted(table.dates, ahead.dates[0]))
        begin, count = max(0, first - run.task.config.look_back), len(ahead.dates)
        read = table.values[begin:first, number]
        came = table.values[first : first + count, number]
        blank = np.full(len(read), np.nan)
        truth = np.concatenate((read, came, np.full(count - len(came), np.nan)))
        low = high = []
        if ahead.quantiles is not None:
            low = listed([*blank, *ahead.quantiles[:, number, 0]])
            high = listed([*blank, *ahead.quantiles[:, number, -1]])
        said = listed([*blank, *ahead.values[:, number]])
        return LinesDrawing(
            title=f"{ahead.names[number]} from {date_labels(ahead.dates)[0]}",
            caption=_levels(ahead.levels),
            x=[float(i) for i in range(len(truth))],
            curves=[
                Curve(name="series", y=listed(truth)),
                Curve(name="forecast", y=said, low=low, high=high),
            ],
            up=ahead.names[number],
            labels=date_labels(np.concatenate((table.dates[begin:first], ahead.dates))),
            marks=[Mark(x=float(len(read)), label="forecast")],
        )


def _levels(levels: Sequence[float]) -> str:
    return f"the band is from {levels[0]:g} to {levels[-1]:g} of the quantiles" if levels else ""


def _probabilities(found: dict[str, float]) -> list[Probability]:
    kept = ((label, p) for label, p in found.items() if math.isfinite(p))
    return [Probability(label=label, p=p) for label, p in kept]


def shown(pixels: Any, title: str) -> PictureDrawing:
    """A picture as the model sees it."""
    _, height, width = pixels.shape
    return PictureDrawing(title=title, image=data_uri(pixels), width=width, height=height)


def source_tokens(tokenizer: Any, text: str) -> list[SourceToken]:
    """The pieces of a text with their places in it."""
    offsets = tokenizer.encode(text).offsets
    return [SourceToken(text=text[a:b], start=a, end=b) for a, b in offsets]
