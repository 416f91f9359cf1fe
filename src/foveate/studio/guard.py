"""Who may speak with the studio: pages of its own origin, and whoever knows the token.

A page of another site must not use it behind the user's back: its ``Origin`` is refused, and so is
a ``Host`` that is not this machine (DNS rebinding). What it serves may load nothing from elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveate.studio.errors import Refused

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
MOST_BYTES = 20 * 1024 * 1024  # of a request's body
COOKIE = "foveate-token"
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuses what is not from the studio's own pages; ``token`` is asked for where it is set.

    ``hosts`` are the names under which the studio may be reached; any name where it is None.
    """

    def __init__(
        self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] | None = LOOPBACK
    ) -> None:
        self.app, self.token = app, token
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse in the form of all errors."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope, Headers(scope=scope))
            await self.app(scope, self._bounded(receive), self._sending(scope, send))
        except Refused as refused:
            content = refused.body.model_dump_json(by_alias=True)
            status = refused.status
            response = Response(content, status, dict(HEADERS), "application/json")
            await response(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if self.hosts is not None and name.lower() not in self.hosts:
            hint = "open the studio under 127.0.0.1"
            raise Refused(403, "wrong_host", f"this is not {host!r}", hint)
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "wrong_origin", f"pages of {origin} may not use the studio")
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "wrong_origin", "pages of other sites may not use the studio")
        if int(headers.get("content-length", "0") or 0) > MOST_BYTES:
            raise Refused(413, "too_long", f"the studio reads at most {MOST_BYTES:,} bytes")
        if self.token is not None and not self._knows(scope, headers):
            hint = "open the address that `foveate studio` printed"
            raise Refused(401, "no_token", "this studio asks for a token", hint)

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        said = [headers.get("authorization", "").removeprefix("Bearer "), _query(scope)]
        said += [_cookie(headers)]
        return any(hmac.compare_digest(one.encode(), str(self.token).encode()) for one in said)

    def _bounded(self, receive: Receive) -> Receive:
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BYTES:
                raise Refused(413, "too_long", f"the studio reads at most {MOST_BYTES:,} bytes")
            return message

        return bounded

    def _sending(self, scope: Scope, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if self.token is not None and _query(scope) == self.token:
                    cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    headers.append("set-cookie", cookie)
            await send(message)

        return sending


def _query(scope: Scope) -> str:
    return parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]


def _cookie(headers: Headers) -> str:
    found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    return "" if found is None else found.value
