"""What is not carried out, and why: a status of HTTP and one sentence."""

from __future__ import annotations

import math

from starlette.requests import ClientDisconnect

from foveate.config import ConfigError
from foveate.errors import is_for_the_user, message_of

GONE = 499  # in logs: the client did not wait for the answer


class Refused(Exception):
    """A request that is not carried out; ``after`` are the seconds until it may come again."""

    def __init__(self, status: int, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.after = status, message, after

    @property
    def body(self) -> dict[str, str]:
        """What is sent: the form of every error."""
        return {"error": self.message}

    @property
    def headers(self) -> dict[str, str]:
        """``Retry-After`` in whole seconds, where it is known."""
        return {} if self.after is None else {"Retry-After": str(max(1, math.ceil(self.after)))}


def refusal_of(error: Exception) -> Refused:
    """An error as what a client is told; a fault of the program is not told in words."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, ClientDisconnect):
        return Refused(GONE, "the client has left")
    if isinstance(error, TimeoutError):
        return Refused(504, "it took longer than this server allows; send less at once")
    if isinstance(error, ConfigError):
        return Refused(400, "this model cannot do that")  # its words may name files of this machine
    if is_for_the_user(error) and not isinstance(error, OSError):
        return Refused(400, message_of(error))
    return Refused(500, f"a fault of the server: {type(error).__name__}")
