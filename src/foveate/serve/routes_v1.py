"""What LibreTranslate does not have: scores, alignments, translations as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

from foveate.answers import PairScore
from foveate.serve.asking import PairsBody, StreamBody, parsed
from foveate.serve.batcher import Kind
from foveate.serve.errors import Refused, refusal_of
from foveate.serve.kinds import Align, Links, Score
from foveate.serve.openapi import ERRORS, body_of
from foveate.serve.service import Here, Service
from foveate.serve.translating import (
    AUTO,
    Underway,
    Visitor,
    check_size,
    find_ways,
    joined,
    sentences,
    stream,
)

router = APIRouter(prefix="/v1", responses=ERRORS, tags=["v1"])
EVENTS = "text/event-stream"
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "events: sentence, done, error", "content": {EVENTS: {}}}
}
QUIET = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Scored(BaseModel):
    """log p(t | q), and that of each token of t, its end included."""

    logProbability: float
    tokens: list[str]
    tokenLogProbabilities: list[float]


class Aligned(BaseModel):
    """Links between words (place in q, place in t), counted from 0."""

    links: list[tuple[int, int]]


@router.post("/score", response_model=list[Scored], openapi_extra=body_of(PairsBody))
async def score(request: Request, here: Here) -> Response:
    """Score translations of texts."""
    found: list[PairScore] = await _of_pairs(request, here, Score)
    return JSONResponse(
        [
            {
                "logProbability": one.log_probability,
                "tokens": one.tokens,
                "tokenLogProbabilities": one.token_log_probabilities,
            }
            for one in found
        ]
    )


@router.post("/align", response_model=list[Aligned], openapi_extra=body_of(PairsBody))
async def align(request: Request, here: Here) -> Response:
    """Link the words of texts and their translations."""
    found: list[Links] = await _of_pairs(request, here, Align)
    return JSONResponse([{"links": links} for links in found])


async def _of_pairs(request: Request, here: Service, kind: type[Score] | type[Align]) -> list[Any]:
    visit = await here.door.admit(request)
    ask = parsed(PairsBody, visit.fields)
    sources = [ask.q] if isinstance(ask.q, str) else ask.q
    targets = [ask.t] if isinstance(ask.t, str) else ask.t
    if len(sources) != len(targets):
        raise Refused(400, f"{len(sources)} texts in q but {len(targets)} in t")
    if any("\n" in text or "\r" in text for text in [*sources, *targets]):
        raise Refused(400, "q and t are single lines; send lists of them")
    if AUTO in (ask.source, ask.target) or ask.source == ask.target:
        raise Refused(400, "source and target: name two languages")
    who = Visitor(visit.client, request.state.record)
    check_size(here, [*sources, *targets], who)
    [way] = await find_ways(here, ask.source, ask.target, [""])
    assert way.place is not None
    wanted: Kind = kind(way.direction.to)
    pairs = list(zip(sources, targets, strict=True))
    return await here.for_client(request, here.ask(way.place, who.client, wanted, pairs).all())


@router.post(
    "/stream",
    response_class=StreamingResponse,
    responses=STREAMED,
    openapi_extra=body_of(StreamBody),
)
async def translate_stream(request: Request, here: Here) -> Response:
    """Translate a text sentence by sentence: server-sent events, ``done`` with the whole."""
    visit = await here.door.admit(request)
    who = Visitor(visit.client, request.state.record)
    ask = parsed(StreamBody, visit.fields)
    one = await stream(here, ask, who)
    return StreamingResponse(_events(here, one, who, ask.q), media_type=EVENTS, headers=QUIET)


async def _events(here: Service, one: Underway, who: Visitor, text: str) -> AsyncIterator[str]:
    until = asyncio.get_running_loop().time() + here.limits.seconds
    try:
        async for sentence in sentences(one, until):
            yield _event("sentence", sentence)
        async with asyncio.timeout_at(until):
            [found] = await joined(here, [one], who)
        tree: dict[str, Any] = {"translatedText": (found.versions or [text])[0]}
        tree |= {"cut": found.cut} if found.cut else {}
        detected = one.way.detected
        tree |= {"detectedLanguage": detected.tree()} if detected else {}
        yield _event("done", tree)
    except Exception as error:
        yield _event("error", refusal_of(error).body)
    finally:
        one.futures.cancel()


def _event(name: str, tree: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(tree, ensure_ascii=False)}\n\n"
