"""The translation API: LibreTranslate's routes, and figures for Prometheus."""

import asyncio
import logging
import mimetypes
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from foveate.documents.formats import ENDINGS, output_name
from foveate.documents.languages import detected, most_probable, name_of
from foveate.serve import chats, deepl
from foveate.serve.assistance import options_of
from foveate.serve.bodies import (
    MULTIPART,
    Upload,
    authenticate,
    body_of,
    client_of,
    key_in_head,
    request_body,
    service_of,
    validated,
)
from foveate.serve.common import (
    CLIENT_LEFT,
    LOOPBACK,
    BytesInFlight,
    Error,
    Guard,
    JsonObject,
    OpenApi,
    RequestError,
    RequestRecord,
    Responses,
    new_application,
    openapi_document,
)
from foveate.serve.document_processes import file_of
from foveate.serve.translation import (
    AUTO,
    Client,
    Service,
    check_size,
    find_routes,
    links_of,
    translate,
    translate_lines,
)
from foveate.serve.translation_schemas import (
    BODIES,
    DetectBody,
    DetectedLanguage,
    FileBody,
    ServedLanguage,
    ServerStatus,
    TranslateBody,
    Translated,
    TranslatedFile,
)

ALWAYS = ("/health", "/ready", "/metrics")  # paths that are answered under any load
FILE_PATHS = ("/translate_file",)  # whose bodies contain a file
HOME = ("/api/", "/assets/", "/icon.svg")  # paths of the studio, in addition to its page
# counted by name; clients invent others
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
FILE_SAMPLE = 4096  # characters from which the language of a file is detected
MOST_DETECTED, LEAST_CONFIDENCE = 5, 1.0  # languages that /detect returns, and their per cent
ERRORS: Responses = {
    status: {"model": Error, "description": description}
    for status, description in {
        400: "the request is not valid",
        403: "no valid key, or a forbidden origin",
        404: "not found",
        408: "the body did not arrive",
        413: "too much in one request",
        429: "too often, or the queue is full: see Retry-After",
        500: "an internal server error",
        503: "not now",
        504: "it took too long",
    }.items()
}

log = logging.getLogger("foveate.serve")


class TranslationGuard(Guard):
    """The guard of the translation API: it logs and counts every request."""

    public = True
    wrong_host = "this server does not have that host name; see --allow-host"
    wrong_origin = "pages of other sites may not use this server; see --cors"

    def __init__(
        self, app: ASGIApp, service: Service, hosts: Iterable[str] | None, origins: Iterable[str]
    ) -> None:
        super().__init__(app, hosts, origins)
        self.service, limits = service, service.limits
        self.known, self.unknown = BytesInFlight(limits.in_flight), BytesInFlight(limits.unknown)

    async def check(self, scope: Scope, headers: Headers) -> tuple[int, BytesInFlight]:
        """Return the limits of bodies, which are lower in total for clients without a key."""
        if scope["path"] not in ALWAYS:
            await self.service.pace.begin()
        limits = self.service.limits
        known = self.service.keys is None or bool(key_in_head(Request(scope)))
        most = limits.file if scope["path"] in FILE_PATHS else limits.body
        return most, self.known if known else self.unknown

    def error_body(self, path: str, error: RequestError) -> JsonObject | None:
        if path.startswith(chats.PREFIX):
            return chats.error_of(error)
        return {"message": error.message} if path.startswith(deepl.PREFIXES) else None

    def log(self, scope: Scope, record: RequestRecord) -> None:
        """Count the request, and write a log line."""
        seconds = time.perf_counter() - record.began
        route = scope["route"].path if "route" in scope else "other"
        status = record.status or CLIENT_LEFT
        method = scope["method"] if scope["method"] in METHODS else "other"
        metrics = self.service.metrics
        metrics.requests.labels(method, route, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        fields = {"id": record.id, "method": method, "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 1), "client": record.client, **record.numbers}
        log.info("request", extra=fields)


router = APIRouter(responses=ERRORS)


@router.post(
    "/translate",
    response_model=Translated,
    openapi_extra=body_of(TranslateBody),
    tags=["translate"],
)
async def translate_texts(request: Request) -> Response:
    """Translate a text or several, plain or HTML."""
    service, body, client = await request_body(request, TranslateBody)
    return JSONResponse(await service.for_client(request, translate(service, body, client)))


@router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    openapi_extra=body_of(DetectBody),
    tags=["translate"],
)
async def detect(request: Request) -> Response:
    """Detect the language of a text; the most probable first."""
    service, body, client = await request_body(request, DetectBody)
    limits = service.limits
    check_size(service, [body.q], client, limits.characters, limits.items)
    ranked = await service.computed(lambda: detected(body.q))
    likely = [best for best in ranked[:MOST_DETECTED] if best.confidence >= LEAST_CONFIDENCE]
    likely = likely or [most_probable("", list(service.pool.table()))]
    return JSONResponse([language._asdict() for language in likely])


@router.get("/languages", tags=["about"])
async def languages(request: Request) -> list[ServedLanguage]:
    """All languages that can be translated from, and to which."""
    return [
        ServedLanguage(code=code, name=name_of(code), targets=targets)
        for code, targets in sorted(service_of(request).pool.table().items())
    ]


@router.get("/frontend/settings", tags=["about"])
async def settings(request: Request) -> dict[str, Any]:
    """Return what pages and clients want to know."""
    service = service_of(request)
    table, limits = service.pool.table(), service.limits
    source = next(iter(table))
    sides = {"source": source, "target": table[source][0]}
    return {
        "apiKeys": service.keys is not None,
        "charLimit": limits.characters,
        "batchLimit": limits.items,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": service.keys is not None,
        "language": {side: {"code": c, "name": name_of(c)} for side, c in sides.items()},
        "suggestions": False,
        "supportedFilesFormat": list(ENDINGS),
    }


@router.get("/health", tags=["about"])
async def health() -> ServerStatus:
    """Return whether the process runs."""
    return ServerStatus(status="ok")


@router.get("/ready", response_model=ServerStatus, tags=["about"])
async def ready(request: Request) -> Response:
    """Return whether requests are accepted."""
    service = service_of(request)
    if service.closing:
        raise RequestError(503, "the server is shutting down", retry_after=1)
    if not service.pool.alive:
        raise RequestError(503, "a queue has stopped: restart the server")
    return JSONResponse({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus"}},
    tags=["about"],
)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus; where keys are required, with one as bearer."""
    service = service_of(request)
    if service.keys is not None:
        client_of(request, service, key_in_head(request))
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.post(
    "/translate_file",
    response_model=TranslatedFile,
    openapi_extra=body_of(FileBody, MULTIPART),
    tags=["files"],
)
async def translate_file(request: Request) -> Response:
    """Translate a file; its name ends in that of its format."""
    service, fields, client = await authenticate(request)
    upload = fields.get("file")
    if not isinstance(upload, Upload):
        raise RequestError(400, "invalid request: file is missing: send a form with a file")
    body = validated(FileBody, fields | {"file": ""})
    if (suffix := PurePath(upload.name).suffix.lower()) not in ENDINGS:
        message = f"file: {suffix or 'no ending'} is not supported; there are: "
        raise RequestError(400, message + ", ".join(ENDINGS))
    client.record.numbers.update(bytes=len(upload.data))
    work = _translated_file(service, ENDINGS[suffix], upload.data, body, client)
    translated, untranslated = await service.for_client(request, work)
    own = PurePath(upload.name.replace("\\", "/"))
    stem = re.sub(r"[^\w-]+", "_", own.stem)[:60] or "file"
    ending = output_name(suffix, ENDINGS[suffix])
    key = f"{secrets.token_urlsafe(16)}.{stem}_{body.target}{ending}"
    service.files.put(key, translated)
    response: JsonObject = {"translatedFileUrl": f"{request.base_url}download_file/{key}"}
    return JSONResponse(response | ({"untranslated": untranslated} if untranslated else {}))


async def _translated_file(
    service: Service, kind: str, data: bytes, body: FileBody, client: Client
) -> tuple[bytes, int]:
    """Return the document with its passages translated, and the number of untranslated sentences.

    Raises `RequestError` (400) for a document that cannot be read.
    """
    source = None if body.source == AUTO else body.source
    options = await service.computed(lambda: options_of(body, service.limits))
    rules = options.rules(service.rules)
    most = service.limits.file_characters
    file, documents = file_of(kind, data, rules, source, body.target, most), service.documents
    sentences = await documents.sentences(file)
    check_size(service, sentences, client, most, len(sentences))
    sample = " ".join(sentences)[:FILE_SAMPLE]
    [route] = await find_routes(service, body.source, body.target, [sample])
    if route.run is None:
        raise RequestError(400, f"the file is in {body.target} already")
    lines = await translate_lines(service, sentences, route, client, options)
    pairs = await documents.pairs(file, lines)
    return await documents.written(file, lines, await links_of(client, route, pairs))


@router.get(
    "/download_file/{name}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "the file"}},
    tags=["files"],
)
async def download_file(name: str, request: Request) -> Response:
    """Fetch a translated file, as long as it is stored."""
    data = service_of(request).files.get(name)
    if data is None:
        raise RequestError(404, "file not found, or no longer kept")
    own_name = name.partition(".")[2]
    kind = mimetypes.guess_type(own_name)[0] or "application/octet-stream"
    ascii_name = own_name.encode("ascii", "replace").decode().replace("?", "_")
    headers = {"Cache-Control": "no-store"}
    headers["Content-Disposition"] = f'attachment; filename="{ascii_name}"'
    return Response(data, media_type=kind, headers=headers)


def document(app: FastAPI) -> OpenApi:
    """Return the OpenAPI document, with bodies that FastAPI does not read, and the languages."""
    others = chats.ChatBody, deepl.DeeplBody, deepl.GlossaryBody
    tree = openapi_document(app, (*BODIES, *others))
    service: Service = app.state.service
    table, targets = service.pool.table(), service.pool.targets()
    for model in BODIES:
        fields = tree["components"]["schemas"][model.__name__]["properties"]
        if "source" in fields:
            fields["source"]["enum"] = [AUTO, *table]
            fields["target"]["enum"] = targets
        if "alternatives" in fields:
            fields["alternatives"]["maximum"] = service.limits.alternatives
    return tree


class LazyStudio:
    """The studio as an application that is made at its first request, and imports PyTorch then."""

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self._make, self._lock = make, asyncio.Lock()
        self._application: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._lock:
            if self._application is None:
                self._application = await asyncio.to_thread(self._make)
        await self._application(scope, receive, send)

    def close(self) -> None:
        """Stop its computations."""
        if self._application is not None:
            self._application.state.studio.queue.close(0)


class HomeMount(Mount):
    """The studio for its own paths: errors for other paths have the form of this API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as `Mount` does, for these paths."""
        own = scope["path"] == "/" or scope["path"].startswith(HOME)
        return super().matches(scope) if own else (Match.NONE, {})


def translation_application(
    service: Service,
    version: str,
    hosts: Iterable[str] | None = LOOPBACK,
    origins: Sequence[str] = (),
    home: LazyStudio | None = None,
    drain: float = 30.0,
) -> FastAPI:
    """Return the translation API as an ASGI application.

    ``hosts`` are the names under which it may be reached (None: any), ``origins`` the sites whose
    pages may use it; ``home``, such as the studio, answers other paths. Accepted requests have
    ``drain`` seconds when the server ends.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close, drain)
        if home is not None:
            home.close()

    app = new_application("foveate serve", version, lifespan, document, "/openapi.json")
    app.state.service = service
    app.include_router(router)
    app.include_router(deepl.router)
    app.include_router(chats.router)

    if home is not None:
        app.router.routes.append(HomeMount("/", home, name="home"))
    else:
        app.add_api_route("/", app.openapi, include_in_schema=False)
    app.add_middleware(TranslationGuard, service=service, hosts=hosts, origins=origins)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
        )
    return app
