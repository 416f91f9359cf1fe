"""The verb ``foveate student``: a small translator from any teacher and text."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import foveate.cli.options as options
from foveate.cli.options import say
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from foveate.documents.languages import Direction
    from foveate.engine.answers import Translator
    from foveate.exchange.student.make import Texts
    from foveate.exchange.student.teachers import Teacher

TEACHER = "a run, packed file, model's name, folder of another library, URL or file of outputs"


@dataclass(frozen=True)
class TeacherChoice:
    """The options of how teachers are asked."""

    beam_size: options.BeamSize = None
    ensemble: options.Ensemble = None
    model: Annotated[str, typer.Option(help="model's name in an OpenAI API")] = ""
    prompt: Annotated[str, typer.Option(help="text with {text}, {source}, {target}")] = ""
    key_env: Annotated[str, typer.Option(metavar="NAME", help="variable that has the key")] = ""
    batch: Annotated[int | None, typer.Option(min=1, help="lines per request")] = None
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds per request")] = 60.0

    def open(self, name: str, pair: Direction, sources: Sequence[str]) -> Teacher:
        """Return a teacher. Raises ``ConfigError`` for what is none, or lacks its key."""
        from foveate.exchange.student import teachers

        path, others = Path(name), self.ensemble or []
        if name.startswith(("http://", "https://")):
            key, prompt = os.environ.get(self.key_env, ""), self.prompt or teachers.PROMPT
            if self.key_env and not key:
                raise ConfigError(f"--key-env {self.key_env}: put the key into this variable")
            own = pair, self.model, prompt, self.key_env, key, self.timeout, lambda x: say([x])
            return teachers.HttpService(name, *own).teacher(self.batch)
        if (path / "model.bin").is_file():
            return teachers.of_ctranslate2(path, self.beam_size)
        if path.is_file() and path.suffix != ".safetensors":
            return teachers.of_file(path, lines_of([path]), sources)
        from foveate.config import shipped
        from foveate.engine import packed

        run = shipped(options.named(path))
        model: Translator = (
            packed.load(run) if run.is_file() else options.load(run, ensemble=others)
        )
        name = " + ".join(str(each.resolve()) for each in (run, *others))
        return teachers.of_model(model, name, pair.to or pair.target, self.beam_size)


@dataclass(frozen=True)
class Lessons:
    """The options of what the student learns from."""

    teacher: Annotated[str, typer.Option(metavar="T", help=TEACHER)]
    pair: Annotated[str, typer.Option(help="en:fr, or en:fr:fra_Latn")]
    source: Annotated[list[Path], typer.Option(metavar="TEXT", help="text file; repeatable")]
    back: Annotated[list[Path] | None, typer.Option(help="text in the target language")] = None
    back_teacher: Annotated[str, typer.Option(metavar="T", help="teacher that translates it")] = ""
    noise: Annotated[float, typer.Option(min=0, max=1, help="share of noisy copies")] = 0.0
    least_score: Annotated[float, typer.Option(help="minimum mean log p per token")] = -math.inf
    price: Annotated[float, typer.Option(min=0, help="price per million of --per")] = 0.0
    per: Annotated[Literal["characters", "tokens"], typer.Option(help="unit of price")] = (
        "characters"
    )
    budget: Annotated[float, typer.Option(min=0, help="limit in the units of --price")] = math.inf

    def texts(self, out: Path, pair: Direction, choice: TeacherChoice) -> Texts:
        """Open teachers and their journals. Raises ``ConfigError`` for what does not fit."""
        from foveate.documents.languages import Direction
        from foveate.exchange.student.journal import Account, AnswerJournal

        if bool(self.back) != bool(self.back_teacher):
            raise ConfigError("--back TEXT and --back-teacher T belong together: add the other")
        if self.budget < math.inf and not self.price:
            raise ConfigError("--budget needs --price, the cost of a million characters or tokens")
        account = Account(self.price, self.per, self.budget)
        texts = {"source": (self.teacher, self.source, pair)}
        if self.back:
            texts["back"] = self.back_teacher, self.back, Direction(pair.target, pair.source)
        journals = {}
        for name, (teacher, files, direction) in texts.items():
            lines = lines_of(files)
            if not any(map(str.strip, lines)):
                raise ConfigError(f"{files[0]} has no text: write a sentence a line")
            opened = choice.open(teacher, direction, lines)
            journals[name] = AnswerJournal(out / f"{name}.jsonl", opened, lines, account)
        return journals


def lines_of(files: Sequence[Path]) -> list[str]:
    """Return the lines of text files. Raises ``ConfigError`` naming one that is not UTF-8."""
    from foveate.data.catalogue import find
    from foveate.data.text import decoded_lines

    lines = list[str]()
    for file in files:
        for number, (line, why) in enumerate(decoded_lines(find(file)), 1):
            if why:
                raise ConfigError(f"{file}:{number}: {why}: write this line in UTF-8")
            lines.append(line)
    return lines


def student(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder for the results")],
    lessons: Lessons,
    overrides: options.Overrides = None,
    choice: TeacherChoice = TeacherChoice(),
    minutes: Annotated[float, typer.Option(min=0.01, help="minutes of training")] = 30.0,
    test: Annotated[tuple[Path, Path] | None, typer.Option(help="source and reference")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="print the plan and stop")] = False,
    no_train: Annotated[bool, typer.Option("--no-train", help="stop after the data")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="start without asking")] = False,
) -> None:
    """Make a small translator from any teacher's answers."""
    from foveate.documents.languages import CODE, Direction
    from foveate.exchange.student import make
    from foveate.train.checkpoint import run_lock

    codes, changed = lessons.pair.split(":", 2), overrides or []
    if len(codes) < 2 or not all(map(CODE.fullmatch, codes[:2])):
        raise ConfigError(f"--pair {lessons.pair} is not a pair of languages: expected en:fr")
    with run_lock(out):
        pair = Direction(*codes)
        texts = lessons.texts(out, pair, choice)
        say(make.plan(texts, minutes, changed))
        if plan:
            return
        if not (yes or sys.stdin.isatty()):
            raise ConfigError("--yes is needed to begin where nobody can be asked")
        if not yes:
            typer.confirm("begin?", abort=True, err=True)
        rows = make.write_data(out, pair, texts, lessons.noise, lessons.least_score)
        typer.echo("\n".join(rows))
        if no_train:
            return
        file = make.trained(out, pair, minutes, changed)
    if test is not None:
        figures = make.measured(file, lines_of(test[:1]), lines_of(test[1:]))
        typer.echo("  ".join(f"{name} {value:.1f}" for name, value in figures.items()))
    typer.echo(f"foveate serve {file} --as {pair.code}")
