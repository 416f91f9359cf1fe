"""The application: routes, errors, the guard around them, and another application at ``/``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from foveate.serve import openapi, routes, routes_files, routes_v1
from foveate.serve.guard import LOOPBACK, Guard
from foveate.serve.service import Service


def application(
    service: Service,
    version: str,
    hosts: Iterable[str] | None = LOOPBACK,
    origins: Iterable[str] = (),
    home: FastAPI | None = None,
    drain: float = 30.0,
) -> FastAPI:
    """The service as an ASGI application.

    ``hosts`` are the names under which it may be reached (None: any), ``origins`` the sites whose
    pages may use it; ``home`` answers what has no route here, such as the studio. What was accepted
    has ``drain`` seconds when the server ends.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if home is not None:
                await stack.enter_async_context(home.router.lifespan_context(home))
            yield
            await service.aside(lambda: service.fleet.close(drain))
        service.close(0)

    app = FastAPI(
        title="foveate serve",
        version=version,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    for router in (routes.router, routes_files.router, routes_v1.router):
        app.include_router(router)
    _add_pages(app)
    if home is not None:
        app.mount("/", home, "home")
    origins = list(origins)
    app.add_middleware(
        Guard, limits=service.limits, metrics=service.metrics, hosts=hosts, origins=origins
    )
    if origins:
        said: dict[str, Any] = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        app.add_middleware(CORSMiddleware, allow_origins=origins, **said)
    return app


def _add_pages(app: FastAPI) -> None:
    """The page of the interface, and the one form of errors."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(openapi.page(app), headers={"Content-Security-Policy": policy})

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        said = {404: "there is no such page", 405: "not with this method"}
        message = said.get(error.status_code, str(error.detail))
        return JSONResponse({"error": message}, error.status_code, error.headers)
