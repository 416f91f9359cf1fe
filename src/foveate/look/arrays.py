"""The arrays of a drawing, wherever they stand in it: each replaced by where it is to be had.

Does not live here: what an array is (`foveate.look.drawing.Numbers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from foveate.look.drawing import Numbers, Part

P = TypeVar("P", bound=Part)


def changed(part: P, change: Callable[[Numbers], Numbers]) -> P:
    """A part whose arrays, its own and those of its parts, are what ``change`` makes of them."""

    def of(value: Any) -> Any:
        if isinstance(value, Numbers):
            return change(value)
        if isinstance(value, Part):
            return changed(value, change)
        return [of(one) for one in value] if isinstance(value, list) else value

    return part.model_copy(update={name: of(value) for name, value in part})
