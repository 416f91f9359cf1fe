"""How an output was found: the beam as lanes, and what else might have stood at each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foveate.config import ConfigError
from foveate.look.alternatives import AlternativesView
from foveate.look.lanes import LanesView
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question
from foveate.watching import Output, Watched, writer

LENGTH = 40  # tokens that a language model adds in a picture
WIDTH = 4  # beams of a picture, where neither run nor question says


def beam(runs: Sequence[Run], question: Question) -> LanesView:
    """The beginnings of every step of a beam search."""
    width = question.beam_size or getattr(runs[0].config.decode, "beam_size", WIDTH)
    watched, best = found(runs[0], question, "beam", beam_size=width)
    return watched.lanes(best, best.text)


def alternatives(runs: Sequence[Run], question: Question) -> AlternativesView:
    """Each token of the answer with its p, and the likeliest in its place."""
    size = question.beam_size
    own: dict[str, Any] = {} if size is None else {"kind": "beam", "beam_size": size}
    watched, best = found(runs[0], question, **own)
    return watched.alternatives(best, best.text)


def found(
    run: Run, question: Question, kind: str | None = None, **fields: Any
) -> tuple[Watched, Output]:
    """A watched search for what the question names, and its best output.

    Raises `ConfigError` where nothing is found.
    """
    write = writer(run)
    if hasattr(run.task, "generate"):
        kind, fields = kind or "greedy", {"max_extra": LENGTH} | fields
    watched = Watched(write)
    source = examples.source(run, question)
    outputs = watched.write(source, write.search(kind, **fields).build())
    if not outputs:
        raise ConfigError(f"{run.path} has no answer to {source!r}")
    return watched, outputs[0]
