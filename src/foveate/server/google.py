"""Google's routes: the Translation API v2, and ``translate_a/single``, which googletrans asks."""

from __future__ import annotations

from typing import ClassVar, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from foveate.server.bodies import FORM, JSON, body_of
from foveate.server.common import JsonObject, JsonValue, RequestError
from foveate.server.dialects import Dialect, DialectBody, all_codes, authenticated_body, translated
from foveate.server.languages import name_of
from foveate.server.translation import check_size

PATH = "/language/translate/v2"
REASONS = {400: "invalid", 403: "forbidden", 404: "notFound", 429: "rateLimitExceeded"}
STATES = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
}
router = APIRouter(tags=["Google"])


class GoogleFields(DialectBody):
    """What each route of the API takes; it changes nothing."""

    names: ClassVar = {"q": "q", "source": "source", "target": "target"}

    model: str = ""
    alt: Literal["json"] = "json"
    prettyPrint: str | bool = False
    quotaUser: str = ""


class GoogleBody(GoogleFields):
    """Texts as clients of the Translation API v2 send them."""

    q: str | list[str]
    target: str
    source: str = Field("", description="absent: detected")
    format: Literal["text", "html"] = "html"


class GoogleDetectBody(GoogleFields):
    """Texts whose language is detected."""

    q: str | list[str]


class GoogleLanguagesBody(GoogleFields):
    """The language in which names are written: English, whatever is asked for."""

    target: str = ""


class SingleBody(DialectBody):
    """A text as Google's page and googletrans send it; other fields than these change nothing."""

    names: ClassVar = {"q": "q", "source": "sl", "target": "tl"}

    q: str
    sl: str = "auto"
    tl: str
    dj: int = Field(0, ge=0, le=1, description="1: an object in place of an array")
    client: str = ""
    hl: str = ""
    dt: str | list[str] = ""
    ie: str = ""
    oe: str = ""
    otf: str = ""
    ssel: str = ""
    tsel: str = ""
    kc: str = ""
    tk: str = ""
    source: str = ""


@router.post(PATH, openapi_extra=body_of(GoogleBody, JSON, FORM))
@router.get(PATH, include_in_schema=False)
async def google_translate(request: Request) -> Response:
    """Translate texts; without a format they are HTML."""
    service, body, client = await authenticated_body(request, GoogleBody)
    texts = [body.q] if isinstance(body.q, str) else body.q
    answers = await translated(
        request, service, client, body, texts, body.source, body.target, format=body.format
    )
    translations: list[JsonObject] = [{"translatedText": answer.text} for answer in answers]
    if not body.source:
        for translation, answer in zip(translations, answers, strict=True):
            translation["detectedSourceLanguage"] = answer.language.language
    return JSONResponse({"data": {"translations": translations}})


@router.post(f"{PATH}/detect")
@router.get(f"{PATH}/detect", include_in_schema=False)
async def google_detect(request: Request) -> Response:
    """The most probable language of each text."""
    service, body, client = await authenticated_body(request, GoogleDetectBody)
    texts = [body.q] if isinstance(body.q, str) else body.q
    check_size(service, texts, client, service.limits.characters, service.limits.items)
    among = all_codes(service)
    best = await service.in_thread(lambda: [service.detector.best(text, among) for text in texts])
    detections: list[list[JsonObject]] = [
        [{"language": code, "confidence": round(percent / 100, 4), "isReliable": False}]
        for code, percent in best
    ]
    return JSONResponse({"data": {"detections": detections}})


@router.get(f"{PATH}/languages")
@router.post(f"{PATH}/languages", include_in_schema=False)
async def google_languages(request: Request) -> Response:
    """The languages of this server; with a target they have names, in English."""
    service, body, _ = await authenticated_body(request, GoogleLanguagesBody)
    languages: list[JsonObject] = [{"language": code} for code in all_codes(service)]
    if body.target:
        for language in languages:
            language["name"] = name_of(str(language["language"]))
    return JSONResponse({"data": {"languages": languages}})


@router.post("/translate_a/single", openapi_extra=body_of(SingleBody, FORM))
@router.get("/translate_a/single", include_in_schema=False)
async def google_single(request: Request) -> Response:
    """Translate a text; the response is an array of which the first element has the translation."""
    service, body, client = await authenticated_body(request, SingleBody)
    [answer] = await translated(request, service, client, body, [body.q], body.sl, body.tl)
    code, confidence = answer.language.language, answer.language.confidence / 100
    if body.dj:
        sentence: JsonObject = {"trans": answer.text, "orig": answer.source, "backend": 10}
        return JSONResponse({"sentences": [sentence], "src": code, "confidence": confidence})
    languages: JsonValue = [[code], None, [confidence], [code]]
    segments: JsonValue = [[answer.text, answer.source, None, None, 10]]
    return JSONResponse([segments, None, code, None, None, None, confidence, [], languages])


def error_body(error: RequestError) -> JsonObject:
    """An error as Google writes it."""
    reason = REASONS.get(error.status, "backendError")
    each: JsonObject = {"message": error.message, "domain": "global", "reason": reason}
    return {
        "error": {
            "code": error.status,
            "message": error.message,
            "errors": [each],
            "status": STATES.get(error.status, "UNAVAILABLE"),
        }
    }


DIALECT = Dialect((PATH, "/translate_a/"), router, error_body)
