"""Connections of the translation server: time limits for clients, and a lossless shutdown."""

import asyncio
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foveate.decode.phrases import UnspelledTerms
from foveate.serve.common import BACKLOG
from foveate.serve.translation import LEFT

HEAD = 64 * 2**10  # bytes of a request's head
FORCED = 5.0  # seconds after the time to drain until the process is killed
SWITCH = 0.0001  # seconds that a computing thread may delay the event loop
ACCEPTED = 8  # connections accepted in a pass of the event loop: uvloop takes one per socket
SELDOM = 10_000  # collections of young objects, a dozen a second under load, before a full one
GRACE = 0.5  # seconds in which a new connection can send its request during shutdown

log = logging.getLogger("foveate.serve")


def _refusal(status: str, why: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    return (head + json.dumps({"error": why})).encode()


LATE = _refusal("408 Request Timeout", "the head of the request did not arrive in time")
LONG = _refusal("431 Request Header Fields Too Large", "the head of the request is too long")


class LimitedProtocol(HttpToolsProtocol):
    """HTTP connections that are closed if the head of a request does not arrive in time.

    This protects against thousands of clients that send a byte now and then, or nothing at all, and
    against endless heads.
    """

    head_seconds = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._left: asyncio.Future[None] = self.loop.create_future()
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][LEFT] = self._left

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        self._head += len(data)
        super().data_received(data)
        if self.cycle is not before:  # the head is complete
            self._timer.cancel()
        elif self._idle() and self._head > HEAD:
            self._close(LONG)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._timer.cancel()
        if not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._left.set_result(None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close when the server ends; a new connection can still send its request."""
        self.loop.call_later(0 if self.cycle else GRACE, super().shutdown)

    def _await_head(self) -> None:
        self._head = 0
        self._timer = self.loop.call_later(self.head_seconds, self._time_out)

    def _time_out(self) -> None:
        if self._idle():
            self._close(LATE)

    def _idle(self) -> bool:
        """Return whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class DrainingServer(uvicorn.Server):
    """A server that reads what clients sent before its end, where uvicorn resets connections.

    Requests that have reached this machine may still wait to be accepted or read. Each pass of the
    event loop polls every socket once: it takes one to accept, one to begin to read, one to read.
    Computations longer than the time to drain are killed with the process.
    """

    ends_by = math.inf  # seconds from the signal until the process is killed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; the process is killed in time even if a computation continues."""
        if not self.should_exit and self.ends_by < math.inf:
            ending = threading.Timer(self.ends_by, _end_process)
            ending.daemon = True
            ending.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or []:
            listener.listen(0)  # new connections are refused
        for _ in range(5):
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def run_server(
    app: FastAPI,
    listener: socket.socket,
    drain: float,
    head_seconds: float,
    proxy: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then answer accepted requests, for ``drain`` seconds.

    The head of a request must arrive within ``head_seconds``. The addresses of clients that
    ``proxy`` (an address) forwards are trusted.
    """
    if sys.platform != "win32":  # as many open connections as the system supports
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    server = DrainingServer(uvicorn_config(app, head_seconds, drain, proxy))
    server.ends_by = drain + FORCED
    # before uvicorn handles signals, and after: it raises the signal that ended it again
    signal.signal(signal.SIGTERM, server.handle_exit)
    sys.setswitchinterval(SWITCH)
    warnings.simplefilter("ignore", UnspelledTerms)  # a request gets these as its missing terms
    gc.collect()
    gc.freeze()  # otherwise walking these objects takes the collector a fifth of a request
    # requests create no cycles, and a thousand of them in flight take up to 0.3 s to walk
    gc.set_threshold(*gc.get_threshold()[:2], SELDOM)
    with suppress(KeyboardInterrupt):  # otherwise quick answers wait behind slow ones
        server.run(sockets=[listener, *(listener.dup() for _ in range(ACCEPTED - 1))])


def uvicorn_config(
    app: FastAPI, head_seconds: float, drain: float = 30.0, proxy: str | None = None
) -> uvicorn.Config:
    """Return how uvicorn runs the application; the parameters are those of `run_server`."""
    limits = {"head_seconds": head_seconds}
    return uvicorn.Config(
        app,
        port=0,
        http=type("Protocol", (LimitedProtocol,), limits),
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy,
        timeout_keep_alive=max(1, round(head_seconds)),  # an idle connection is closed silently
        timeout_graceful_shutdown=max(1, round(drain)),
    )


def _end_process() -> None:
    log.error("killed", extra={"why": "requests were still running"})
    os._exit(1)
