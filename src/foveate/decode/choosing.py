"""The search that answers a request, from a run's own search and the request's options.

Every engine takes its search from here, so these are functions of plain values: the trees of the
configs of searches (`foveate.config.Config.tree`), whose classes need PyTorch.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from foveate.config import Tree, unknown
from foveate.errors import ConfigError

COMMON = ("max_ratio", "max_extra", "rules", "shortlist", "whole_characters")  # in all searches
DRAWN = (  # fields of sampling
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "num_samples",
)  # fmt: skip
PENALTY = 0.6  # of a beam that replaces another search
Ending = Literal["count", "bound", "shrink"]  # when a beam ends (`foveate.decode.beam.Beam.Config`)
STOPS: tuple[Ending, ...] = get_args(Ending)
OFFSET = 5.0  # added to lengths before the penalty (Wu et al., 2016)


def chosen(own: Tree, beam_size: int | None, length_penalty: float | None) -> Tree:
    """Return ``own`` as a beam of this size and penalty; ``own`` itself if both are None.

    A beam of one without a penalty becomes greedy search, which has less to sort. Raises
    ``ConfigError`` for a length penalty of a search that is not a beam.
    """
    choices: Tree = {"beam_size": beam_size, "length_penalty": length_penalty}
    choices = {name: value for name, value in choices.items() if value is not None}
    if not choices:
        return own
    if beam_size is not None and beam_size < 1:
        raise ConfigError(f"beam_size = {beam_size}: expected at least 1")
    if beam_size is None and "beam_size" not in own:
        raise ConfigError(f"the search {own['kind']} has no length_penalty; give a beam_size too")
    if beam_size == 1 and length_penalty is None and own["kind"] in ("beam", "greedy"):
        return _common(own, "greedy")
    return (own if "beam_size" in own else _common(own, "beam")) | choices


def widened(own: Tree, count: int) -> Tree:
    """Return the same search, wide enough for ``count`` outputs of each source.

    Greedy search, which has one output, becomes a beam. Raises ``ConfigError`` for less than one.
    """
    if count < 1:
        raise ConfigError(f"{count} outputs per line were requested: expected at least 1")
    if "candidates" in own:
        return own | {"candidates": widened(own["candidates"], count)}
    if own["kind"] == "greedy" and count > 1:
        return _common(own, "beam") | {"beam_size": count}
    for size in ("beam_size", "num_samples"):
        if count > own.get(size, count):
            return own | {size: count + -count % own.get("groups", 1)}
    return own


def continuing(
    own: Tree, max_length: int, beam_size: int | None, choices: Mapping[str, object]
) -> Tree:
    """Return the search for continuations of a text: sampling, or a beam if one is requested.

    ``choices`` are fields of sampling. Raises ``ConfigError`` for an unknown field, and for any
    field beside a beam.
    """
    if wrong := sorted(choices.keys() - set(DRAWN)):
        raise ConfigError(unknown("key", wrong[0], DRAWN), ("decode",))
    if choices and beam_size is not None:
        raise ConfigError(f"{next(iter(choices))} is an option of sampling: leave out beam_size")
    limits: Tree = {"max_ratio": 0.0, "max_extra": max_length}
    if beam_size is not None:
        return _common(own, "beam") | {"beam_size": beam_size, "length_penalty": 0.0} | limits
    return (own if own["kind"] == "sample" else _common(own, "sample")) | dict(choices) | limits


def _common(own: Tree, kind: str) -> Tree:
    """Return a search of another kind with the fields that all kinds have."""
    penalty = {"length_penalty": PENALTY} if kind == "beam" else {}
    return {"kind": kind} | penalty | {name: own[name] for name in COMMON if name in own}
