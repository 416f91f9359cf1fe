"""What a run is asked to read where the question names nothing: an example of its validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foveate.config import ConfigError
from foveate.run import Run
from foveate.train.journal import last_samples
from foveate.views.question import Question

Picture = int | Path


def source(run: Run, question: Question) -> Any:
    """What the task of a run explains: a line of text, a picture, or the date of a forecast."""
    if hasattr(run.task, "shown"):
        return image(question)
    if hasattr(run.task, "forecast"):
        return question.text
    return text(run, question)


def text(run: Run, question: Question) -> str:
    """The text of the question, else the first source of the last validation that kept samples.

    Raises `ConfigError` where there is neither.
    """
    if question.text is not None:
        return question.text
    sources = [sample["source"].splitlines()[0] for sample in last_samples(run.path)]
    if not sources:
        raise ConfigError(f"{run.path} has kept no example: give --text")
    return str(sources[0])


def image(question: Question) -> Picture:
    """The picture that is named; the first of the test data where none is."""
    return picture_of(question.image or "0")


def picture_of(name: str) -> Picture:
    """A file, or the number of a picture of the test data. Raises `ConfigError` for neither."""
    if Path(name).is_file():
        return Path(name)
    if name.isascii() and name.isdecimal():
        return int(name)
    raise ConfigError(f"{name}: no such file; give a JPEG or PNG, or the number of a test picture")
