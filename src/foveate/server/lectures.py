"""Lectures step by step: the files of `foveate/lectures`, and what the studio draws for a step.

A lecture is a TOML file with ``title``, ``after``, ``about`` and ``[[steps]]``. A step is drawn by
its ``command``, ``foveate look NAME RUN… --option value`` or ``foveate demo NAME --option value``.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_origin

from pydantic import Field

from foveate.config import PACKAGED, Config
from foveate.server.common import not_found
from foveate.server.studio_schemas import StudioResponse
from foveate.views import demos, find
from foveate.views.options import Question

FOLDER = Path(__file__).parent.parent / "lectures"


class LectureRun(StudioResponse):
    """A run that steps look into: the command that makes it, and the minutes that takes.

    A ``packaged`` one has a small run of foveate that stands in where it is missing.
    """

    minutes: int
    command: str
    about: str
    packaged: bool = False


class LectureStep(StudioResponse):
    """A step: an equation, the command that draws it, speaker's notes, and the slip of the slide.

    ``picture`` is a file under docs that the page of the lecture shows.
    """

    title: str
    equation: str
    command: str
    notes: str
    slip: str = ""
    picture: str = Field("", exclude=True)

    @property
    def runs(self) -> list[str]:
        """The names of the runs that the command reads."""
        return re.findall(r"\bruns/([\w-]+)", self.command)


class Lecture(StudioResponse):
    """A lecture: its title, whose it is, what it is about, and its steps in order."""

    name: str
    title: str
    after: str
    about: str
    steps: list[LectureStep]


class LectureList(StudioResponse):
    """All lectures, and the runs that they look into."""

    lectures: list[Lecture]
    runs: dict[str, LectureRun]


@dataclass(frozen=True)
class DrawingCommand:
    """A command in its parts: a view with its runs and its question, or a demo with its options."""

    name: str
    runs: list[str]
    options: Config


@cache
def lectures() -> LectureList:
    """The lectures of the package by name, and the runs."""
    trees = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.toml")}
    runs = trees.pop("runs")
    for name, run in runs.items():
        run["packaged"] = (PACKAGED / name).is_dir()
    named = [Lecture(name=name, **tree) for name, tree in sorted(trees.items())]
    return LectureList(lectures=named, runs=runs)


def step_of(name: str, number: int) -> LectureStep:
    """A step of a lecture, counted from 1. Raises `RequestError` (404) where there is none."""
    for lecture in lectures().lectures:
        if lecture.name == name and 0 < number <= len(lecture.steps):
            return lecture.steps[number - 1]
    steps = (f"{each.name} 1–{len(each.steps)}" for each in lectures().lectures)
    raise not_found(f"step {number} of a lecture", name, steps)


def parsed(command: str) -> DrawingCommand:
    """``foveate look heads runs/en-fr --text 'A dog.' --layer 1`` in its parts.

    Raises `ConfigError` for an unknown view or demo, ``ValueError`` for an unknown option.
    """
    _, verb, name, *words = shlex.split(command)
    form = Question if verb == "look" else demos.find(name).options
    runs, fields = list[str](), dict[str, list[str | bool]]()
    while words:
        word = words.pop(0)
        option = word.removeprefix("--").replace("-", "_")
        if word in ("--tokens", "--words"):
            fields["units"] = [option]
        elif word.startswith("--") and words and not words[0].startswith("--"):
            fields.setdefault(option, []).append(words.pop(0))
        elif word.startswith("--"):
            fields[option.removeprefix("no_")] = [not option.startswith("no_")]
        elif word.startswith("runs/"):
            runs.append(word.removeprefix("runs/"))
        else:
            fields[find(name).spec.by_place] = [word]
    several = {field for field, x in form.model_fields.items() if get_origin(x.annotation) is tuple}
    values = {field: x if field in several else x[-1] for field, x in fields.items()}
    return DrawingCommand(name, runs, form.model_validate(values, strict=False))
