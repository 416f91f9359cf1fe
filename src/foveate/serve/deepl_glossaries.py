"""DeepL's routes for glossaries: those of one language pair (v2), and of several (v3)."""

import asyncio
import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from foveate.config import ConfigError
from foveate.documents.formats import rows_of
from foveate.documents.memory import TermEntry, terms_of
from foveate.serve.bodies import JSON, authenticate, body_of, request_body
from foveate.serve.common import JsonObject, RequestError
from foveate.serve.glossary_store import Entries, StoredGlossary
from foveate.serve.translation import Client, Service

TSV = "text/tab-separated-values"
router = APIRouter(tags=["DeepL"])


class DeeplFields(BaseModel):
    """A body as DeepL's clients send it; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class DictionaryBody(DeeplFields):
    """Entries of a pair of languages: a term, a tab or comma, and its translation a line."""

    source_lang: str
    target_lang: str
    entries: str
    entries_format: Literal["tsv", "csv"] = "tsv"


class GlossaryBody(DictionaryBody):
    """A new glossary of one pair of languages."""

    name: str = Field(min_length=1, max_length=1024)


class GlossariesBody(DeeplFields):
    """A new glossary of several pairs, or what changes in one."""

    name: str = Field("", max_length=1024)
    dictionaries: list[DictionaryBody] = Field([])


def served_code(code: str, codes: Iterable[str]) -> str:
    """Return the server's form of a code: with its case, else the language without its region."""
    by_letters = {own.lower().replace("_", "-"): own for own in codes}
    name = code.lower().replace("_", "-")
    return by_letters.get(name) or by_letters.get(name.partition("-")[0], code)


def all_codes(service: Service) -> list[str]:
    """Return the codes of all languages that the server translates from or into."""
    return list(dict.fromkeys([*service.pool.table(), *service.pool.targets()]))


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
    return service.glossaries.get(id, client.owner).entries(pair_of(service, source, target))


async def _entries(service: Service, body: DictionaryBody) -> Entries:
    """Return the entries of a dictionary. Raises `RequestError` (400) with the line."""
    return await service.computed(lambda: _read(service, body), len(body.entries))


def _read(service: Service, body: DictionaryBody) -> Entries:
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


def _rows(body: DictionaryBody) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the non-empty lines with their numbers."""
    lines = [row for row, _ in rows_of(body.entries)]
    split = csv.reader(lines) if body.entries_format == "csv" else (x.split("\t") for x in lines)
    try:
        yield from ((number, row) for number, row in enumerate(split, start=1) if any(row))
    except csv.Error as error:
        raise RequestError(400, f"entries: {error}") from None


def _written(entries: Entries) -> str:
    return "\n".join(f"{term}\t{translation}" for term, translation in entries.items())


def _languages(pair: str) -> dict[str, str]:
    source, _, target = pair.partition(":")
    return {"source_lang": source, "target_lang": target}


def _dictionary_info(glossary: StoredGlossary, pair: str) -> JsonObject:
    return {**_languages(pair), "entry_count": len(glossary.dictionaries[pair])}


def _info(glossary: StoredGlossary) -> JsonObject:
    """Return a glossary of several pairs in v3's form."""
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "creation_time": glossary.created,
        "dictionaries": [_dictionary_info(glossary, pair) for pair in glossary.dictionaries],
    }


def _single_info(glossary: StoredGlossary) -> JsonObject:
    """Return a glossary of one pair in v2's form. Raises `RequestError` (404) for several pairs."""
    if len(glossary.dictionaries) != 1:
        raise RequestError(404, "the glossary has several dictionaries: use /v3/glossaries")
    [pair] = glossary.dictionaries
    own = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": glossary.created}
    return {**own, "ready": True, **_dictionary_info(glossary, pair)}


@router.get("/v2/glossary-language-pairs")
async def glossary_pairs(request: Request) -> Response:
    """The pairs of languages that glossaries can have: all that are translated."""
    service, _, _ = await authenticate(request)
    pairs = [_languages(direction.code) for _, direction in service.pool.directions()]
    return JSONResponse({"supported_languages": pairs})


@router.post("/v2/glossaries", status_code=201, openapi_extra=body_of(GlossaryBody, JSON))
async def create_glossary(request: Request) -> Response:
    """Store a glossary of one pair of languages."""
    service, body, client = await request_body(request, GlossaryBody)
    own = {pair_of(service, body.source_lang, body.target_lang): await _entries(service, body)}
    glossary = await asyncio.to_thread(service.glossaries.new, body.name, client.owner, own)
    return JSONResponse(_single_info(glossary), 201)


@router.get("/v2/glossaries")
async def list_glossaries(request: Request) -> Response:
    """The client's glossaries of one pair of languages."""
    service, _, client = await authenticate(request)
    own = service.glossaries.of(client.owner)
    single = [_single_info(glossary) for glossary in own if len(glossary.dictionaries) == 1]
    return JSONResponse({"glossaries": single})


@router.get("/v2/glossaries/{id}")
async def get_glossary(id: str, request: Request) -> Response:
    """A glossary without its entries."""
    service, _, client = await authenticate(request)
    return JSONResponse(_single_info(service.glossaries.get(id, client.owner)))


@router.get("/v2/glossaries/{id}/entries", response_class=Response)
async def get_entries(id: str, request: Request) -> Response:
    """The entries of a glossary of one pair of languages, with tabs."""
    service, _, client = await authenticate(request)
    glossary = service.glossaries.get(id, client.owner)
    _single_info(glossary)
    [entries] = glossary.dictionaries.values()
    return Response(_written(entries), media_type=TSV)


@router.delete("/v2/glossaries/{id}", status_code=204)
@router.delete("/v3/glossaries/{id}", status_code=204, name="delete_any_glossary")
async def delete_glossary(id: str, request: Request) -> Response:
    """Delete a glossary."""
    service, _, client = await authenticate(request)
    await asyncio.to_thread(service.glossaries.delete, id, client.owner)
    return Response(status_code=204)


@router.post("/v3/glossaries", status_code=201, openapi_extra=body_of(GlossariesBody, JSON))
async def create_glossaries(request: Request) -> Response:
    """Store a glossary of several pairs of languages."""
    service, body, client = await request_body(request, GlossariesBody)
    if not body.name or not body.dictionaries:
        raise RequestError(400, "a glossary needs a name and dictionaries")
    own = await _dictionaries(service, body)
    glossary = await asyncio.to_thread(service.glossaries.new, body.name, client.owner, own)
    return JSONResponse(_info(glossary), 201)


async def _dictionaries(service: Service, body: GlossariesBody) -> dict[str, Entries]:
    """Return the dictionaries in a body. Raises `RequestError` (400) for two of one pair."""
    result: dict[str, Entries] = {}
    for dictionary in body.dictionaries:
        pair = pair_of(service, dictionary.source_lang, dictionary.target_lang)
        if pair in result:
            raise RequestError(400, f"dictionaries: {pair} occurs twice")
        result[pair] = await _entries(service, dictionary)
    return result


@router.get("/v3/glossaries")
async def list_all_glossaries(request: Request) -> Response:
    """The client's glossaries."""
    service, _, client = await authenticate(request)
    return JSONResponse({"glossaries": list(map(_info, service.glossaries.of(client.owner)))})


@router.get("/v3/glossaries/{id}")
async def get_any_glossary(id: str, request: Request) -> Response:
    """A glossary with the sizes of its dictionaries."""
    service, _, client = await authenticate(request)
    return JSONResponse(_info(service.glossaries.get(id, client.owner)))


@router.get("/v3/glossaries/{id}/entries")
async def get_dictionary(id: str, request: Request) -> Response:
    """The entries of a pair of languages."""
    service, fields, client = await authenticate(request)
    pair = _pair(service, fields)
    entries = service.glossaries.get(id, client.owner).entries(pair)
    own: JsonObject = {**_languages(pair), "entries": _written(entries), "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [own]})


def _pair(service: Service, fields: dict[str, object]) -> str:
    return pair_of(service, str(fields.get("source_lang", "")), str(fields.get("target_lang", "")))


@router.patch("/v3/glossaries/{id}", openapi_extra=body_of(GlossariesBody, JSON))
async def change_glossary(id: str, request: Request) -> Response:
    """Rename a glossary, or add entries to its dictionaries."""
    service, body, client = await request_body(request, GlossariesBody)
    own = await _dictionaries(service, body)

    def added(glossary: StoredGlossary) -> StoredGlossary:
        changed = dict(glossary.dictionaries)
        for pair, entries in own.items():
            changed[pair] = {**changed.get(pair, {}), **entries}
            if len(changed[pair]) > service.limits.entries:
                message = f"entries: {len(changed[pair]):,}; at most {service.limits.entries:,}"
                raise RequestError(413, message)
        return glossary.having(changed, body.name)

    glossary = await asyncio.to_thread(service.glossaries.change, id, client.owner, added)
    return JSONResponse(_info(glossary))


@router.put("/v3/glossaries/{id}/dictionaries", openapi_extra=body_of(DictionaryBody, JSON))
async def replace_dictionary(id: str, request: Request) -> Response:
    """Put a dictionary in place of that of the same pair, if there is one."""
    service, body, client = await request_body(request, DictionaryBody)
    pair = pair_of(service, body.source_lang, body.target_lang)
    own = {pair: await _entries(service, body)}
    put = lambda glossary: glossary.having({**glossary.dictionaries, **own})  # noqa: E731
    glossary = await asyncio.to_thread(service.glossaries.change, id, client.owner, put)
    return JSONResponse(_dictionary_info(glossary, pair))


@router.delete("/v3/glossaries/{id}/dictionaries", status_code=204)
async def delete_dictionary(id: str, request: Request) -> Response:
    """Delete the dictionary of a pair of languages."""
    service, fields, client = await authenticate(request)
    pair = _pair(service, fields)

    def without(glossary: StoredGlossary) -> StoredGlossary:
        glossary.entries(pair)
        dictionaries = glossary.dictionaries.items()
        return glossary.having({each: own for each, own in dictionaries if each != pair})

    await asyncio.to_thread(service.glossaries.change, id, client.owner, without)
    return Response(status_code=204)
