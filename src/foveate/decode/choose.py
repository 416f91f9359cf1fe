"""Another search in place of the one that a config has: wider, or of another kind.

Lives here: what becomes of a search's config when a user asks for something else at use. Does not
live here: the searches.
"""

from __future__ import annotations

from typing import Any

from foveate.config import ConfigError
from foveate.decode.beam import Beam
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Search


def with_beam(
    own: Search.Config, beam_size: int | None, length_penalty: float | None
) -> Search.Config:
    """The search as a beam of the given choices; itself where nothing is chosen.

    A beam of one without a penalty is greedy search, which has less to keep in order.
    Raises ``ConfigError`` for a length penalty where nothing is a beam.
    """
    asked = {"beam_size": beam_size, "length_penalty": length_penalty}
    choices = {name: value for name, value in asked.items() if value is not None}
    if not choices:
        return own
    if beam_size is None and not isinstance(own, Beam.Config):
        raise ConfigError(f"a search {own.kind} has no length_penalty; give a beam_size beside it")
    if beam_size == 1 and length_penalty is None and type(own) in (Beam.Config, Greedy.Config):
        return Greedy.Config.like(own)
    kind = type(own) if isinstance(own, Beam.Config) else Beam.Config
    return kind.like(own, **choices)


def another(own: Search.Config, kind: str | None, fields: dict[str, Any]) -> Search.Config:
    """The search with other fields; of another kind, it keeps what both kinds know.

    Raises ``ConfigError`` naming the nearest valid kind or key.
    """
    chosen = own if kind is None else Search.Config.parse(kind, ("decode",))
    return chosen.like(own, **fields)
