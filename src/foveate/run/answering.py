"""The answers of a trained model of each task, by any engine.

    answer(task, engine, inputs, SearchRequest(search)) -> an `Answer` for each input, in order

`answer` is registered for the class of each task; a task of one's own has that of the class it
derives from, and registers another by ``@answer.register(MyTask)``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.series import Dates, SeriesTable, calendar, following, labels
from foveate.data.text import portions
from foveate.data.tokenizer import EOS, UNK, Encoded, Tokenizer
from foveate.decode.engine import SearchRequest, check_finite
from foveate.engine.answers import (
    Answer,
    CaptionAnswer,
    Continuation,
    FilledText,
    LabelAnswer,
    ModelEngine,
    Picture,
    TextAnswer,
    continued,
    probabilities_of,
    translated,
)
from foveate.errors import checks
from foveate.models.forecaster import Forecaster
from foveate.tasks.base import AnyTask
from foveate.tasks.captioning import Captioning
from foveate.tasks.classification import TextClassification
from foveate.tasks.forecasting import Forecasting, middle
from foveate.tasks.image_classification import ROWS, ImageClassification
from foveate.tasks.language import Language
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.text import AnyTextToText, TextToText

if TYPE_CHECKING:
    from foveate.look.draw.drawings import Drawing
    from foveate.look.draw.texts import Word

Array = NDArray[np.floating]
MOST_LINES = 200_000  # of training data that are searched for the words of a text
WORD = re.compile(r"[^\W\d_]+")
_WORDS: WeakKeyDictionary[AnyTask, set[str]] = WeakKeyDictionary()  # in the sources of a task


@checks(Sequence[Answer])
@singledispatch
def answer(
    task: AnyTask, engine: ModelEngine, inputs: Sequence[Any], request: SearchRequest
) -> Sequence[Any]:
    """Return an answer for each input, in order. Raises ``ConfigError`` if the task gives none."""
    remedy = "register answer (foveate.run.answering) for its class"
    raise ConfigError(f"the task {task.config.kind} gives no answers: {remedy}")


@answer.register(TextToText)
def _translated(
    task: AnyTextToText, engine: ModelEngine, lines: Sequence[str], request: SearchRequest
) -> list[TextAnswer]:
    return translated(task.sides, engine, lines, request)


@answer.register(Language)
def _continued_lines(
    task: Language, engine: ModelEngine, inputs: Sequence[str], request: SearchRequest
) -> list[Continuation]:
    """Continue each text to the end of its line."""
    return continued(task.tokenizer, engine, inputs, replace(request, end=EOS, num=1))


@answer.register(MaskedLanguage)
def _filled_texts(
    task: MaskedLanguage, engine: ModelEngine, inputs: Sequence[str], request: SearchRequest
) -> list[FilledText]:
    """The texts with some tokens hidden, as in a validation, and predicted."""
    limit = task.data.max_length
    encoded = task.tokenizer.encode_batch(list(inputs))
    ids = [text.ids[:limit] for text in encoded]
    guesses = task.guess(engine.model, ids, request.batch_tokens)
    check_finite(guesses.total, "no text")
    return [
        FilledText(
            text,
            task.filled(ids[i], guesses, i),
            _words(task, text, encoded[i], dict(zip(places.tolist(), guessed, strict=True))),
            max(0, len(encoded[i].ids) - limit),
        )
        for i, (text, places, guessed) in enumerate(
            zip(inputs, guesses.places, guesses.guessed, strict=True)
        )
    ]


@answer.register(TextClassification)
def _labelled(
    task: TextClassification, engine: ModelEngine, inputs: Sequence[str], request: SearchRequest
) -> list[LabelAnswer]:
    """The label of each line and p of every label, in their order; none for an empty line."""
    limit = min(task.data.max_length, engine.room.source)
    encoded = task.tokenizer.encode_ids(inputs)
    rows = [i for i, line in enumerate(inputs) if line.strip()]
    answers = [LabelAnswer(line, "", {}, explains=engine) for line in inputs]
    log_p = task.predict(engine.model, [encoded[i][:limit] for i in rows], request.batch_tokens)
    for i, row in zip(rows, log_p, strict=True):
        p, cut = probabilities_of(row, task.label_names), max(0, len(encoded[i]) - limit)
        answers[i] = LabelAnswer(inputs[i], next(iter(p)), p, cut, engine)
    return answers


@answer.register(ImageClassification)
def _labelled_pictures(
    task: ImageClassification,
    engine: ModelEngine,
    inputs: Sequence[Picture],
    request: SearchRequest,
) -> list[LabelAnswer]:
    shown = [task.shown(source)[0] for source in inputs]  # all are read before one is judged
    parts = portions(shown, min(ROWS, request.batch_tokens))
    log_p = task.predict(engine.model, (task.tensor(part) for part in parts))
    pairs = zip(inputs, [probabilities_of(row, task.label_names) for row in log_p], strict=True)
    return [LabelAnswer(source, next(iter(p)), p, explains=engine) for source, p in pairs]


@answer.register(Captioning)
def _captioned(
    task: Captioning, engine: ModelEngine, inputs: Sequence[Picture], request: SearchRequest
) -> list[CaptionAnswer]:
    """A caption for each picture: a file, or the number of one of the test data."""
    pictures, names = zip(*map(task.shown, inputs), strict=True) if inputs else ((), ())
    return [
        CaptionAnswer(name, task.tokenizer.decode(best.ids), best.score, best.ids)
        for name, (best, *_) in zip(names, engine.outputs(pictures, request), strict=True)
    ]


@answer.register(Forecasting)
def _forecasts(
    task: Forecasting, engine: ModelEngine, inputs: Sequence[str | None], request: SearchRequest
) -> list[Forecast]:
    """The rows after the end of each file, or of the run's own series (None)."""
    return [forecast(task, engine.model, source) for source in inputs]


def _words(
    task: MaskedLanguage, text: str, encoded: Encoded, guesses: dict[int, int]
) -> list[Word]:
    """The tokens of a text as they are drawn, with the predictions by their places."""
    from foveate.look.draw.texts import Word

    words = []
    limit = task.data.max_length
    tokens = zip(encoded.ids[:limit], encoded.offsets[:limit], strict=True)
    for i, (token, (start, end)) in enumerate(tokens):
        guess = guesses.get(i)
        original, before = text[start:end], text[max(0, start - 1) : start]
        words.append(
            Word(
                text=task.tokenizer.decode([token if guess is None else guess]).strip()
                or original.strip(),
                value=None if guess is None else float(guess == token),
                space=original.startswith(" ") or before == " ",
                note="" if guess is None else f"hidden; there stood {original.strip()!r}",
            )
        )
    return words


def forecast(task: Forecasting, model: Forecaster, source: str | Path | None = None) -> Forecast:
    """The rows after the end of a file (of the run's own series where it is absent).

    Raises `DataError` where the file has fewer rows than the model reads.
    """
    table, config = task.table if source is None else task.read_file(source), task.config
    if len(table) < config.look_back:
        raise DataError(f"{table.file}: {len(table)} rows; the model reads {config.look_back}")
    within = table.gaps[table.gaps > len(table) - config.look_back]
    if len(within):
        raise DataError(
            f"{table.gap(int(within[-1]))}; the model reads {config.look_back} rows without a "
            'gap: add the missing rows, or set task.series.gaps = "ignore"'
        )
    ahead = following(table.dates, config.horizon)
    return _forecast(task, model, table, slice(len(table) - config.look_back, None), ahead)


def forecast_at(task: Forecasting, model: Forecaster, date: str) -> Forecast:
    """Forecast the rows from a date on with a model that has read those before it.

    Raises `ConfigError` naming the dates at which a forecast can begin.
    """
    windows = task.at(date)
    first = int(windows.starts[0])
    row = first + windows.look_back
    ahead = windows.table.dates[row : row + windows.horizon]
    return _forecast(task, model, windows.table, slice(first, row), ahead)


@torch.inference_mode()
def _forecast(
    task: Forecasting, model: Forecaster, table: SeriesTable, read: slice, ahead: Dates
) -> Forecast:
    """The forecast for some dates after the rows read, in the units of the series."""
    config, device = task.config, next(model.parameters()).device
    dates = np.concatenate((table.dates[read], ahead))
    values = torch.from_numpy(task.scaling.enter(table.values[read]))[None]
    features = torch.from_numpy(calendar(dates, config.calendar))[None]
    predicted = model(values.to(device), features.to(device))[0].float().cpu().numpy()
    check_finite(predicted, "no forecast")
    original = task.scaling.leave(predicted.swapaxes(1, 2)).swapaxes(1, 2)  # channels last
    quantiles = np.sort(original, axis=-1) if config.quantiles else None
    return Forecast(ahead, task.names, middle(original), quantiles, config.quantiles)


@dataclass(frozen=True)
class Forecast(Answer):
    """The rows after the end of a series, in its own units.

    ``values`` (H, C); ``quantiles`` (H, C, Q) at the ``levels``, None where none were learnt.
    """

    dates: Dates
    names: tuple[str, ...]
    values: Array
    quantiles: Array | None = None
    levels: tuple[float, ...] = ()

    def csv(self) -> str:
        """The table as CSV: date, the channels, each channel's quantiles as ``NAME@0.1``."""
        text, values = io.StringIO(), self.values
        if self.quantiles is not None:
            values = np.concatenate((values, self.quantiles.reshape(len(values), -1)), axis=1)
        table = csv.writer(text, lineterminator="\n")
        each = [f"{name}@{level:g}" for name in self.names for level in self.levels]
        table.writerow(["date", *self.names, *each])
        for date, row in zip(labels(self.dates), values, strict=True):
            table.writerow([date, *(f"{value:.6g}" for value in row)])
        return text.getvalue()

    def __str__(self) -> str:
        return self.csv().rstrip("\n")

    def json(self) -> dict[str, object]:
        return {
            "dates": labels(self.dates),
            "names": list(self.names),
            "values": self.values.tolist(),
            "quantiles": None if self.quantiles is None else self.quantiles.tolist(),
            "levels": list(self.levels),
        }

    def drawing(self) -> Drawing:
        """A curve for each channel, with the band of its outer quantiles."""
        curves = dict(zip(self.names, self.values.T, strict=True))
        bands = None
        if self.quantiles is not None:
            ends = self.quantiles[:, :, [0, -1]].transpose(1, 2, 0)
            bands = {name: (low, high) for name, (low, high) in zip(self.names, ends, strict=True)}
        from foveate.look.draw.charts import line_chart

        steps = np.arange(1.0, len(self.dates) + 1)
        return line_chart(steps, curves, bands=bands, labels=labels(self.dates))


def unknown_words(task: AnyTask, text: str) -> list[str]:
    """Return the words of a text that are in no training source, ignoring case.

    Without the data, or with more than `MOST_LINES` lines: those that the tokenizer lacks.
    """
    tokenizer = next(iter(task.tokenizers_by_name().values()), None)
    if tokenizer is None:
        return []
    if isinstance(task, TextToText) and task not in _WORDS:
        _WORDS[task] = set()
        with suppress(OSError, ConfigError, DataError):
            lines = list(islice(chain.from_iterable(task.readings("train")), MOST_LINES + 1))
            texts = [source for _, source, _ in lines] if len(lines) <= MOST_LINES else []
            _WORDS[task] = {word for each in texts for word in WORD.findall(each.casefold())}
    if known := _WORDS.get(task):
        return [word for word in dict.fromkeys(WORD.findall(text)) if word.casefold() not in known]
    return words_without_piece(tokenizer, text)


def words_without_piece(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the parts of a text that a tokenizer reads as unknown."""
    encoded = tokenizer.encode(text)
    pairs = zip(encoded.ids, encoded.offsets, strict=True)
    return list(dict.fromkeys(text[a:b] for i, (a, b) in pairs if i == UNK))
