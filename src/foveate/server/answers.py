"""Answers of runs in the studio: events while a run computes, and its outputs at the end.

Lives here: an answerer for each kind of task (texts that are written token by token, labels, hidden
words, forecasts), and the pictures of requests and responses.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.series import labels as date_labels
from foveate.data.tokenizer import EOS, Tokenizer
from foveate.decode.search import Beginning
from foveate.look.drawings import (
    AnyDrawing,
    Curve,
    LinesDrawing,
    Mark,
    Part,
    Word,
    WordsDrawing,
    data_uri,
    listed,
    picture_drawing,
)
from foveate.run import Run
from foveate.server.common import RequestError
from foveate.server.studio_schemas import (
    Alternative,
    AnswerHypothesis,
    AnswerRequest,
    AnswerStart,
    BeamStep,
    DrawnDone,
    Gives,
    LabelDone,
    Probability,
    Reads,
    SourceToken,
    TextDone,
    Token,
)
from foveate.tasks.base import Classifies
from foveate.tasks.captioning import Captioning
from foveate.tasks.forecasting import Forecast, Forecasting
from foveate.tasks.language import Language
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.text_to_text import TextToText
from foveate.watching import Output, Watched

Send = Callable[[Part], None]  # sends an event
AnyDone = TextDone | LabelDone | DrawnDone
MOST_BYTES = 12 * 1024 * 1024  # of a picture
DATA_URI = re.compile(r"data:image/(png|jpeg);base64,(.*)", re.DOTALL)
PICTURE_HINT = "send a data URI of a PNG or JPEG, or the number of a test picture"


# ------------------------------------------------------------------------------ pictures


@contextmanager
def opened(picture: str | None) -> Iterator[int | Path]:
    """The number of a test picture, or a temporary file with the content of a data URI.

    Raises `RequestError` for anything else, such as a path of this machine.
    """
    picture = (picture or "0").strip()
    if picture.isascii() and picture.isdecimal():
        yield int(picture)
        return
    uri = DATA_URI.fullmatch(picture)
    if uri is None:
        raise RequestError(422, "this is no picture", code="no_picture", hint=PICTURE_HINT)
    try:
        content = base64.b64decode(uri[2], validate=True)
    except binascii.Error as error:
        message = f"the data URI is damaged: {error}"
        raise RequestError(422, message, code="no_picture", hint=PICTURE_HINT) from None
    if len(content) > MOST_BYTES:
        message, hint = f"a picture of {len(content):,} bytes", f"at most {MOST_BYTES:,}"
        raise RequestError(413, message, code="too_long", hint=hint)
    with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
        path = Path(folder) / f"picture.{uri[1]}"
        path.write_bytes(content)
        yield path


def enlarged_uri(pixels: NDArray[np.uint8], least: int) -> str:
    """Pixels (C, H, W) as a PNG in a data URI, enlarged by whole numbers to ``least`` pixels."""
    times = max(1, -(-least // max(pixels.shape[1:])))
    return data_uri(pixels.repeat(times, axis=1).repeat(times, axis=2))


# ------------------------------------------------------------------------------ labels, forecasts


class Answerer(ABC):
    """How a kind of task answers; its tasks are ``of`` a class, ``can`` names its abilities."""

    of: ClassVar[type]
    reads: ClassVar[Reads] = "text"
    gives: ClassVar[Gives]
    can: ClassVar[tuple[str, ...]] = ()

    def start(self, run: Run, name: str, request: AnswerRequest) -> AnswerStart:
        """The first event."""
        return AnswerStart(run=name)

    @abstractmethod
    def answer(self, run: Run, request: AnswerRequest, send: Send) -> AnyDone:
        """Compute the answer, sending events on the way."""


class TextLabels(Answerer):
    """A label for a text."""

    of, gives, can = Classifies, "label", ("classify",)

    def start(self, run: Run, name: str, request: AnswerRequest) -> AnswerStart:
        return AnswerStart(run=name, source=source_tokens(run.task.tokenizer, request.text))

    def answer(self, run: Run, request: AnswerRequest, send: Send) -> LabelDone:
        [label] = run.classify([request.text])
        return LabelDone(labels=_probabilities(label.probabilities), cut=label.cut)


class PictureLabels(Answerer):
    """A label for a picture."""

    of, reads, gives, can = Classifies, "picture", "label", ("classify",)

    def answer(self, run: Run, request: AnswerRequest, send: Send) -> LabelDone:
        with opened(request.picture) as picture:
            [label] = run.classify_images([picture])
            pixels, name = run.task.shown(picture)
        drawing = picture_drawing(pixels, f"{name} → {label.label}")
        return LabelDone(labels=_probabilities(label.probabilities), drawings=[drawing])


class HiddenTokens(Answerer):
    """Some tokens of a text are hidden, as in a validation, and predicted."""

    of, gives, can = MaskedLanguage, "words", ("fill",)

    def answer(self, run: Run, request: AnswerRequest, send: Send) -> DrawnDone:
        encoded, task = run.task.tokenizer.encode(request.text), run.task
        predicted = task.guess(run.model, [encoded.ids])
        guesses = dict(zip(predicted.places[0].tolist(), predicted.guessed[0], strict=True))
        words = []
        for i, (token, (start, end)) in enumerate(zip(encoded.ids, encoded.offsets, strict=True)):
            guess = guesses.get(i)
            text = task.tokenizer.decode([token if guess is None else guess])
            original, before = request.text[start:end], request.text[max(0, start - 1) : start]
            words.append(
                Word(
                    text=text.strip() or original.strip(),
                    value=None if guess is None else float(guess == token),
                    space=original.startswith(" ") or before == " ",
                    note="" if guess is None else f"hidden; there stood {original.strip()!r}",
                )
            )
        title = f"{predicted.right} of {predicted.count} hidden tokens guessed right"
        return DrawnDone(drawings=[WordsDrawing(title=title, words=words, told="right or wrong")])


class Forecasts(Answerer):
    """The next rows of a series: after its end, after a table of the user's, or at a date."""

    of, reads, gives, can = Forecasting, "series", "forecast", ("forecast",)

    def answer(self, run: Run, request: AnswerRequest, send: Send) -> DrawnDone:
        task, date = run.task, request.date
        if request.csv is not None:
            table, ahead = self.of_csv(run, request.csv)
        elif date is not None:
            table, ahead = task.table(), task.forecast_at(run.model, date)
        else:
            table, ahead = task.table(), run.forecast()
        names, channel = ahead.names, request.channel
        if channel is not None and channel not in names:
            raise ConfigError(f"no channel {channel!r}; there are: {', '.join(names)}")
        chosen = range(len(names)) if channel is None else [names.index(channel)]
        return DrawnDone(drawings=[self.drawing(run, table, ahead, number) for number in chosen])

    def of_csv(self, run: Run, csv: str) -> tuple[Any, Forecast]:
        """A table of the user's and what comes after it. Raises `ConfigError` naming a line."""
        with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
            path = Path(folder) / "series.csv"
            path.write_text(csv, encoding="utf-8")
            try:
                return run.task.read_file(path), run.forecast(path)
            except (ConfigError, DataError) as error:
                raise ConfigError(str(error).replace(str(path), "the table")) from None

    def drawing(self, run: Run, table: Any, ahead: Forecast, number: int) -> LinesDrawing:
        """A channel: the rows read, the forecast, and the rows that followed."""
        first = int(np.searchsorted(table.dates, ahead.dates[0]))
        begin, count = max(0, first - run.task.config.look_back), len(ahead.dates)
        past = table.values[begin:first, number]
        future = table.values[first : first + count, number]
        blank = np.full(len(past), np.nan)
        truth = np.concatenate((past, future, np.full(count - len(future), np.nan)))
        low = high = []
        if ahead.quantiles is not None:
            low = listed([*blank, *ahead.quantiles[:, number, 0]])
            high = listed([*blank, *ahead.quantiles[:, number, -1]])
        values = listed([*blank, *ahead.values[:, number]])
        return LinesDrawing(
            title=f"{ahead.names[number]} from {date_labels(ahead.dates)[0]}",
            caption=_levels(ahead.levels),
            x=[float(i) for i in range(len(truth))],
            curves=[
                Curve(name="series", y=listed(truth)),
                Curve(name="forecast", y=values, low=low, high=high),
            ],
            up=ahead.names[number],
            labels=date_labels(np.concatenate((table.dates[begin:first], ahead.dates))),
            marks=[Mark(x=float(len(past)), label="forecast")],
        )


def _levels(levels: Sequence[float]) -> str:
    return f"the band is from {levels[0]:g} to {levels[-1]:g} of the quantiles" if levels else ""


def _probabilities(probabilities: dict[str, float]) -> list[Probability]:
    finite = ((label, p) for label, p in probabilities.items() if math.isfinite(p))
    return [Probability(label=label, p=p) for label, p in finite]


def source_tokens(tokenizer: Tokenizer, text: str) -> list[SourceToken]:
    """The tokens of a text with their places in it."""
    offsets = tokenizer.encode(text).offsets
    return [SourceToken(text=text[a:b], start=a, end=b) for a, b in offsets]


# ------------------------------------------------------------------------------ texts


class Texts(Answerer):
    """An answer of tokens: one hypothesis is sent token by token, several as a beam."""

    gives, can = "text", ("stream", "beam", "sample", "force")

    def answer(self, run: Run, request: AnswerRequest, send: Send) -> TextDone:
        watched = Watched(run, request.top_k)
        task = watched.task
        config = watched.search(request.search.kind, **request.search.fields())
        search = config.giving(request.hypotheses)
        prefix = list(request.prefix)
        if not prefix and request.beginning:
            prefix = task.prefix_ids(request.beginning)
        size = task.output_tokenizer.vocab_size
        if wrong := [i for i in prefix if not 0 <= i < size]:
            raise ConfigError(f"prefix: no token has the id {wrong[0]}; ids end at {size - 1}")
        watched.watch.told = self._sender(watched, search.build().width, send)
        with self.source(run, request) as (source, drawings):
            outputs = watched.write(source, search.build(), prefix)
        hypotheses = [hypothesis(watched, output) for output in outputs[: request.hypotheses]]
        return TextDone(hypotheses=hypotheses, drawings=drawings)

    @contextmanager
    def source(self, run: Run, request: AnswerRequest) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        """The input of the run, and its drawings."""
        yield request.text, []

    @staticmethod
    def _sender(watched: Watched, width: int, send: Send) -> Callable[[list[Beginning]], None]:
        def send_tokens(step: list[Beginning]) -> None:
            for partial in step:
                send(token(watched, partial, len(watched.watch.steps) - 1))

        def send_beam(step: list[Beginning]) -> None:
            if not step:
                return
            ended = [p for past in watched.watch.steps for p in past if p.state == "done"]
            alive = [partial for partial in step if partial.state == "live"]
            best = max(ended + alive or step, key=lambda partial: partial.score)
            text = watched.output(watched.watch.path(best)).text
            nodes = [watched.node(partial) for partial in step]
            send(BeamStep(step=len(watched.watch.steps) - 1, nodes=nodes, best=best.id, text=text))

        return send_tokens if width == 1 else send_beam


class Translations(Texts):
    """A line for a line."""

    of = TextToText

    def start(self, run: Run, name: str, request: AnswerRequest) -> AnswerStart:
        tokens = source_tokens(run.task.source_tokenizer, request.text)
        cut = max(0, len(tokens) - run.task.data.max_length)
        return AnswerStart(run=name, source=tokens, prefix=request.prefix, cut=cut)

    @contextmanager
    def source(self, run: Run, request: AnswerRequest) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        line = " ".join(request.text.splitlines())
        yield run.task.addressed([line], request.to)[0], []


class Continuations(Texts):
    """A text that is continued."""

    of = Language

    def start(self, run: Run, name: str, request: AnswerRequest) -> AnswerStart:
        tokens = source_tokens(run.task.tokenizer, request.text)
        return AnswerStart(run=name, source=tokens, prefix=request.prefix)


class Captions(Texts):
    """A sentence for a picture."""

    of, reads = Captioning, "picture"

    @contextmanager
    def source(self, run: Run, request: AnswerRequest) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        with opened(request.picture) as picture:
            yield picture, [picture_drawing(*run.task.shown(picture))]


def token(watched: Watched, partial: Beginning, place: int, text: str | None = None) -> Token:
    """The last token of a partial hypothesis, at a place of its output."""
    others, names = watched.instead(partial)
    special = partial.token in watched.task.silent
    name = "\n" if partial.token == EOS else watched.name(partial)
    name = "" if special or name.endswith("\ufffd") else name
    return Token(
        i=place,
        id=partial.token,
        text=name if text is None else text,
        piece=watched.task.output_tokenizer.pieces[partial.token],
        special=special,
        log_p=partial.token_log_p,
        entropy=others.entropy,
        alternatives=[
            Alternative(id=i, text=other, p=math.exp(log_p))
            for i, other, log_p in zip(others.tokens, names, others.log_p, strict=True)
        ],
    )


def hypothesis(watched: Watched, output: Output) -> AnswerHypothesis:
    """An output with its tokens, whose texts in a row are its text."""
    texts = watched.task.token_texts([partial.token for partial in output.path])
    tokens = [
        token(watched, partial, place, text)
        for place, (partial, text) in enumerate(zip(output.path, texts, strict=True))
    ]
    return AnswerHypothesis(
        text=output.text,
        log_p=output.log_p,
        score=output.score,
        ended=output.ended,
        tokens=tokens,
        path=[partial.id for partial in output.path],
    )


# ------------------------------------------------------------------------------ by task


ANSWERERS: Sequence[Answerer] = (
    Translations(),
    Continuations(),
    Captions(),
    PictureLabels(),
    TextLabels(),
    Forecasts(),
    HiddenTokens(),
)


def answerer(task: Any) -> Answerer:
    """The answerer of a task, or of a class of tasks. Raises `RequestError` where none fits."""
    kind = task if isinstance(task, type) else type(task)
    for candidate in ANSWERERS:
        if issubclass(kind, candidate.of) and kind.reads == candidate.reads:
            return candidate
    name = kind.__name__
    message = f"the studio cannot ask a run of the task {name}"
    raise RequestError(422, message, code="no_answer")
