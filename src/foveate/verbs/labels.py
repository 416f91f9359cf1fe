"""Labels for the lines of a stream.

Does not live here: the command line (`foveate.cli.labels`), and what a run can do (`foveate.run`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TextIO

from foveate.config import ConfigError
from foveate.data.text import read_lines
from foveate.tasks.base import CUT
from foveate.verbs import CHUNK, DAMAGED, Tally, chunks, one_line

if TYPE_CHECKING:
    from foveate.run import Run
    from foveate.tasks.label_figures import Classification

EMPTY = "empty, no label"
Form = Callable[["Classification"], str]  # an answer as a line of output


def form(scores: bool, as_json: bool) -> Form:
    """How an answer is written. Raises ``ConfigError`` where two forms are wanted."""
    if scores and as_json:
        raise ConfigError("--scores and --json are two forms of the output: choose one")
    return _json if as_json else _all if scores else _best


def classify(
    run: Run, source: BinaryIO, target: TextIO, form: Form, batch_tokens: int | None = None
) -> Tally:
    """Label a stream, a line for a line and in order, in bounded memory."""
    tally, number, damaged = Tally(), 0, list[int]()
    size = 1 if source.isatty() else CHUNK
    for chunk in chunks(read_lines(source, damaged), size):
        for answer in run.classify(chunk, batch_tokens):
            number += 1
            target.write(form(answer) + "\n")
            if not answer.probabilities:
                tally.note(EMPTY, number)
            if answer.cut:
                tally.note(CUT, number)
        target.flush()
    tally.note_all(DAMAGED, damaged)
    return tally


def _best(answer: Classification) -> str:
    """``LABEL TAB p``; an empty line for an empty one."""
    return "\t".join(_pairs(answer)[:2])


def _all(answer: Classification) -> str:
    """``LABEL TAB p TAB LABEL TAB p …``, the most probable first."""
    return "\t".join(_pairs(answer))


def _pairs(answer: Classification) -> list[str]:
    return [
        part for label, p in answer.probabilities.items() for part in (one_line(label), f"{p:.6f}")
    ]


def _json(answer: Classification) -> str:
    tree = {"text": answer.text, "label": answer.label or None}
    return json.dumps(tree | {"probabilities": answer.probabilities}, ensure_ascii=False)
