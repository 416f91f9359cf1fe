"""The routes of LibreTranslate, as its clients know them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from foveate.documents.documents import ENDINGS
from foveate.serve.asking import DetectBody, TranslateBody, parsed
from foveate.serve.errors import Refused
from foveate.serve.languages import name_of
from foveate.serve.openapi import ERRORS, body_of
from foveate.serve.service import Here
from foveate.serve.translating import Visitor, check_size, translate

router = APIRouter(responses=ERRORS)
SHOWN = 5  # languages that /detect names at most
LEAST = 1.0  # per cent that a language is named from


class Language(BaseModel):
    """A language and what it can be translated to."""

    code: str
    name: str
    targets: list[str]


class DetectedLanguage(BaseModel):
    """A language and its probability in per cent."""

    confidence: float
    language: str


class Translated(BaseModel):
    """Texts for texts, a list for a list; ``cut`` counts tokens of sentences that were too long."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    cut: int | None = None


class Status(BaseModel):
    """How it is."""

    status: str


@router.post(
    "/translate",
    response_model=Translated,
    openapi_extra=body_of(TranslateBody),
    tags=["translate"],
)
async def translate_texts(request: Request, here: Here) -> Response:
    """Translate a text or several, plain or HTML."""
    visit = await here.door.admit(request)
    who = Visitor(visit.client, request.state.record)
    work = translate(here, parsed(TranslateBody, visit.fields), who)
    return JSONResponse(await here.for_client(request, work))


@router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    openapi_extra=body_of(DetectBody),
    tags=["translate"],
)
async def detect(request: Request, here: Here) -> Response:
    """Tell the language of a text; the most probable first."""
    visit = await here.door.admit(request)
    ask = parsed(DetectBody, visit.fields)
    check_size(here, [ask.q], Visitor(visit.client, request.state.record))
    ranked = await here.aside(lambda: here.detector.rank(ask.q))
    shown = [one for one in ranked[:SHOWN] if one.confidence >= LEAST]
    found = shown or [here.detector.best("", list(here.fleet.table()))]
    return JSONResponse([one.tree() for one in found])


@router.get("/languages", tags=["about"])
async def languages(here: Here) -> list[Language]:
    """All languages that can be translated from, and to which."""
    table = here.fleet.table()
    return [
        Language(code=code, name=name_of(code), targets=targets)
        for code, targets in sorted(table.items())
    ]


@router.get("/frontend/settings", tags=["about"])
async def settings(here: Here) -> dict[str, Any]:
    """What pages and clients want to know."""
    table, limits = here.fleet.table(), here.limits
    source = next(iter(table))
    target = table[source][0]
    named = {"source": source, "target": target}
    return {
        "apiKeys": here.door.keys is not None,
        "charLimit": limits.characters,
        "batchLimit": limits.items,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": here.door.keys is not None,
        "language": {side: {"code": c, "name": name_of(c)} for side, c in named.items()},
        "suggestions": False,
        "supportedFilesFormat": list(ENDINGS),
    }


@router.get("/health", tags=["about"])
async def health() -> Status:
    """The process lives."""
    return Status(status="ok")


@router.get("/ready", response_model=Status, tags=["about"])
async def ready(here: Here) -> Response:
    """Whether requests are taken."""
    if here.closing:
        raise Refused(503, "the server is about to end", 1)
    return JSONResponse({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus"}},
    tags=["about"],
)
async def metrics(request: Request, here: Here) -> Response:
    """Figures for Prometheus; where keys are asked for, with one as bearer."""
    if here.door.keys is not None:
        here.door.client(request)
    return Response(here.metrics.text(), media_type=CONTENT_TYPE_LATEST)
