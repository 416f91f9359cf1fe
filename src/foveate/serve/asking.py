"""What clients may ask: the bodies of requests, and how they are read from JSON and from forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from foveate.serve.errors import Refused

Asked = TypeVar("Asked", bound=BaseModel)
Fields = dict[str, Any]
MOST_FIELDS = 20_000  # of a form


@dataclass(frozen=True)
class Upload:
    """A file that came with a form."""

    name: str
    data: bytes


class Body(BaseModel):
    """A body; unknown fields are left alone, as clients of other servers send some."""

    model_config = ConfigDict(extra="ignore")

    api_key: str = Field("", description="where the server asks for one")


class TranslateBody(Body):
    """Texts to translate; ``source`` "auto" has the language of each told by its text."""

    q: str | list[str] = Field(description="a text, or several")
    source: str = Field(description='a code of /languages, or "auto"')
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="how many other translations of each text")


class DetectBody(Body):
    """A text whose language is asked for."""

    q: str


class StreamBody(Body):
    """A text that is translated sentence by sentence."""

    q: str
    source: str
    target: str
    format: Literal["text", "html"] = "text"


class PairsBody(Body):
    """Texts and their translations, as many of one as of the other."""

    q: str | list[str]
    t: str | list[str] = Field(description="a translation of each text")
    source: str
    target: str


class FileBody(Body):
    """A file to translate: multipart/form-data."""

    file: str = Field(json_schema_extra={"format": "binary"})
    source: str
    target: str


def parsed(kind: type[Asked], fields: Fields) -> Asked:
    """The body of a kind. Raises `Refused` (400) naming the field."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        first = max(found, key=lambda one: len(one["loc"]))  # the innermost tells most
        place = ".".join(str(part) for part in first["loc"] if part not in ("str", "list[str]"))
        missing = first["type"] == "missing"
        message = f"{place} is missing" if missing else f"{place}: {first['msg']}"
        raise Refused(400, f"invalid request: {message}") from None


async def read_fields(request: Request) -> Fields:
    """The fields of a body as JSON, as a form of either encoding, or of the address.

    Raises `Refused` (400) for what is none of these.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        return _listed(request.query_params.multi_items()) | await _form(request)
    body = await request.body()
    if not body.strip():
        return _listed(request.query_params.multi_items())
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "invalid request: the body is no JSON") from None
    if not isinstance(fields, dict):
        raise Refused(400, "invalid request: the body is no JSON object")
    return fields


async def _form(request: Request) -> Fields:
    try:
        form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=64 * 2**20)
    except (HTTPException, MultiPartException, ValueError) as error:
        said = getattr(error, "detail", "") or "it cannot be read"
        raise Refused(400, f"invalid request: the form: {said}") from None
    try:
        return _listed([(name, await _read(value)) for name, value in form.multi_items()])
    finally:
        await form.close()


async def _read(value: str | UploadFile) -> str | Upload:
    return value if isinstance(value, str) else Upload(value.filename or "", await value.read())


def _listed(items: Sequence[tuple[str, str | Upload]]) -> Fields:
    """Fields by name; of q, which may be there several times, all."""
    fields: Fields = dict(items)
    texts = [value for name, value in items if name == "q"]
    return fields | {"q": texts} if len(texts) > 1 else fields
