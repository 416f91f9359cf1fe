"""What DeepL's routes share: bodies, codes of languages, translations of their texts.

A route makes a `TranslateBody` of its own fields, and its response of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from foveate.server.bodies import KEY_FIELDS, B, Fields, authenticate, validated
from foveate.server.common import RequestError
from foveate.server.languages import Detected
from foveate.server.translation import AUTO, Client, Service, join, start
from foveate.server.translation_schemas import TranslateBody


class DeeplFields(BaseModel):
    """A body as DeepL's clients send it; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
    names: ClassVar[Mapping[str, str]]
    """What DeepL calls ``q``, ``source`` and ``target``."""


class TextTranslation(NamedTuple):
    """A text of a request, its translation, and the language that it is in."""

    source: str
    text: str
    language: Detected


def served_code(code: str, codes: Iterable[str]) -> str:
    """The code as this server has it: in its letters, else the language without its region."""
    by_letters = {own.lower().replace("_", "-"): own for own in codes}
    name = code.lower().replace("_", "-")
    return by_letters.get(name) or by_letters.get(name.partition("-")[0], code)


def all_codes(service: Service) -> list[str]:
    """The codes of all languages that the server translates from or into."""
    table = service.pool.table()
    return list(dict.fromkeys([*table, *(code for codes in table.values() for code in codes)]))


async def translated(
    request: Request,
    service: Service,
    client: Client,
    body: DeeplFields,
    texts: Sequence[str],
    source: str,
    target: str,
    **options: object,
) -> list[TextTranslation]:
    """The translations of texts of a request; ``options`` are fields of `TranslateBody`.

    Raises `RequestError` that calls the fields as the service does, also without a text.
    """
    names, codes = body.names, all_codes(service)
    if not any(text.strip() for text in texts):
        raise RequestError(400, f"{names['q']}: no text to translate")
    own = served_code(source, codes) if source and source.lower() != AUTO else AUTO
    fields: Fields = {"q": list(texts), "source": own, "target": served_code(target, codes)}
    try:
        plain = validated(TranslateBody, fields | options)
        return await service.for_client(request, _translations(service, plain, texts, client))
    except RequestError as error:
        field, colon, rest = error.message.partition(": ")
        message = f"{names.get(field, field)}{colon}{rest}"
        raise RequestError(error.status, message, error.retry_after) from None


async def _translations(
    service: Service, body: TranslateBody, texts: Sequence[str], client: Client
) -> list[TextTranslation]:
    pending = await start(service, texts, body, client)
    done = await join(service, pending, client)
    return [
        TextTranslation(
            text,
            translation.versions[0],
            part.route.detected or Detected(body.source, 100.0),
        )
        for text, part, translation in zip(texts, pending, done, strict=True)
    ]


async def authenticated_body(request: Request, kind: type[B]) -> tuple[Service, B, Client]:
    """The service, the body of a request without the fields that hold its key, and its client.

    Raises `RequestError` as `authenticate` and `validated` do.
    """
    service, fields, client = await authenticate(request)
    own = {name: value for name, value in fields.items() if name not in KEY_FIELDS}
    return service, validated(kind, own), client
