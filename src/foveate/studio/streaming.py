"""Server-sent events: one text block for each event, its name, and JSON in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from foveate.errors import is_for_the_user, message_of
from foveate.look.drawing import Part
from foveate.studio.errors import Problem, Refused
from foveate.studio.told import Failed

EVENTS = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def sent(event: Part, place: str = "") -> str:
    """An event as it is sent; ``place`` is its id, from which a reader may go on."""
    name = getattr(event, "event", "message")
    data = event.model_dump_json(by_alias=True)
    return (f"id: {place}\n" if place else "") + f"event: {name}\ndata: {data}\n\n"


async def stream(events: AsyncIterator[Any]) -> AsyncIterator[str]:
    """Events as they are sent; an error is the last of them."""
    try:
        async for event in events:
            yield sent(event)
    except Exception as error:
        yield sent(Failed(**dict(problem_of(error)[1])))


def problem_of(error: Exception) -> tuple[int, Problem]:
    """The status and the words of an error; what is no fault of the user's is not told in words."""
    if isinstance(error, Refused):
        return error.status, error.problem
    if is_for_the_user(error):
        return 422, Problem(code="refused", message=message_of(error))
    message = f"a fault of the studio: {type(error).__name__}"
    return 500, Problem(code="internal", message=message, hint="see what it printed")
