"""How an output was found: the beam as lanes."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.config import ConfigError
from foveate.decode.search import Search
from foveate.look.charts import LanesView
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question
from foveate.watching import Watched

LENGTH = 40  # tokens that a language model adds in a picture
WIDTH = 4  # beams of a picture, where neither run nor question says


def beam(runs: Sequence[Run], question: Question) -> LanesView:
    """The beginnings of every step of a beam search.

    Raises `ConfigError` where nothing is found.
    """
    [run] = runs
    width = question.beam_size or getattr(run.config.decode, "beam_size", WIDTH)
    limits = {"max_extra": LENGTH} if hasattr(run.task, "generate") else {}
    watched = Watched(run)
    source = examples.source(run, question)
    search: Search = watched.search("beam", beam_size=width, **limits).build()
    outputs = watched.write(source, search)
    if not outputs:
        raise ConfigError(f"{run.path} has no answer to {source!r}")
    return watched.lanes(outputs[0], outputs[0].text)
