"""DeepL's routes for texts, languages and usage."""

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from foveate.documents.languages import name_of
from foveate.serve.bodies import FORM, JSON, Fields, authenticate, body_of, request_body, validated
from foveate.serve.common import JsonObject, RequestError
from foveate.serve.deepl_glossaries import DeeplFields, all_codes, served_code, terms
from foveate.serve.deepl_glossaries import router as glossaries
from foveate.serve.translation import AUTO, Client, Service, join, start
from foveate.serve.translation_schemas import TranslateBody

UNLIMITED = 1_000_000_000_000  # characters; DeepL's value for “unlimited”
REGIONS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}  # which its client expects
PREFIXES = ("/v2/", "/v3/")
NAMES = {"q": "text", "source": "source_lang", "target": "target_lang"}  # DeepL's names of fields
router = APIRouter(tags=["DeepL"])


class DeeplBody(DeeplFields):
    """Texts as DeepL's clients send them.

    ``context``, ``split_sentences``, ``preserve_formatting``, ``model_type`` and what asks for tags
    in another version change nothing: sentences are translated one by one.
    """

    text: str | list[str]
    target_lang: str
    source_lang: str = Field("", description="absent: detected")
    glossary_id: str = Field("", description="of /v2/glossaries")
    tag_handling: Literal["", "html"] = ""
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    context: str = ""
    split_sentences: str | int | bool = "1"
    preserve_formatting: str | int | bool = False
    show_billed_characters: str | int | bool = False
    model_type: str = ""
    tag_handling_version: str = ""


@router.post("/v2/translate", openapi_extra=body_of(DeeplBody, JSON, FORM))
async def deepl_translate(request: Request) -> Response:
    """Translate texts; what is refused is named as DeepL calls it."""
    service, body, client = await request_body(request, DeeplBody)
    texts = [body.text] if isinstance(body.text, str) else body.text
    source, target, codes = body.source_lang, body.target_lang, all_codes(service)
    fields: Fields = {
        "q": texts,
        "source": AUTO if source.lower() in ("", AUTO) else served_code(source, codes),
        "target": served_code(target, codes),
        "format": "html" if body.tag_handling else "text",
    }
    if body.glossary_id:
        fields["glossary"] = terms(service, client, body.glossary_id, source, target)
    if not any(text.strip() for text in texts):
        raise RequestError(400, "text: no text to translate")
    try:
        work = _translations(service, validated(TranslateBody, fields), texts, client)
        translations = await service.for_client(request, work)
    except RequestError as error:
        field, colon, rest = error.message.partition(": ")
        message = f"{NAMES.get(field, field)}{colon}{rest}"
        raise RequestError(error.status, message, error.retry_after) from None
    used: JsonObject = {"model_type_used": "quality_optimized"} if body.model_type else {}
    return JSONResponse({"translations": [translation | used for translation in translations]})


async def _translations(
    service: Service, body: TranslateBody, texts: Sequence[str], client: Client
) -> list[JsonObject]:
    """Return each text's translation, and the language of the text."""
    pending = await start(service, texts, body, client)
    await join(service, pending, client)
    return [
        {
            "detected_source_language": text.route.direction.source.upper(),
            "text": text.versions[0],
            "billed_characters": len(text.text),
        }
        for text in pending
    ]


@router.get("/v2/languages")
@router.post("/v2/languages", include_in_schema=False)
async def deepl_languages(request: Request) -> Response:
    """Languages that are translated from, or with type=target into."""
    service, fields, _ = await authenticate(request)
    kind = str(fields.get("type", "source"))
    if kind not in ("source", "target"):
        raise RequestError(400, f"type: {kind} is neither source nor target")
    into = service.pool.targets()
    codes = list(service.pool.table())
    if kind == "target":
        codes = [code for code in all_codes(service) if code in into]
    listed: list[JsonObject] = []
    for code in codes:
        own = code.upper()
        for each in REGIONS.get(own, (own,)) if kind == "target" else (own,):
            language: JsonObject = {"language": each, "name": name_of(code)}
            listed.append(language | ({"supports_formality": False} if kind == "target" else {}))
    return JSONResponse(listed)


@router.get("/v2/usage")
@router.post("/v2/usage", include_in_schema=False)
async def deepl_usage(request: Request) -> Response:
    """Characters since the server started, of this key where keys are asked for."""
    service, _, client = await authenticate(request)
    return JSONResponse(
        {"character_count": service.usage[client.owner], "character_limit": UNLIMITED}
    )


router.include_router(glossaries)
