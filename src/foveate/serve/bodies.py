"""Requests of the translation API: bodies in any encoding, keys, clients and their rates."""

import asyncio
import hashlib
import ipaddress
import logging
import secrets
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from foveate.config import ConfigError
from foveate.serve.assistance import json_tree
from foveate.serve.common import (
    SCHEMA_REF,
    OpenApi,
    RequestError,
    RequestRecord,
    check_count,
    invalid_field,
)
from foveate.serve.translation import SHORT, Client, Service

B = TypeVar("B", bound=BaseModel)
Fields = dict[str, object]  # of a JSON body
NETWORK_BITS = 64  # of an IPv6 address, used for counting rates
SALT = secrets.token_bytes(16)  # of this process, for the names of clients in logs
SCHEMES = ("bearer", "deepl-auth-key")  # in the header that contains a key
KEY_FIELDS = ("api_key", "auth_key")
NEAR_NAMES = 0.8  # similarity of an unknown field to another that makes it a likely mistake
MOST_FIELDS, MOST_NAMES = 20_000, 100  # in a form, and distinct names in a body
LONGEST_NAME = 40  # characters of an unknown field that may be a mistake
REPEATED = frozenset(("q", "protect", "ban", "text"))  # fields that may be repeated
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
log = logging.getLogger("foveate.serve")


class Upload(NamedTuple):
    """A file in a form."""

    name: str
    data: bytes


def validated(body: type[B], fields: Fields) -> B:
    """Return a body made from its fields. Raises `RequestError` (400) with the field.

    An unknown field is refused if its name is nearly that of another one; null means that a field
    is absent, as clients intend.
    """
    fields = {name: value for name, value in fields.items() if value is not None}
    for name in fields.keys() - body.model_fields.keys():
        if len(name) > LONGEST_NAME:
            continue
        if near := get_close_matches(name, body.model_fields, 1, NEAR_NAMES):
            raise RequestError(400, f"{name} is not a field; did you mean {near[0]}?")
    try:
        return body.model_validate(fields)
    except ValidationError as error:
        raise RequestError(400, f"invalid request: {invalid_field(error)}") from None


async def read_fields(request: Request, service: Service) -> Fields:
    """Return the fields of a JSON or form body, and those in the query string.

    Raises `RequestError`: 400 for a body that cannot be read, 413 for too many fields or entries.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = _urlencoded(request.scope["query_string"])
    if kind == MULTIPART:
        fields = query | await _form(request)
    else:
        body = await request.body()
        read = partial(_urlencoded if kind == FORM else _object, body)
        fields = query | (read() if len(body) <= SHORT else await service.computed(read))
    if len(fields) > MOST_NAMES:
        raise RequestError(413, f"{len(fields):,} fields; at most {MOST_NAMES}")
    for name, value in fields.items():
        check_count(name, value, service.limits.values)
    return fields


def _object(body: bytes) -> Fields:
    """Return the fields of a body that is a JSON object, or empty."""
    if not body.strip():
        return {}
    fields = json_tree(body, "a text", "invalid request: the body is not JSON")
    if not isinstance(fields, dict):
        raise RequestError(400, "invalid request: the body is not a JSON object")
    return fields


def _urlencoded(content: bytes) -> Fields:
    """Return the fields of a form or a query string; unescaped text is UTF-8, as curl sends it."""
    if not content:
        return {}
    try:
        items = parse_qsl(content.decode(), True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        message = f"the form is not UTF-8 or has more than {MOST_FIELDS:,} fields"
        raise RequestError(400, f"invalid request: {message}") from None
    return _merged(items)


async def _form(request: Request) -> Fields:
    try:
        form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=64 * 2**20)
    except (HTTPException, MultiPartException, ValueError) as error:
        message = getattr(error, "detail", "") or "it cannot be read"
        raise RequestError(400, f"invalid request: the form: {message}") from None
    try:
        items = [
            (name, x if isinstance(x, str) else Upload(x.filename or "", await x.read()))
            for name, x in form.multi_items()
        ]
        return _merged(items)
    finally:
        await form.close()


def _merged(items: Sequence[tuple[str, str | Upload]]) -> Fields:
    """Return fields by name, with all values of a repeatable one."""
    fields: Fields = dict(items)
    for name in REPEATED & fields.keys():
        if len(values := [value for key, value in items if key == name]) > 1:
            fields[name] = values
    return fields


async def authenticate(request: Request) -> tuple[Service, Fields, Client]:
    """Return the service, the fields of a request, and its client.

    A client with a key in the request head is admitted before its body is read. Raises
    `RequestError`: 400 for a body that cannot be read, 403 without a valid key, 408 if the body
    does not arrive, 429 above the rate.
    """
    service, secret, client = service_of(request), key_in_head(request), None
    if secret or service.keys is None:
        client = client_of(request, service, secret)
    try:
        async with asyncio.timeout(service.limits.reading):
            fields = await read_fields(request, service)
    except TimeoutError:
        raise RequestError(408, "the body did not arrive in time") from None
    return service, fields, client or client_of(request, service, key_in(fields))


async def request_body(request: Request, kind: type[B]) -> tuple[Service, B, Client]:
    """Return the service, the validated body of a request, and its client.

    Raises `RequestError` as `authenticate` and `validated` do.
    """
    service, fields, client = await authenticate(request)
    own = {n: value for n, value in fields.items() if n in kind.model_fields or n not in KEY_FIELDS}
    return service, validated(kind, own), client


def key_in_head(request: Request) -> str:
    """Return the key in the head of a request, in its header or query string, or ""."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() in SCHEMES else key_in(request.query_params)


def key_in(fields: Mapping[str, object]) -> str:
    """Return the key among the fields of a request, under either name, or ""."""
    return next((str(fields[name]) for name in KEY_FIELDS if fields.get(name)), "")


def client_of(request: Request, service: Service, secret: str) -> Client:
    """Return the client by its key, or else by its address; take a token from its bucket."""
    name = f"address:{network(request.client.host if request.client else '')}"
    rate, wrong = service.limits.rate, None
    if service.keys is not None:
        try:
            key = service.keys.find(secret) if secret else None
        except ConfigError as error:
            log.error("cannot read keys", extra={"why": str(error)})
            raise RequestError(503, "the keys cannot be read", retry_after=10) from None
        if key is None:
            message = "this key is not valid" if secret else "this server requires an api_key"
            wrong = RequestError(403, message)
        else:
            name, rate = f"key:{key.name}", rate if key.rate is None else key.rate
    record: RequestRecord = request.state.record
    record.client = anonymous(name)
    if rate and (wait := service.buckets.take(name, rate)):
        raise RequestError(429, f"slow down: {rate:g} requests a minute", retry_after=wait)
    if wrong is not None:
        raise wrong
    return Client(name, record)


@lru_cache(maxsize=2**12)
def network(address: str) -> str:
    """Return an address as rates are counted by it: for IPv6 the network, which is one client's.

    An IPv4 address mapped to IPv6 counts as IPv4.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address) or parsed.ipv4_mapped:
        return str(getattr(parsed, "ipv4_mapped", parsed))
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False).network_address)


def anonymous(client: str) -> str:
    """Return a name for logs that links a client's requests until the server ends."""
    return hashlib.blake2b(client.encode(), digest_size=6, key=SALT).hexdigest()


def service_of(request: Request) -> Service:
    """Return the service of an application; as a dependency it would cost a tenth of a request."""
    return request.app.state.service


def body_of(model: type[BaseModel], *kinds: str) -> OpenApi:
    """Return the OpenAPI description of a body that may come in several encodings."""
    schema = {"schema": {"$ref": SCHEMA_REF.format(model=model.__name__)}}
    content = {kind: schema for kind in kinds or (JSON, FORM, MULTIPART)}
    return {"requestBody": {"required": True, "content": content}}
