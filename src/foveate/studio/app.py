"""The application: its routes, its errors, its page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from foveate import __version__
from foveate.studio import openapi, routes, routes_trainings
from foveate.studio.errors import ErrorBody, Refused
from foveate.studio.guard import LOOPBACK, Guard
from foveate.studio.place import Studio
from foveate.studio.streaming import problem_of

STATIC = Path(__file__).parent / "static"
BUILT = "index.html"
MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>foveate studio</title>
<meta name="viewport" content="width=device-width"><style>:root{color-scheme:light dark}
body{font:16px/1.6 system-ui;max-width:40rem;margin:15vh auto;padding:0 1rem}</style>
<h1>The page has not been built</h1><p>The API answers at <a href="/api/v1/runs">/api/v1/runs</a>,
but the page itself is missing: this is a checkout, not an installed wheel. Build it with
<code>make web</code> (Node 20 or newer), then load this page again.</p></html>
"""


def application(
    runs: Sequence[Path],
    token: str | None = None,
    hosts: Iterable[str] | None = LOOPBACK,
    waiting: int = 8,
    static: Path = STATIC,
) -> FastAPI:
    """The studio of some runs, or of folders of runs, as an ASGI application.

    ``token`` is asked of everyone where it is set; ``hosts`` are the names under which it may be
    reached, any where None. One computation runs at a time and at most ``waiting`` wait for it.
    Raises ``ConfigError`` where a path holds no run.
    """
    place = Studio(runs, waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        place.desk.close()

    app = FastAPI(
        title="foveate studio",
        version=__version__,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.studio = place
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.include_router(routes.router)
    app.include_router(routes_trainings.router)
    _handle_errors(app)
    _serve_page(app, static)
    app.add_middleware(Guard, token=token, hosts=hosts)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Every error in the same form."""

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        refused = Refused(422, "bad_request", f"{place}: {first['msg']}" if place else first["msg"])
        return _told(refused.status, refused.body)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "not_allowed"}.get(error.status_code, "refused")
        return _told(error.status_code, Refused(error.status_code, code, str(error.detail)).body)

    @app.exception_handler(Refused)
    @app.exception_handler(Exception)
    async def refused(request: Request, error: Exception) -> Response:
        status, problem = problem_of(error)
        return _told(status, ErrorBody(error=problem))

    for kind in (ValueError, OSError, LookupError):
        app.exception_handler(kind)(refused)


def _told(status: int, body: ErrorBody) -> Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse(body.model_dump(by_alias=True), status, headers)


def _serve_page(app: FastAPI, static: Path) -> None:
    """The built page with its files; where it has not been built, a page that says how."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        built = static / BUILT
        if built.is_file():
            return FileResponse(built, headers={"Cache-Control": "no-cache"})
        return HTMLResponse(MISSING, 503)

    if static.is_dir():
        app.mount("/", StaticFiles(directory=static), "static")
