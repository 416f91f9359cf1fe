"""Common parts of both APIs: refused requests, the guard, OpenAPI, sockets, logs."""

import itertools
import json
import logging
import math
import re
import socket
import sys
import threading
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveate.config import ConfigError
from foveate.errors import FOR_THE_USER, UserError, message_of, own_file, placed

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
SCHEMA_REF = "#/components/schemas/{model}"
BACKLOG = 2048  # connections waiting to be accepted
CLIENT_LEFT = 499  # status in logs: the client did not wait for the answer
REQUEST_ID = re.compile(r"[\w.-]{1,64}")
PROCESS, NUMBERS = uuid.uuid4().hex[:24], itertools.count()  # the two parts of a request id
NOT_ROUTED = {404: "page not found", 405: "method not allowed"}
NOT_LOGGED = {*vars(logging.makeLogRecord({})), "message"}  # fields of every record
JsonValue: TypeAlias = "str | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject = dict[str, JsonValue]
OpenApi = dict[str, Any]  # an OpenAPI document, or a part of one, as FastAPI takes it
Application: TypeAlias = FastAPI
Responses = dict[int | str, OpenApi]  # of a route, by status
log = logging.getLogger("foveate.serve")


class RequestError(UserError):
    """A refused request: an HTTP status and one sentence, with the remedy.

    ``retry_after`` is the number of seconds until the request may be sent again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))


def not_found(what: str, name: object, names: Iterable[str]) -> RequestError:
    """Return the error (404) for an unknown name, with the known ones."""
    return RequestError(404, f"{what} {name!r} not found; available: {', '.join(names) or 'none'}")


class Error(BaseModel):
    """The form of every error."""

    error: str


def refusal(error: Exception, public: bool, id: str = "") -> RequestError:
    """Return an error as clients see it; a bug is logged, and only its type is sent.

    An error in a file of the user is logged too, and its place and text are sent. With ``public``,
    clients are strangers: they see no file names, and logs have no text of theirs.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ClientDisconnect):
        return RequestError(CLIENT_LEFT, "the client closed the connection")
    if isinstance(error, TimeoutError):
        return RequestError(
            504, "the request took longer than this server allows; send less at once"
        )
    if public and isinstance(error, ConfigError):
        return RequestError(400, "this model cannot do that")
    if isinstance(error, FOR_THE_USER) and not (public and isinstance(error, OSError)):
        return RequestError(400 if public else 422, message_of(error))
    if public:
        frames = traceback.extract_tb(error.__traceback__)[-3:]  # a message might have their text
        places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
        log.error("failed", extra={"id": id, "why": f"{type(error).__name__} at {places}"})
    elif own := own_file(error):
        log.error("an error in a file of yours", exc_info=error)
        return RequestError(422, f"{placed(error, own)} (in a file of yours)")
    else:
        log.error("a bug in foveate, please report it", exc_info=error)
    return RequestError(500, f"internal server error: {type(error).__name__}")


def invalid_field(error: ValidationError | RequestValidationError, whole: int = 0) -> str:
    """Return the innermost invalid field, and why; the first ``whole`` parts name no field."""
    first = max(error.errors(), key=lambda entry: len(entry["loc"]))
    name = ".".join(str(p) for p in first["loc"][whole:] if p not in ("str", "list[str]"))
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "extra_forbidden":
        return f"{name} is not a field"
    return f"{name}: {first['msg']}" if name else str(first["msg"])


def check_count(name: str, value: object, most: int) -> None:
    """Raise `RequestError` (413) for a field with more entries, including those in its lists."""
    parts = list(value.values()) if isinstance(value, dict) else value
    if isinstance(parts, list):
        count = len(parts) + sum(len(part) for part in parts if isinstance(part, (list, dict)))
        if count > most:
            raise RequestError(413, f"{name}: {count:,} entries; at most {most:,}")


class ByteStore:
    """Stores bytes by name in memory, bounded in size and time: the oldest are removed first."""

    def __init__(
        self, size: int, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size, self.seconds, self._clock = size, seconds, clock
        self._stored = OrderedDict[str, tuple[float, bytes]]()
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes) -> str:
        """Store bytes under a name, and return the name."""
        with self._lock:
            self._stored[name] = self._clock() + self.seconds, content
            self._stored.move_to_end(name)
            self._drop()
        return name

    def get(self, name: str) -> bytes | None:
        """Return the bytes of a name while they are stored, else None."""
        with self._lock:
            self._drop()
            return self._stored.get(name, (0.0, None))[1]

    def _drop(self) -> None:
        size = sum(len(content) for _, content in self._stored.values())
        while self._stored:
            until, content = next(iter(self._stored.values()))
            if until > self._clock() and size <= self.size:
                return
            self._stored.popitem(last=False)
            size -= len(content)


class BytesInFlight:
    """The bytes of all request bodies that are being read or answered."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0

    @contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts bytes of one request until it is answered.

        It raises `RequestError` (503) if there are too many.
        """
        own = 0

        def count(size: int) -> None:
            nonlocal own
            if self.bytes + size > self.limit:
                raise RequestError(503, "too many requests at once: try again", retry_after=1)
            own, self.bytes = own + size, self.bytes + size

        try:
            yield count
        finally:
            self.bytes -= own


@dataclass
class RequestRecord:
    """A request's data for logs and metrics; it contains no text."""

    id: str
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    client: str = ""  # anonymous
    numbers: Counter[str] = field(default_factory=Counter)  # characters, sentences, …


class Guard(ABC):
    """The outermost layer of an application: it checks the host name, the origin, the size.

    A browser sends requests for any site's pages. A foreign ``Origin`` is therefore refused, and
    so is a ``Host`` that is not in ``hosts`` (DNS rebinding; None: any name). ``origins`` are the
    sites whose pages may use the application. No error escapes: each becomes a response.
    """

    public: ClassVar[bool]  # whether clients are strangers (`refusal`)
    wrong_host: ClassVar[str]
    wrong_origin: ClassVar[str]
    headers: ClassVar[Mapping[str, str]] = {"X-Content-Type-Options": "nosniff"}  # of responses

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str] | None = LOOPBACK, origins: Iterable[str] = ()
    ) -> None:
        self.app, self.origins = app, frozenset(origins)
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        id = headers.get("x-request-id", "")
        record = RequestRecord(id if REQUEST_ID.fullmatch(id) else f"{PROCESS}{next(NUMBERS):08x}")
        scope.setdefault("state", {})["record"] = record

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                own = MutableHeaders(scope=message)
                for name, value in {"X-Request-ID": record.id, **self.headers_of(scope)}.items():
                    own[name] = value
            await send(message)

        try:
            self.check_sender(headers)
            most, in_flight = await self.check(scope, headers)
            with in_flight.request() as count:
                limited = self.limited(headers, receive, most, count)
                whole = self.public and scope["method"] == "HEAD"  # a GET response without its body
                inner = {**scope, "method": "GET"} if whole else scope
                await self.app(inner, limited, send_with_headers)
        except Exception as raised:
            error = refusal(raised, self.public, record.id)
            if not record.status:
                body = self.error_body(scope["path"], error) or {"error": error.message}
                response = JSONResponse(body, error.status, error.headers)
                await response(scope, receive, send_with_headers)
            del error  # it refers to this frame: a cycle
        finally:
            self.log(scope, record)

    @abstractmethod
    async def check(self, scope: Scope, headers: Headers) -> tuple[int, BytesInFlight]:
        """Return the maximum size of the body in bytes, and the counter for it.

        Waits until the request may begin. Raises `RequestError` if the request is refused.
        """

    def error_body(self, path: str, error: RequestError) -> JsonObject | None:
        """Return the response body for a refused request to ``path``; None means the usual one."""
        return None

    def headers_of(self, scope: Scope) -> Mapping[str, str]:
        """Return the headers of each response to a request."""
        return self.headers

    def log(self, scope: Scope, record: RequestRecord) -> None:
        """Log that a request is over; by default nothing is logged."""
        return

    def check_sender(self, headers: Headers) -> None:
        """Raise `RequestError` for another host name, or an origin that is not allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if self.hosts is not None and name.lower() not in self.hosts:
            raise RequestError(403, self.wrong_host)
        if origin is not None and origin.partition("://")[2] != host and origin not in self.origins:
            raise RequestError(403, self.wrong_origin)

    @staticmethod
    def limited(
        headers: Headers, receive: Receive, most: int, count: Callable[[int], None]
    ) -> Receive:
        """Return ``receive`` for a body of ``most`` bytes; ``count`` gets the size of each part.

        Raises `RequestError` (413) for a longer one.
        """
        too_long = f"a body may have {most:,} bytes at most"
        length = headers.get("content-length") or "0"
        if not length.isdecimal() or int(length) > most:
            raise RequestError(413, too_long)
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += (size := len(message.get("body", b"")))
            if received > most:
                raise RequestError(413, too_long)
            count(size)
            return message

        return receive_limited


def new_application(
    title: str,
    version: str,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    schema: Callable[[FastAPI], OpenApi],
    openapi_url: str,
) -> FastAPI:
    """Return an application without routes; ``schema`` writes its OpenAPI document."""
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

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        message = NOT_ROUTED.get(error.status_code, str(error.detail))
        raise RequestError(error.status_code, message, headers=error.headers)  # to the guard

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        raise RequestError(422, invalid_field(error, whole=1))

    return app


def openapi_document(
    app: FastAPI, models: Iterable[type[BaseModel]], mode: JsonSchemaMode = "validation"
) -> OpenApi:
    """Return the OpenAPI document of an application, with the schemas of further ``models``."""
    document: OpenApi = FastAPI.openapi(app)
    for model in models:
        _, schemas = models_json_schema([(model, mode)], ref_template=SCHEMA_REF)
        document["components"]["schemas"] |= schemas["$defs"]
    return document


def unused_name(stem: str, names: Container[str]) -> str:
    """Return the name itself, or with a number if it is taken."""
    name, number = stem, 2
    while name in names:
        name, number = f"{stem}-{number}", number + 1
    return name


def listen(host: str, port: int, tries: int = 1) -> socket.socket:
    """Return a socket that listens at the first free port from ``port`` on; 0 takes any.

    Connections that arrive before the application runs wait for it. Raises ``ConfigError`` if
    none of ``tries`` ports is free.
    """
    for number in range(port, port + tries) if port else [0]:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            last = error
    raise ConfigError(f"{host}:{port}: {last.strerror}; choose another --port")


def address(host: str, listener: socket.socket) -> str:
    """Return the URL of a server, for a browser."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event, and the fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= {name: value for name, value in vars(record).items() if name not in NOT_LOGGED}
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(level: str = "info") -> None:
    """Write the server's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())
