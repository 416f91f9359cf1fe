"""The outermost layer: names of this server, pages of other sites, the size of bodies, the record.

Every request gets an id, is counted and logged, and every error has the same form. Browsers let
pages of any site send forms here: the ``Origin`` is checked, and so is the ``Host``.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveate.serve.errors import GONE, Refused, refusal_of
from foveate.serve.metrics import Metrics
from foveate.serve.settings import Limits

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
LONG = ("/translate_file",)  # paths whose bodies bring a file
METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS"))  # clients may invent others
_ID = re.compile(r"[\w.-]{1,64}")
log = logging.getLogger("foveate.serve")


@dataclass
class Record:
    """What is known of a request when it is over; no text of anybody."""

    id: str
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    client: str = ""
    numbers: dict[str, int] = field(default_factory=dict)  # characters, sentences, …

    def add(self, **numbers: int) -> None:
        """Count something of it."""
        for name, number in numbers.items():
            self.numbers[name] = self.numbers.get(name, 0) + number


class Guard:
    """Refuses what does not belong here, and keeps the record of everything.

    ``hosts`` are the names under which it may be reached (None: any), ``origins`` the sites whose
    pages may use it.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        hosts: Iterable[str] | None = LOOPBACK,
        origins: Iterable[str] = (),
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = None if hosts is None else frozenset(hosts)
        self.origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse; nothing rises from here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        said = headers.get("x-request-id", "")
        record = Record(said if _ID.fullmatch(said) else uuid.uuid4().hex)
        scope.setdefault("state", {})["record"] = record
        sending = self._sending(record, send)
        try:
            self._check(scope, headers)
            await self.app(scope, self._bounded(scope, receive), sending)
        except Exception as error:
            refused = refusal_of(error)
            if refused.status == 500:
                log.error("failed", extra={"id": record.id, "why": _where(error)})
            if not record.status:
                answer = JSONResponse(refused.body, refused.status, refused.headers)
                await answer(scope, receive, sending)
        finally:
            self._tell(scope, record)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if self.hosts is not None and name.lower() not in self.hosts:
            raise Refused(403, "this server is not called so; see --allow-host")
        own = origin is None or origin.partition("://")[2] == host
        if not own and origin not in self.origins:
            raise Refused(403, "pages of other sites may not use this server; see --cors")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most(scope):
            raise Refused(413, f"a body may have {self._most(scope):,} bytes at most")

    def _most(self, scope: Scope) -> int:
        return self.limits.file if scope["path"] in LONG else self.limits.body

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        read, most = 0, self._most(scope)

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise Refused(413, f"a body may have {most:,} bytes at most")
            return message

        return bounded

    def _sending(self, record: Record, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = record.id
                headers.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        return sending

    def _tell(self, scope: Scope, record: Record) -> None:
        seconds = time.perf_counter() - record.began
        route = getattr(scope.get("route"), "path", "other")
        status = record.status or GONE
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        told = {"id": record.id, "method": method, "route": route, "status": status}
        told |= {"ms": round(1000 * seconds, 1), "client": record.client, **record.numbers}
        log.info("request", extra=told)


def _where(error: Exception) -> str:
    """The kind of an error and where it arose; its words might hold somebody's text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__} at " + " < ".join(
        f"{frame.filename}:{frame.lineno}" for frame in reversed(frames)
    )
