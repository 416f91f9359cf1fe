"""Errors of the API: a code for programs, a message and a hint for people."""

from __future__ import annotations

from foveate.look.drawing import Part


class Problem(Part):
    """What went wrong, and what to do about it where that is known."""

    code: str
    message: str
    hint: str = ""


class ErrorBody(Part):
    """The body of every answer that is an error."""

    error: Problem


class Refused(Exception):
    """A request that is not carried out: a status of HTTP and what to say."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.problem = status, Problem(code=code, message=message, hint=hint)

    @property
    def body(self) -> ErrorBody:
        """What is sent."""
        return ErrorBody(error=self.problem)


def unknown(what: str, name: str, hint: str = "") -> Refused:
    """There is no such thing."""
    return Refused(404, "not_found", f"there is no {what} {name!r}", hint)
