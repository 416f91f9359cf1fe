"""The routes of trainings, past and running, by their logs; nothing is computed for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from foveate.config import ConfigError
from foveate.studio.asking import FilmAsk
from foveate.studio.errors import ErrorBody, Refused, unknown
from foveate.studio.place import Here, Studio, check
from foveate.studio.routes import PAUSE
from foveate.studio.streaming import EVENTS, HEADERS, sent
from foveate.studio.told import Film
from foveate.studio.trainings import (
    SamplesOf,
    SeriesOf,
    Tail,
    Training,
    TrainingEvent,
    TrainingList,
    event,
    samples,
    series,
    training,
)
from foveate.train.journal import LOG
from foveate.views.registry import VIEWS

LOOKING = 0.5  # seconds between two looks at a log
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (404, 422, 429, 500)
}
TAILED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the lines of the log as they are written",
        "content": {EVENTS: {"schema": {"$ref": "#/components/schemas/TrainingEvents"}}},
    }
}
router = APIRouter(prefix="/api/v1/trainings", responses=ERRORS)
Split = Annotated[str, Query(description="keys such as train.loss, with commas; all where empty")]


@router.get("")
def trainings(here: Here) -> TrainingList:
    """Where every training stands."""
    return TrainingList(trainings=[_training(here, name) for name in here.shelf.folders])


@router.get("/{name}")
def one_training(name: str, here: Here) -> Training:
    """Where a training stands."""
    return _training(here, name)


@router.get("/{name}/series")
def training_series(
    name: str,
    here: Here,
    keys: Split = "",
    after: int = -1,
    max_points: Annotated[int, Query(ge=3, le=20_000)] = 2000,
) -> SeriesOf:
    """Curves with the steps after one, thinned out to look the same."""
    chosen = [key for key in keys.split(",") if key]
    return series(here.shelf.log(name), chosen, after, max_points)


@router.get("/{name}/samples")
def training_samples(name: str, here: Here) -> SamplesOf:
    """What came out for the same examples at every validation."""
    return samples(here.shelf.log(name))


@router.post("/{name}/film")
async def training_film(name: str, ask: FilmAsk, here: Here) -> Film:
    """A view, such as one sentence's attention, at the checkpoints that are still there."""
    here.shelf.folder(name)
    check(ask.question)
    if ask.view not in VIEWS:
        raise unknown("view", ask.view, f"there are: {', '.join(VIEWS)}")
    return await here.desk.take(lambda say: here.film(name, ask, say)).result()


@router.get("/{name}/events", response_class=StreamingResponse, responses=TAILED)
async def training_events(
    name: str, here: Here, after: str = "", last_event_id: Annotated[str, Header()] = ""
) -> StreamingResponse:
    """The lines of a log as they are written, from a place (``after`` or ``Last-Event-ID``) on."""
    path = here.shelf.folder(name) / LOG
    try:
        tail = Tail(path, last_event_id or after)
    except ValueError as error:
        raise Refused(422, "bad_request", str(error)) from None
    return StreamingResponse(_told(tail), media_type=EVENTS, headers=HEADERS)


async def _told(tail: Tail) -> AsyncIterator[str]:
    spoke = time.monotonic()
    yield sent(TrainingEvent(event="ping", step=max(0, tail.seen[0])))
    while True:
        for place, line in tail.news():
            spoke = time.monotonic()
            yield sent(event(line), place)
        if time.monotonic() - spoke > PAUSE:
            spoke = time.monotonic()
            yield sent(TrainingEvent(event="ping", step=max(0, tail.seen[0])))
        await asyncio.sleep(LOOKING)


def _training(here: Studio, name: str) -> Training:
    folder, steps = here.shelf.folder(name), None
    with contextlib.suppress(ConfigError):  # its log can be shown all the same
        steps = here.shelf.config(name).train.max_steps
    return training(name, folder, steps, here.shelf.log(name))
