"""The service as a program: an address, patience with slow clients, an end that loses nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foveate.listening import BACKLOG

HEAD = 64 * 2**10  # bytes of a head
MOMENT = 0.5  # seconds that a new connection has at the end
LEFT = "left"  # of a request's state: a future that is done once the client has gone


def _refusal(status: str, why: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    return (head + json.dumps({"error": why})).encode()


LATE = _refusal("408 Request Timeout", "the head of the request did not come in time")
LONG = _refusal("431 Request Header Fields Too Large", "the head of the request is too long")


class Patient(HttpToolsProtocol):
    """HTTP whose connections must bring a head within some seconds, or they are closed.

    This is against clients that send a byte now and then, or nothing at all, by the thousand; and
    against heads without end.
    """

    patience = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._left: asyncio.Future[None] = self.loop.create_future()
        self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][LEFT] = self._left

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        self._head += len(data)
        super().data_received(data)
        if self.cycle is not before:  # a head has come
            self._late.cancel()
        elif self._resting() and self._head > HEAD:
            self._close(LONG)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._late.cancel()
        if not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._left.set_result(None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """At the server's end; a connection that is new has a moment to bring its request."""
        self.loop.call_later(0 if self.cycle else MOMENT, super().shutdown)

    def _wait(self) -> None:
        """For a head."""
        self._head = 0
        self._late = self.loop.call_later(self.patience, self._give_up)

    def _give_up(self) -> None:
        if self._resting():
            self._close(LATE)

    def _resting(self) -> bool:
        """Whether no request is underway."""
        return self.cycle is None or self.cycle.response_complete

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class Gentle(uvicorn.Server):
    """A server that reads what clients had sent before its end; uvicorn alone resets them.

    What has reached this machine may still wait to be accepted or read. Each pass of the event
    loop asks every socket once: it takes one to accept, one to begin to read, one to read.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or []:
            listener.listen(0)  # others come again later and are told that nobody is here
        for _ in range(5):
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def serve(
    app: FastAPI, listener: socket.socket, drain: float, patience: float, proxy: str | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was accepted, for ``drain`` seconds.

    ``patience`` are the seconds in which a connection has to bring the head of a request; what
    ``proxy`` (an address) says of its clients' addresses is believed.
    """
    _raise_file_limit()
    server = Gentle(configured(app, patience, drain, proxy))

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    # before uvicorn listens to signals, and after: it raises the one that ended it once more
    signal.signal(signal.SIGTERM, end)
    gc.collect()
    gc.freeze()  # what is here by now stays; else a fifth of a request is looking through it
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def configured(
    app: FastAPI, patience: float, drain: float = 30.0, proxy: str | None = None
) -> uvicorn.Config:
    """How uvicorn is to run the application; the choices are those of `serve`."""
    protocol: Any = type("Waiting", (Patient,), {"patience": patience})
    return uvicorn.Config(
        app,
        port=0,
        http=protocol,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy,
        timeout_keep_alive=max(1, round(patience)),  # a connection that rests is closed in silence
        timeout_graceful_shutdown=max(1, round(drain)),
    )


def _raise_file_limit() -> None:
    """As many open connections as the system allows; a shell often allows few."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
