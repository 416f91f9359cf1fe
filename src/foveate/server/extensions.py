"""The routes of browser extensions: Immersive Translate's custom API, and Kiss Translator's."""

from __future__ import annotations

from typing import ClassVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from foveate.server.bodies import JSON, body_of
from foveate.server.common import JsonObject, RequestError
from foveate.server.dialects import Dialect, DialectBody, authenticated_body, translated

router = APIRouter(tags=["extensions"])


class ImmersiveBody(DialectBody):
    """Texts as Immersive Translate sends them to a custom API."""

    names: ClassVar = {"q": "text_list", "source": "source_lang", "target": "target_lang"}

    text_list: list[str]
    target_lang: str
    source_lang: str = "auto"


class KissBody(DialectBody):
    """A text, or texts, as Kiss Translator sends them to a custom API."""

    names: ClassVar = {"q": "texts", "source": "from", "target": "to"}

    texts: list[str] = Field([], description="or text")
    text: str = ""
    source: str = Field("auto", alias="from")
    to: str


@router.post("/imme", openapi_extra=body_of(ImmersiveBody, JSON))
async def immersive_translate(request: Request) -> Response:
    """Translate texts for Immersive Translate."""
    service, body, client = await authenticated_body(request, ImmersiveBody)
    answers = await translated(
        request, service, client, body, body.text_list, body.source_lang, body.target_lang
    )
    translations: list[JsonObject] = [
        {"detected_source_lang": answer.language.language, "text": answer.text}
        for answer in answers
    ]
    return JSONResponse({"translations": translations})


@router.post("/kiss", openapi_extra=body_of(KissBody, JSON))
async def kiss_translate(request: Request) -> Response:
    """Translate a text, or several, for Kiss Translator."""
    service, body, client = await authenticated_body(request, KissBody)
    texts = body.texts or [body.text]
    answers = await translated(request, service, client, body, texts, body.source, body.to)
    translations: list[JsonObject] = [
        {"text": answer.text, "src": answer.language.language} for answer in answers
    ]
    return JSONResponse({"translations": translations} if body.texts else translations[0])


def error_body(error: RequestError) -> JsonObject:
    """An error as both show it."""
    return {"error": error.message}


DIALECT = Dialect(("/imme", "/kiss"), router, error_body)
