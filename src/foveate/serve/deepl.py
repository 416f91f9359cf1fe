"""DeepL's routes for texts, languages, usage, and glossaries of one language pair each (v2)."""

import asyncio
import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from foveate.config import ConfigError
from foveate.documents.languages import name_of
from foveate.documents.memory import TermEntry, terms_of
from foveate.files import split_lines
from foveate.serve.bodies import FORM, JSON, Fields, authenticate, body_of, request_body, validated
from foveate.serve.common import JsonObject, RequestError
from foveate.serve.glossary_store import Entries, StoredGlossary
from foveate.serve.translation import AUTO, Client, Service, join, start
from foveate.serve.translation_schemas import TranslateBody

TSV = "text/tab-separated-values"
UNLIMITED = 1_000_000_000_000  # characters; DeepL's value for “unlimited”
REGIONS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}  # which its client expects
PREFIXES = ("/v2/", "/v3/")
NAMES = {"q": "text", "source": "source_lang", "target": "target_lang"}  # DeepL's names of fields
router = APIRouter(tags=["DeepL"])


class DeeplFields(BaseModel):
    """A body as DeepL's clients send it; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


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


def served_code(code: str, codes: Iterable[str]) -> str:
    """Return the server's form of a code: with its case, else the language without its region."""
    by_letters = {own.lower().replace("_", "-"): own for own in codes}
    name = code.lower().replace("_", "-")
    return by_letters.get(name) or by_letters.get(name.partition("-")[0], code)


def all_codes(service: Service) -> list[str]:
    """Return the codes of all languages that the server translates from or into."""
    return list(dict.fromkeys([*service.pool.table(), *service.pool.targets()]))


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


class GlossaryBody(DeeplFields):
    """A new glossary of a pair of languages: a term, a tab or comma, its translation on a line."""

    name: str = Field(min_length=1, max_length=1024)
    source_lang: str
    target_lang: str
    entries: str
    entries_format: Literal["tsv", "csv"] = "tsv"


def pair_of(service: Service, source: str, target: str) -> str:
    """Return a language pair's dictionary name. Raises `RequestError` (400) for unknown pairs."""
    codes = all_codes(service)
    own = served_code(source, codes), served_code(target, codes)
    if service.pool.find(*own) is None:
        known = ", ".join(direction.code for _, direction in service.pool.directions())
        message = f"source_lang, target_lang: no model translates {source} to {target}"
        raise RequestError(400, f"{message}; there are: {known}")
    return ":".join(own)


def terms(service: Service, client: Client, id: str, source: str, target: str) -> Entries:
    """Return the entries of a glossary for a translation. Raises `RequestError` (400, 404)."""
    if not source:
        raise RequestError(400, "source_lang is required with a glossary")
    own = service.glossaries.get(id, client.owner)
    if (pair := pair_of(service, source, target)) != own.pair:
        raise RequestError(404, f"the glossary is for {own.pair}, not for {pair}")
    return own.entries


def _read(service: Service, body: GlossaryBody) -> Entries:
    rows = list(islice(_rows(body), service.limits.entries + 1))
    if len(rows) > service.limits.entries:
        raise RequestError(413, f"entries: at most {service.limits.entries:,}")
    for number, row in rows:
        if len(row) < 2:
            raise RequestError(
                400, f"entries:{number} has no translation: write TERM, a tab and TRANSLATION"
            )
    places = [TermEntry(f"entries:{number}", row[0], row[1:2]) for number, row in rows]
    try:
        terms_of(places)
    except ConfigError as error:
        raise RequestError(
            400, str(error).partition("; write")[0].partition(": write")[0]
        ) from None
    if not rows:
        raise RequestError(400, "entries is empty: write TERM, a tab and TRANSLATION on each line")
    return {term.strip(): variants[0].strip() for _, term, variants in places}


def _rows(body: GlossaryBody) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the non-empty lines with their numbers."""
    lines = split_lines(body.entries)
    split = csv.reader(lines) if body.entries_format == "csv" else (x.split("\t") for x in lines)
    try:
        yield from ((number, row) for number, row in enumerate(split, start=1) if any(row))
    except csv.Error as error:
        raise RequestError(400, f"entries: {error}") from None


def _languages(pair: str) -> dict[str, str]:
    source, _, target = pair.partition(":")
    return {"source_lang": source, "target_lang": target}


def _info(glossary: StoredGlossary) -> JsonObject:
    """Return a glossary without its entries."""
    own = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": glossary.created}
    return {**own, "ready": True, **_languages(glossary.pair), "entry_count": len(glossary.entries)}


@router.get("/v2/glossary-language-pairs")
async def glossary_pairs(request: Request) -> Response:
    """The pairs of languages that glossaries can have: all that are translated."""
    service, _, _ = await authenticate(request)
    pairs = [_languages(direction.code) for _, direction in service.pool.directions()]
    return JSONResponse({"supported_languages": pairs})


@router.post("/v2/glossaries", status_code=201, openapi_extra=body_of(GlossaryBody, JSON))
async def create_glossary(request: Request) -> Response:
    """Store a glossary."""
    service, body, client = await request_body(request, GlossaryBody)
    pair = pair_of(service, body.source_lang, body.target_lang)
    entries = await service.computed(lambda: _read(service, body), len(body.entries))
    own = body.name, client.owner, pair, entries
    return JSONResponse(_info(await asyncio.to_thread(service.glossaries.new, *own)), 201)


@router.get("/v2/glossaries")
async def list_glossaries(request: Request) -> Response:
    """The client's glossaries."""
    service, _, client = await authenticate(request)
    return JSONResponse({"glossaries": list(map(_info, service.glossaries.of(client.owner)))})


@router.get("/v2/glossaries/{id}")
async def get_glossary(id: str, request: Request) -> Response:
    """A glossary without its entries."""
    service, _, client = await authenticate(request)
    return JSONResponse(_info(service.glossaries.get(id, client.owner)))


@router.get("/v2/glossaries/{id}/entries", response_class=Response)
async def get_entries(id: str, request: Request) -> Response:
    """The entries of a glossary, with tabs."""
    service, _, client = await authenticate(request)
    entries = service.glossaries.get(id, client.owner).entries
    lines = (f"{term}\t{translation}" for term, translation in entries.items())
    return Response("\n".join(lines), media_type=TSV)


@router.delete("/v2/glossaries/{id}", status_code=204)
async def delete_glossary(id: str, request: Request) -> Response:
    """Delete a glossary."""
    service, _, client = await authenticate(request)
    await asyncio.to_thread(service.glossaries.delete, id, client.owner)
    return Response(status_code=204)
