"""Lectures step by step: the files of `foveate/lectures`, and what the studio draws for a step.

A lecture is a TOML file with ``title``, ``after``, ``about`` and ``[[steps]]``. A step draws its
``view``, a line ``foveate look NAME RUN… --option value`` or ``foveate demo NAME``; without one,
its ``command`` where that is such a line.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

from pydantic import ConfigDict, Field, computed_field

from foveate.draw.parts import DrawingPart
from foveate.server.common import RequestError, not_found
from foveate.server.studio_schemas import StudioResponse
from foveate.views import find
from foveate.views.options import Question

FOLDER = Path(__file__).parent.parent / "lectures"
LOOK, DEMO = "foveate look ", "foveate demo "


class LectureRun(StudioResponse):
    """A run that steps look into: the command that makes it, and the minutes that takes."""

    minutes: int
    command: str
    about: str


class LectureStep(StudioResponse):
    """A step: an equation, a command, speaker's notes, and the slip of the slide that is corrected.

    ``picture`` is a file under docs that the page of the lecture shows.
    """

    title: str
    equation: str
    command: str
    view: str = ""
    notes: str
    slip: str = ""
    picture: str = Field("", exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def drawn(self) -> str:
        """The line ``foveate look …`` or ``demo …`` that is drawn; empty where there is none."""
        return self.view or (self.command if self.command.startswith((LOOK, DEMO)) else "")

    @property
    def runs(self) -> list[str]:
        """The names of the runs that the command and the view read."""
        names = re.findall(r"\bruns/([\w-]+)", f"{self.command} {self.view}")
        return list(dict.fromkeys(names))


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


class LookLine(DrawingPart):
    """A line ``foveate look …`` in its parts: the view, its runs and its question."""

    model_config = ConfigDict(frozen=True)
    view: str
    runs: list[str]
    question: Question


@cache
def lectures() -> LectureList:
    """The lectures of the package by name, and the runs."""
    trees = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.toml")}
    runs = trees.pop("runs")
    named = [Lecture(name=name, **tree) for name, tree in sorted(trees.items())]
    return LectureList(lectures=named, runs=runs)


def step_of(name: str, number: int) -> LectureStep:
    """A step of a lecture, counted from 1, that draws something.

    Raises `RequestError` (404) where there is none, or it draws nothing.
    """
    for lecture in lectures().lectures:
        if lecture.name == name and 0 < number <= len(lecture.steps):
            if lecture.steps[number - 1].drawn:
                return lecture.steps[number - 1]
            command = lecture.steps[number - 1].command
            raise RequestError(404, f"this step draws nothing; run: {command}")
    steps = (f"{each.name} 1–{len(each.steps)}" for each in lectures().lectures)
    raise not_found(f"step {number} of a lecture", name, steps)


def look_line(line: str) -> LookLine:
    """``foveate look heads runs/en-fr --text 'A dog.' --layer 1`` in its parts.

    Raises `ConfigError` for an unknown view, ``ValueError`` for an option that no view has.
    """
    _, _, name, *words = shlex.split(line)
    entry, runs, fields = find(name), list[str](), dict[str, str]()
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            fields[word[2:].replace("-", "_")] = words.pop(0)
        elif word.startswith("runs/"):
            runs.append(word.removeprefix("runs/"))
        else:
            fields[entry.spec.by_place] = word
    return LookLine(view=name, runs=runs, question=Question.model_validate(fields, strict=False))
