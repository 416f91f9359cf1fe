"""Labels for the lines of a stream, and for pictures.

Does not live here: the command line (`foveate.cli.labels`), and what a run can do (`foveate.run`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol, TextIO

from foveate.config import ConfigError
from foveate.data.readers import read_lines
from foveate.tasks.base import CUT
from foveate.verbs import CHUNK, DAMAGED, Tally, chunks, one_line
from foveate.verbs.vision import pictures_of

if TYPE_CHECKING:
    from foveate.run import Run
    from foveate.tasks.classification import Classification

EMPTY = "empty, no label"


class Form(Protocol):
    """An answer as a line of output, after the name of the picture where it is one."""

    def __call__(self, answer: Classification, picture: str | None = None) -> str: ...


def form(scores: bool, as_json: bool) -> Form:
    """How an answer is written. Raises ``ConfigError`` where two forms are wanted."""
    if scores and as_json:
        raise ConfigError("--scores and --json are two forms of the output: choose one")
    return _json if as_json else _all if scores else _best


def classify(
    run: Run, source: BinaryIO, target: TextIO, form: Form, batch_tokens: int | None = None
) -> Tally:
    """Label a stream, a line for a line and in order, in bounded memory.

    Raises `ConfigError` for a run that labels pictures.
    """
    if hasattr(run.task, "classify_images"):
        raise ConfigError(
            f"{run.path} labels pictures: name some behind it, JPEG or PNG, or numbers of test "
            "pictures"
        )
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


def classify_pictures(
    run: Run, names: Sequence[str], target: TextIO, form: Form, batch_size: int | None = None
) -> None:
    """Label pictures, a line for each and in order.

    All are read before a line is written: the first that is none is named and refused. Raises
    ``DataError``, and `ConfigError` also for a run that labels no pictures.
    """
    run.can("classify_images", "classify pictures; give it lines of text on stdin")
    answers = run.classify_images(pictures_of(names), batch_size)
    for name, answer in zip(names, answers, strict=True):
        target.write(form(answer, name) + "\n")
    target.flush()


def _best(answer: Classification, picture: str | None = None) -> str:
    """``LABEL TAB p``; an empty line for an empty one."""
    return "\t".join([*_named(picture), *_pairs(answer)[:2]])


def _all(answer: Classification, picture: str | None = None) -> str:
    """``LABEL TAB p TAB LABEL TAB p …``, the most probable first."""
    return "\t".join([*_named(picture), *_pairs(answer)])


def _named(picture: str | None) -> list[str]:
    return [] if picture is None else [one_line(picture)]


def _pairs(answer: Classification) -> list[str]:
    return [
        part for label, p in answer.probabilities.items() for part in (one_line(label), f"{p:.6f}")
    ]


def _json(answer: Classification, picture: str | None = None) -> str:
    asked = {"text": answer.source} if picture is None else {"picture": picture}
    found = {"label": answer.label or None, "probabilities": answer.probabilities}
    return json.dumps(asked | found, ensure_ascii=False)
