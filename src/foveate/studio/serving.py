"""The studio as a program: an address, a token where others can reach it, a browser."""

from __future__ import annotations

import secrets
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from foveate.config import ConfigError
from foveate.listening import address, listen
from foveate.studio.app import application
from foveate.studio.guard import LOOPBACK

NEXT = 20  # ports that are tried where the one asked for is taken
PATIENCE = 2  # seconds that open streams have when the program ends


def serve(
    runs: Sequence[Path],
    port: int = 8377,
    host: str = "127.0.0.1",
    token: str | None = None,
    browser: bool = True,
) -> None:
    """Serve until interrupted. Port 0 takes any free one, and a port in use the next.

    Raises ``ConfigError`` for a host that others reach without a token, or where nothing is free.
    """
    local = host in LOOPBACK
    if not local and not token:
        said = secrets.token_urlsafe(16)
        raise ConfigError(
            f"{host} can be reached by others: give a token, such as --token {said}, that the "
            "page will ask for"
        )
    app = application(runs, token, LOOPBACK if local else None)
    listener = listen(host, port, NEXT)
    place = address(host, listener) + (f"?token={token}" if token else "")
    print(f"studio: {place}  (Ctrl-C ends it)", flush=True)
    if browser:
        opening = threading.Timer(0.5, webbrowser.open, [place])
        opening.daemon = True
        opening.start()
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=PATIENCE
    )
    uvicorn.Server(config).run(sockets=[listener])
