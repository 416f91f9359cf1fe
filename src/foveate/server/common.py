"""What both APIs share: refused requests, the guard, events, OpenAPI, folders of runs, logs."""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveate.config import ConfigError
from foveate.errors import UserError

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
EVENT_STREAM = "text/event-stream"
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
SCHEMA_REF = "#/components/schemas/{model}"
CHOSEN = "best.json"  # names the checkpoint that counts; a training changes it
BACKLOG = 2048  # connections that wait to be accepted
LOG_FIELDS = [
    "run", "why", "id", "method", "route", "status", "ms", "client",
    "texts", "characters", "sentences", "cut", "bytes",
]  # fmt: skip
JsonValue: TypeAlias = "str | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject = dict[str, JsonValue]
OpenApi = dict[str, Any]  # an OpenAPI document, or a part of one, as FastAPI takes them
Responses = dict[int | str, OpenApi]  # of a route, by status


class RequestError(UserError):
    """A request that is not carried out: an HTTP status and one sentence.

    ``code`` (for programs) and ``hint`` (what to do) are fields of the studio's errors;
    ``retry_after`` are the seconds until the request may be sent again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.hint = status, message, code, hint
        self.retry_after = retry_after


# ------------------------------------------------------------------------------ the guard


class BytesInFlight:
    """The bytes of bodies that are being read or answered, of all requests together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0

    @contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """A function that counts bytes of one request, until it is answered.

        It raises `RequestError` (503) where there are too many.
        """
        own = 0

        def count(size: int) -> None:
            nonlocal own
            if self.bytes + size > self.limit:
                raise RequestError(503, "too many bodies at once: come back", retry_after=1)
            own, self.bytes = own + size, self.bytes + size

        try:
            yield count
        finally:
            self.bytes -= own


class Guard(ABC):
    """The outermost layer of an application: it checks the name of the host, the origin, the size.

    A browser sends requests for pages of any site. A foreign ``Origin`` is therefore refused, and
    so is a ``Host`` that is not in ``hosts`` (DNS rebinding; None: any name). ``origins`` are the
    sites whose pages may use the application.
    """

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str] | None = LOOPBACK, origins: Iterable[str] = ()
    ) -> None:
        self.app, self.origins = app, frozenset(origins)
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it."""
        if scope["type"] == "http":
            await self.answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    @abstractmethod
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of HTTP, or refuse it in the form of the API's errors."""

    def check_sender(
        self, headers: Headers, wrong_host: RequestError, wrong_origin: RequestError
    ) -> None:
        """Raise an error for a host without this name, or for an origin that is not allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if self.hosts is not None and name.lower() not in self.hosts:
            raise wrong_host
        if origin is not None and origin.partition("://")[2] != host and origin not in self.origins:
            raise wrong_origin

    @staticmethod
    def limited(
        headers: Headers,
        receive: Receive,
        limit: int,
        too_long: RequestError,
        count: Callable[[int], None] = lambda size: None,
    ) -> Receive:
        """``receive`` for a body of ``limit`` bytes at most; else ``too_long`` is raised.

        ``count`` gets the size of each part.
        """
        length = headers.get("content-length") or "0"
        if not length.isdecimal() or int(length) > limit:
            raise too_long
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += (size := len(message.get("body", b"")))
            if received > limit:
                raise too_long
            count(size)
            return message

        return receive_limited


# ------------------------------------------------------------------------------ events, OpenAPI


def event_text(name: str, data: str, id: str = "") -> str:
    """A server-sent event with data of one line; a reader can continue after its ``id``."""
    return (f"id: {id}\n" if id else "") + f"event: {name}\ndata: {data}\n\n"


def event_response(events: AsyncIterator[str]) -> StreamingResponse:
    """The response that sends events as they come."""
    return StreamingResponse(events, media_type=EVENT_STREAM, headers=EVENT_HEADERS)


def new_application(
    title: str,
    version: str,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    schema: Callable[[FastAPI], OpenApi],
    openapi_url: str,
) -> FastAPI:
    """An application without routes; ``schema`` writes its OpenAPI document."""
    app = FastAPI(
        title=title,
        version=version,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        openapi_url=openapi_url,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    app.openapi = lambda: schema(app)  # type: ignore[method-assign]
    return app


def openapi_document(
    app: FastAPI, models: Iterable[type[BaseModel]], mode: JsonSchemaMode = "validation"
) -> OpenApi:
    """The OpenAPI document of an application, with the schemas of further ``models``."""
    document: OpenApi = FastAPI.openapi(app)
    schemas = document["components"]["schemas"]
    for model in models:
        schema = TypeAdapter(model).json_schema(ref_template=SCHEMA_REF, mode=mode)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    return document


# ------------------------------------------------------------------------------ folders of runs


def chosen_at(folder: Path) -> int:
    """When a training chose the weights of a run, in ns; 0 where no file says so."""
    try:
        return (folder / CHOSEN).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def unused_name(stem: str, names: Container[str]) -> str:
    """The name itself, or with a number where another has it."""
    name, number = stem, 2
    while name in names:
        name, number = f"{stem}-{number}", number + 1
    return name


# ------------------------------------------------------------------------------ sockets, logs


def listen(host: str, port: int, tries: int = 1) -> socket.socket:
    """A socket that listens at the first free port from ``port`` on; 0 takes any free one.

    Connections that come before the application runs wait for it. Raises ``ConfigError`` where
    none of ``tries`` ports is free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + tries) if port else [0]:
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            last = error
    raise ConfigError(f"{host}:{port}: {last.strerror}; name another --port")


def address(host: str, listener: socket.socket) -> str:
    """The URL of a server, for a browser."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, event, and the fields that are known."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= {
            name: value for name in LOG_FIELDS if (value := vars(record).get(name)) is not None
        }
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(level: str = "info") -> None:
    """Write the server's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("foveate.server")
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())
