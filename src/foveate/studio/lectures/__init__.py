"""Step-by-step lectures: the files in `foveate/studio/lectures` and in a user's folder.

A lecture is a TOML file with ``title``, ``after``, ``about`` and ``[[steps]]``. A step is drawn by
its ``command``, ``foveate look NAME RUN… --option value`` or ``foveate demo NAME --option value``.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import get_origin

from pydantic import Field, ValidationError, field_validator

from foveate.config import PACKAGED, Config
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.look.views import demos, find
from foveate.look.views.options import Question
from foveate.serve.common import RequestError, invalid_field, unused_name
from foveate.studio.schemas import StudioResponse

FOLDER = Path(__file__).parent


class LectureRun(StudioResponse):
    """A run that steps look into: the command that makes it, and the minutes that takes.

    A ``packaged`` one has a small run of foveate that stands in where it is missing; for another,
    that of the name ``instead`` may.
    """

    minutes: int
    command: str
    about: str
    packaged: bool = False
    instead: str = ""


class LectureStep(StudioResponse):
    """A step: an equation, the command that draws it, speaker's notes, and the slip of the slide.

    ``caption`` says what to see in the drawing; ``picture`` is a file under docs for the page.
    """

    title: str
    equation: str = ""
    command: str
    caption: str = ""
    notes: str = ""
    slip: str = ""
    picture: str = Field("", exclude=True)

    @property
    def runs(self) -> list[str]:
        """The names of the runs that the command reads."""
        return re.findall(r"\bruns/([\w-]+)", self.command)


class Lecture(StudioResponse):
    """A lecture: its title, whose it is, what it is about, and its steps in order.

    One's ``own`` comes from the folder of the studio; it may be saved there again.
    """

    name: str = ""
    title: str
    after: str = ""
    about: str = ""
    steps: list[LectureStep]
    own: bool = False

    @field_validator("steps")
    @classmethod
    def _some(cls, steps: list[LectureStep]) -> list[LectureStep]:
        if not steps:
            raise ValueError("a lecture needs a step")
        return steps


class LectureList(StudioResponse):
    """All lectures, and the runs that they look into.

    ``folder`` is where one's own are, if the studio has one; ``problems`` says which files there
    are not lectures, and why.
    """

    lectures: list[Lecture]
    runs: dict[str, LectureRun]
    folder: str = ""
    problems: list[str] = Field(default_factory=list)


class LectureFile(StudioResponse):
    """A lecture as a file: its name without the ending, and the TOML."""

    name: str
    text: str


@cache
def lectures() -> LectureList:
    """Return the lectures of the package by name, and the runs."""
    trees = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.toml")}
    runs = trees.pop("runs")
    for name, run in runs.items():
        run["packaged"] = (PACKAGED / name).is_dir()
    named = [Lecture(name=name, **tree) for name, tree in sorted(trees.items())]
    return LectureList(lectures=named, runs=runs)


def present(names: Sequence[str], has: Callable[[str], object]) -> list[str]:
    """Return the runs that a step is drawn with, each once; ``instead`` replaces missing ones."""
    known = lectures().runs
    drawn = (name if has(name) or name not in known else known[name].instead for name in names)
    return list(dict.fromkeys(other or name for other, name in zip(drawn, names, strict=True)))


def lecture_list(folder: Path | None) -> LectureList:
    """Return the lectures of the package and those of a folder."""
    shipped = lectures()
    if folder is None:
        return shipped
    own, problems = list[Lecture](), list[str]()
    for path in sorted(folder.glob("*.toml")):
        try:
            if path.stem in _taken():
                raise UserError("foveate has a lecture of this name; rename the file")
            lecture = read(LectureFile(name=path.stem, text=path.read_text("utf-8")))
            own.append(lecture.model_copy(update={"own": True}))
        except (UserError, OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.name}: {error}")
    fields = {"lectures": [*shipped.lectures, *own], "folder": str(folder), "problems": problems}
    return shipped.model_copy(update=fields)


def _taken() -> set[str]:
    """Return names that no file may have; "mine" is the lecture that a page edits."""
    return {"mine", *(each.name for each in lectures().lectures)}


def read(file: LectureFile) -> Lecture:
    """Return the lecture in a file. Raises `RequestError` (422) with the step and the key."""
    try:
        return checked({**tomllib.loads(file.text), "name": file.name})
    except tomllib.TOMLDecodeError as error:
        raise RequestError(422, f"not valid TOML: {error}") from None


def checked(tree: Mapping[str, object]) -> Lecture:
    """Return a lecture from plain values. Raises `RequestError` (422) with the step and the key."""
    try:
        return Lecture.model_validate(tree)
    except ValidationError as error:
        wrong = invalid_field(error)
        place = re.match(r"steps\.(\d+)\.?", wrong)
        step = f"step {int(place[1]) + 1}, " if place else ""
        raise RequestError(422, step + wrong[place.end() if place else 0 :]) from None


def written(lecture: Lecture) -> LectureFile:
    """Return the file of a lecture. Raises `RequestError` (422) if a step's command is invalid."""
    for number, step in enumerate(lecture.steps, 1):
        try:
            parsed(step.command)
        except UserError as error:
            raise RequestError(422, f"step {number}, command: {error}") from None
    lines = [_line(lecture, key) for key in ("title", "after", "about")]
    for step in lecture.steps:
        keys = ("title", "equation", "command", "caption", "picture", "notes", "slip")
        lines += ["\n[[steps]]", *(_line(step, key) for key in keys if getattr(step, key))]
    return LectureFile(name=lecture.name, text="\n".join(lines) + "\n")


def _line(part: Lecture | LectureStep, key: str) -> str:
    """Return a text as TOML, with its lines unchanged."""
    lines = getattr(part, key).replace("\r\n", "\n").split("\n")
    text = "\n".join(json.dumps(line, ensure_ascii=False)[1:-1] for line in lines)
    text = text.replace("\x7f", "\\u007f")
    return f'{key} = """\n{text}"""' if len(lines) > 1 else f'{key} = "{text}"'


def save(lecture: Lecture, folder: Path | None) -> Lecture:
    """Write a lecture into the user's folder; without a name it gets one from its title.

    Raises `RequestError` (422) without a folder, or for an invalid file name.
    """
    if folder is None:
        raise RequestError(
            422, "this studio has no folder for lectures: start it with --lectures FOLDER"
        )
    name = lecture.name
    if not name:
        stem = "-".join(re.findall(r"\w+", lecture.title.casefold()))[:60] or "lecture"
        name = unused_name(stem, _taken() | {path.stem for path in folder.glob("*.toml")})
    if name in _taken() or not re.fullmatch(r"[\w-]+", name):
        raise RequestError(422, f"a lecture of your own cannot be called {name!r}")
    file = written(lecture.model_copy(update={"name": name}))
    replace_file(folder / f"{name}.toml", file.text)
    return read(file).model_copy(update={"own": True})


def parsed(command: str) -> tuple[str, list[str], Config]:
    """Parse a command such as ``foveate look heads runs/en-fr --text 'A dog.' --layer 1``.

    Returns the name of a view, its runs and its question, or of a demo, no runs, and its options.
    Raises `UserError` for another command, an unknown view or demo, and an unknown option.
    """
    try:
        program, verb, name, *words = shlex.split(command)
    except ValueError:
        program = verb = name = ""
    if program != "foveate" or verb not in ("look", "demo"):
        raise RequestError(
            422, f"foveate look … or foveate demo … can draw a step, but not {command!r}"
        )
    form = Question if verb == "look" and find(name) else demos.find(name).options
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
            place = find(name).spec.by_place if verb == "look" else ""
            fields[place or word] = [word]
    several = {field for field, x in form.model_fields.items() if get_origin(x.annotation) is tuple}
    values = {field: x if field in several else x[-1] for field, x in fields.items()}
    try:
        return name, runs, form.model_validate(values, strict=False)
    except ValidationError as error:
        raise RequestError(422, f"foveate {verb} {name}: {invalid_field(error)}") from None
