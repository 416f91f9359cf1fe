"""The routes of runs: what they are, what they answer, how they look inside."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from foveate.look.drawing import ModelDrawing
from foveate.studio import describing, examples, modelling
from foveate.studio.asking import Ask, ViewsAsk
from foveate.studio.errors import ErrorBody, Refused, unknown
from foveate.studio.evaluating import Evaluated
from foveate.studio.place import Here, check, check_length
from foveate.studio.streaming import EVENTS, HEADERS, stream
from foveate.studio.told import (
    Answer,
    BeamStep,
    Drawings,
    Examples,
    Ping,
    RunDetail,
    RunList,
    Start,
    Token,
)
from foveate.views.question import Question
from foveate.views.registry import VIEWS

PAUSE = 15.0  # seconds of silence after which a ping is sent
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (404, 413, 422, 429, 500)
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "all events together, or one by one",
        "content": {EVENTS: {"schema": {"$ref": "#/components/schemas/AnswerEvent"}}},
    }
}
JUDGED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "all together, or as an event after others about how far it is",
        "content": {EVENTS: {"schema": {"$ref": "#/components/schemas/EvaluationEvent"}}},
    }
}
router = APIRouter(prefix="/api/v1", responses=ERRORS)


@router.get("/runs")
def runs(here: Here) -> RunList:
    """All runs, by their configs and logs alone."""
    return describing.run_list(here.shelf)


@router.get("/runs/{run}")
async def run(run: str, here: Here) -> RunDetail:
    """A run with all that it can; it is loaded for it."""
    return await here.desk.do(functools.partial(describing.detail, here.shelf, run))


@router.get("/runs/{run}/examples")
async def run_examples(run: str, here: Here, most: int = 12) -> Examples:
    """Something to try, from the run's own test data."""
    return await here.desk.do(lambda: examples.examples(here.shelf.run(run), min(most, 100)))


@router.post("/runs/{run}/answer", response_model=Answer, responses=STREAMED)
async def answer(run: str, ask: Ask, here: Here, request: Request) -> Any:
    """What a run answers: as events where ``text/event-stream`` is accepted, else all together.

    It stops where the reader leaves.
    """
    check_length(ask.text, ask.beginning)
    here.shelf.folder(run)
    job = here.desk.take(lambda say: here.answer(run, ask, say))
    told = (event async for event in job.events(PAUSE, Ping()) if event is not None)
    if EVENTS in request.headers.get("accept", ""):
        return StreamingResponse(stream(told), media_type=EVENTS, headers=HEADERS)
    return await _together(told, request)


async def _together(told: AsyncIterator[Any], request: Request) -> Answer:
    start, beam, done = None, [], None
    async for event in told:
        if isinstance(event, Start):
            start = event
        elif isinstance(event, BeamStep):
            beam.append(event)
        elif not isinstance(event, Token | Ping):
            done = event
        if await request.is_disconnected():
            raise Refused(499, "left", "nobody listens any more")
    return Answer(start=start, beam=beam, done=done)


@router.get("/runs/{run}/evaluation", response_model=Evaluated, responses=JUDGED)
async def evaluation(
    run: str,
    here: Here,
    request: Request,
    split: Literal["train", "valid", "test"] = "test",
    most: Annotated[int, Query(ge=1, le=5000)] = 200,
) -> Any:
    """Scores of examples from all over a split; kept, so that a second call is for nothing.

    Where ``text/event-stream`` is accepted, it says how far it is.
    """
    here.shelf.folder(run)
    job = here.desk.take(lambda say: here.evaluate(run, split, most, say))
    if EVENTS in request.headers.get("accept", ""):
        told = job.events(PAUSE, Ping())
        return StreamingResponse(stream(told), media_type=EVENTS, headers=HEADERS)
    return await job.result()


@router.get("/runs/{run}/model")
async def model(run: str, here: Here) -> ModelDrawing:
    """The blocks of a run's model."""
    return await here.desk.do(lambda: modelling.drawing(here.shelf.run(run)))


@router.post("/runs/{run}/views/{view}")
async def view(run: str, view: str, question: Question, here: Here) -> Drawings:
    """A view of a run."""
    return await _drawn(here, view, ViewsAsk(runs=[run], question=question))


@router.post("/views/{view}")
async def compare(view: str, ask: ViewsAsk, here: Here) -> Drawings:
    """A view of several runs in one picture, or of one with heads silenced."""
    return await _drawn(here, view, ask)


async def _drawn(here: Here, view: str, ask: ViewsAsk) -> Drawings:
    question = ask.question
    check(question)
    if view not in VIEWS:
        raise unknown("view", view, f"there are: {', '.join(VIEWS)}")
    for name in ask.runs:
        here.shelf.folder(name)
    return await here.desk.do(lambda: here.view(view, ask.runs, question, ask.silenced))


@router.get(
    "/tensors/{tensor}",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "the bytes of an array"},
    },
)
def tensor(tensor: str, here: Here) -> Response:
    """The bytes of an array, gzipped."""
    packed = here.tensors.get(tensor)
    if packed is None:
        raise unknown("tensor", tensor, "draw the view again")
    headers = {"Content-Encoding": "gzip", "Cache-Control": "private, max-age=3600, immutable"}
    return Response(packed, media_type="application/octet-stream", headers=headers)
