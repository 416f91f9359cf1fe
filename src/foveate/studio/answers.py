"""Answers of runs in the studio: events while a run computes, and its outputs at the end.

The task's ``reads`` determines the fields of a request, its ``gives`` the form of the answer:
texts token by token, labels with their probabilities, forecasts and masked words as drawings.
"""

import base64
import binascii
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp, isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.series import SeriesTable
from foveate.data.series import labels as date_labels
from foveate.data.tokenizer import EOS
from foveate.decode.watch import PartialHypothesis
from foveate.documents.alternatives import formality
from foveate.documents.base import DocumentOptions
from foveate.documents.folders import with_languages
from foveate.engine.answers import LabelAnswer, Picture
from foveate.files import split_lines, write_text
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.parts import DrawingPart, data_uri
from foveate.look.draw.pictures import PictureDrawing, picture_drawing
from foveate.look.views.text import Output, Watched
from foveate.run import Run
from foveate.run.answering import Forecast, forecast_at, unknown_words
from foveate.serve.common import RequestError
from foveate.studio.schemas import (
    Alternative,
    AnswerHypothesis,
    AnswerRequest,
    AnswerStart,
    BeamStep,
    DrawnDone,
    LabelDone,
    Probability,
    SourceToken,
    TextDone,
    Token,
)
from foveate.tasks.abilities import Generates
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.image_classification import PictureTask
from foveate.tasks.text import TextToText

Send = Callable[[DrawingPart], None]  # sends an event
AnyDone = TextDone | LabelDone | DrawnDone
MOST_BYTES = 12 * 1024 * 1024  # of a picture
DATA_URI = re.compile(r"data:image/(png|jpeg);base64,(.*)", re.DOTALL)


@contextmanager
def opened(picture: str | None) -> Iterator[int | Path]:
    """Yield the number of a test picture, or a temporary file with the content of a data URI.

    Raises `RequestError` for anything else, such as a path on this machine.
    """
    picture = (picture or "0").strip()
    if picture.isascii() and picture.isdecimal():
        yield int(picture)
        return
    uri = DATA_URI.fullmatch(picture)
    if uri is None:
        send = "send a data URI of a PNG or JPEG, or the number of a test picture"
        raise RequestError(422, f"not a picture: {send}")
    try:
        content = base64.b64decode(uri[2], validate=True)
    except binascii.Error as error:
        raise RequestError(422, f"the data URI is damaged: {error}") from None
    if len(content) > MOST_BYTES:
        raise RequestError(413, f"a picture of {len(content):,} bytes; at most {MOST_BYTES:,}")
    with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
        path = Path(folder) / f"picture.{uri[1]}"
        path.write_bytes(content)
        yield path


def enlarged_uri(pixels: NDArray[np.uint8], least: int) -> str:
    """Return pixels (C, H, W) as a PNG data URI, enlarged by an integer to ``least`` pixels."""
    times = max(1, -(-least // max(pixels.shape[1:])))
    return data_uri(pixels.repeat(times, axis=1).repeat(times, axis=2))


def start(run: Run, name: str, request: AnswerRequest) -> AnswerStart:
    """Return the first event: the run, and the tokens of a text that is read."""
    task = run.task
    if task.reads != "text" or task.gives == "words":
        return AnswerStart(run=name)
    tokenizer = next(iter(task.tokenizers_by_name().values()), None)
    text, offsets = request.text, tokenizer.encode(request.text).offsets if tokenizer else []
    tokens = [SourceToken(text=text[a:b], start=a, end=b) for a, b in offsets]
    prefix = request.prefix if task.gives == "text" else []
    longest = task.data.max_length if isinstance(task, TextToText) else len(tokens)
    cut, unknown = max(0, len(tokens) - longest), unknown_words(task, request.text)
    return AnswerStart(run=name, source=tokens, unknown=unknown, prefix=prefix, cut=cut)


def answer(run: Run, request: AnswerRequest, send: Send) -> AnyDone:
    """Compute the answer, sending events on the way. Raises `RequestError` for an invalid input."""
    task = run.task
    if isinstance(task, Forecasting):
        return forecasts(run, task, request)
    with read(run, request) as (source, drawings):
        if isinstance(task, Generates):
            return texts(run, source, request, send).model_copy(update={"drawings": drawings})
        [done] = run.answer([source])
        if not isinstance(done, LabelAnswer):
            return DrawnDone(drawings=[*drawings, *done.drawing().drawings()])
        drawings = [d.model_copy(update={"title": f"{d.title} → {done}"}) for d in drawings]
        odds = [Probability(label=n, p=p) for n, p in done.probabilities.items() if isfinite(p)]
        return LabelDone(labels=odds, cut=done.cut, drawings=drawings)


@contextmanager
def read(run: Run, request: AnswerRequest) -> Iterator[tuple[Picture, list[PictureDrawing]]]:
    """Yield a request's input for a run, and its drawing if it is a picture."""
    if isinstance(run.task, PictureTask):
        with opened(request.picture) as picture:
            yield picture, [picture_drawing(*run.task.shown(picture))]
    elif isinstance(run.task, TextToText):
        yield run.task.sides.addressed([" ".join(split_lines(request.text))], request.to)[0], []
    else:
        yield request.text, []


def forecasts(run: Run, task: Forecasting, request: AnswerRequest) -> DrawnDone:
    """Return a series' next rows: after its end, after a table of the user's, or at a date."""
    if request.csv is not None:
        table, ahead = forecast_of_csv(run, task, request.csv)
    elif request.date is not None:
        table, ahead = task.table, forecast_at(task, run.model, request.date)
    else:
        table, ahead = task.table, run.answer([None])[0]
    channels = list(range(len(ahead.names)))
    if request.channel is not None:
        channels = [task.channel(request.channel)]
    back = task.config.look_back
    return DrawnDone(drawings=[forecast_drawing(table, ahead, n, back) for n in channels])


def forecast_of_csv(run: Run, task: Forecasting, csv: str) -> tuple[SeriesTable, Forecast]:
    """Return a user's table and its forecast. Raises `ConfigError` with a line."""
    with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
        path = Path(folder) / "series.csv"
        write_text(path, csv)
        try:
            return task.read_file(path), run.answer([path])[0]
        except (ConfigError, DataError) as error:
            raise ConfigError(str(error).replace(str(path), "the table")) from None


def forecast_drawing(
    table: SeriesTable, ahead: Forecast, number: int, look_back: int
) -> LinesDrawing:
    """Draw a channel: the rows read, the forecast, and the rows that followed."""
    first = int(np.searchsorted(table.dates, ahead.dates[0]))
    begin, name = max(0, first - look_back), ahead.names[number]
    dates = np.concatenate((table.dates[begin:first], ahead.dates))
    past = np.full(first - begin, np.nan)
    bands, caption = {}, ""
    if ahead.quantiles is not None:
        low, high = ahead.quantiles[:, number, [0, -1]].T
        bands["forecast"] = np.append(past, low), np.append(past, high)
        caption = f"the band is from {ahead.levels[0]:g} to {ahead.levels[-1]:g} of the quantiles"
    curves = {
        "series": table.values[begin : first + len(ahead.dates), number],
        "forecast": np.append(past, ahead.values[:, number]),
    }
    return line_chart(
        range(len(dates)), curves, up=name, title=f"{name} from {date_labels(ahead.dates)[0]}",
        bands=bands, labels=date_labels(dates), marks={"forecast": len(past)}, caption=caption,
    )  # fmt: skip


def texts(run: Run, source: Picture, request: AnswerRequest, send: Send) -> TextDone:
    """Answer with tokens: a single hypothesis is sent token by token, several as a beam."""
    watched = Watched(run, request.top_k)
    fields = request.search.model_dump(exclude_none=True)
    settings = watched.task.search_config(run.config.decode, **fields)
    search = settings.giving(request.hypotheses).build()
    prefix = list(request.prefix)
    if not prefix and request.beginning:
        prefix = watched.task.prefix_ids(request.beginning)
    size = watched.task.output_tokenizer.vocab_size
    if wrong := [i for i in prefix if not 0 <= i < size]:
        raise ConfigError(f"prefix: no token has the id {wrong[0]}; ids end at {size - 1}")

    def send_tokens(column: list[PartialHypothesis]) -> None:
        for partial in column:
            send(token(watched, partial, len(watched.watch.positions) - 1))

    def send_beam(column: list[PartialHypothesis]) -> None:
        if not column:
            return
        columns = watched.watch.positions
        ended = [p for past in columns for p in past if p.state == "done"]
        alive = [partial for partial in column if partial.state == "live"]
        best = max(ended + alive or column, key=lambda partial: partial.score)
        text = watched.output(watched.watch.path(best)).text
        nodes = [watched.node(partial) for partial in column]
        send(BeamStep(step=len(columns) - 1, nodes=nodes, best=best.id, text=text))

    report = send_tokens if search.width == 1 else send_beam
    for column in watched.positions(source, search, prefix):
        report(column)
    outputs = watched.outputs[: request.hypotheses]
    to = with_languages(run, DocumentOptions(to=request.to)).to
    return TextDone(hypotheses=[hypothesis(watched, output, to) for output in outputs])


def token(
    watched: Watched, partial: PartialHypothesis, place: int, text: str | None = None
) -> Token:
    """Return the last token of a partial hypothesis, at a position of its output."""
    others, names = watched.instead(partial)
    writes = watched.task.output_tokenizer
    special = partial.token in watched.task.silent or 0 < writes.certain <= partial.token
    name = "\n" if partial.token == EOS else watched.name(partial)
    name = "" if special or name.endswith("\ufffd") else name
    return Token(
        i=place,
        id=partial.token,
        text=name if text is None else text,
        piece=writes.pieces[partial.token],
        special=special,
        log_p=partial.token_log_p,
        entropy=others.entropy,
        alternatives=[
            Alternative(id=i, text=other, p=exp(log_p))
            for i, other, log_p in zip(others.tokens, names, others.log_p, strict=True)
        ],
    )


def hypothesis(watched: Watched, output: Output, language: str | None) -> AnswerHypothesis:
    """Return an output with its tokens, whose texts concatenated are its text."""
    texts = watched.task.token_texts([partial.token for partial in output.path])
    tokens = [
        token(watched, partial, place, text)
        for place, (partial, text) in enumerate(zip(output.path, texts, strict=True))
    ]
    return AnswerHypothesis(
        text=output.text,
        formality=formality(output.text, language),
        log_p=output.log_p,
        score=output.score,
        ended=output.ended,
        tokens=tokens,
        path=[partial.id for partial in output.path],
    )
