"""Where a program can be reached: a socket that listens, and its address as people write it."""

from __future__ import annotations

import socket

from foveate.config import ConfigError

BACKLOG = 2048  # connections that wait to be accepted


def listen(host: str, port: int, tries: int = 1) -> socket.socket:
    """A socket at the first free one of so many ports from the one asked for; 0 takes any.

    Who comes before the application is there waits for it. Raises ``ConfigError`` where none of
    them is free.
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
    """What a browser is told."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"
