"""Shared by the verbs of the command line: options, loading a run, lines in, messages out."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeVar

import typer
from typer.core import TyperGroup

from foveate.errors import ConfigError, install

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter
    from typer.core import TyperOption

    from foveate.run import Run

Item = TypeVar("Item")
Runs = TypeVar("Runs", Path, list[Path])


def set_threads(threads: int | None) -> int | None:
    """Set the number of processor threads of each operation, where one is named.

    PyTorch that is not loaded yet takes it from the environment.
    """
    if threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    elif threads is not None:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    return threads


def installed() -> dict[str, Path]:
    """Return the packed file of each installed model."""
    spec = find_spec("foveate_models")
    folders = [] if spec is None else map(Path, spec.submodule_search_locations or ())
    files = (file for folder in folders for file in folder.glob("files/*.safetensors"))
    return {file.stem: file for file in sorted(files)}


def installed_model(path: Path) -> tuple[Path, str]:
    """Resolve a path, with a remark: the path itself if it exists, or an installed model's file.

    Raises ``ConfigError`` for a bare name that is neither; any other path is left to the caller.
    """
    name = str(path)
    if path.name != name or name in (".", ".."):
        return path, ""
    models = installed()
    if path.exists():
        both = f"{name} is the one in this folder, not the installed model of that name"
        return path, both if name in models else ""
    if name in models:
        return models[name], ""
    from foveate.config import PACKAGED

    small = f"; or take packaged/{name}" if (PACKAGED / name).is_dir() else ""
    there = f"installed are {', '.join(models)}" if models else "none is"
    raise ConfigError(
        f"{name}: no run or file of that name is here, and no such model is installed ({there}); "
        f"make a run: foveate train; models: {remedy()}{small}"
    )


def remedy() -> str:
    """Return how to install the models: from an index, or from the wheel that a checkout builds."""
    line = install("models")
    made = "in a checkout of foveate: make models && pip install dist/foveate_models-*.whl"
    return made if line.startswith("in a checkout") else line


def named(paths: Runs) -> Runs:
    """Return paths of runs, files or installed models; raise ``ConfigError`` without PyTorch."""
    from foveate.config import check_run, published, shipped

    if not paths:  # of a view that needs no run
        return paths

    resolved = [installed_model(path) for path in (paths if isinstance(paths, list) else [paths])]
    say(remark for _, remark in resolved if remark)
    resolved = [(as_run(path) if published(path) else path, remark) for path, remark in resolved]
    for folder in (shipped(path) for path, _ in resolved if not shipped(path).is_file()):
        check_run(folder)
    return [path for path, _ in resolved] if isinstance(paths, list) else resolved[0][0]


def as_run(folder: Path) -> Path:
    """Return the run of a published folder; say where it is kept when it is made."""
    from foveate.exchange.importing import cached_run, run_in_cache

    if not (place := run_in_cache(folder)).exists():
        say([f"{folder} is read once and kept as the run {place}"])
    return cached_run(folder)


Threads = Annotated[
    int | None, typer.Option(min=1, max=4096, callback=set_threads, help="processor threads")
]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", callback=named, help="folder of a run, or a model's name")
]
Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]
BeamSize = Annotated[int | None, typer.Option(min=1, help="default: the run's")]
LengthPenalty = Annotated[float | None, typer.Option(help="power of the length that divides")]
BatchTokens = Annotated[int | None, typer.Option(min=1, help="source tokens per batch")]
Ensemble = Annotated[list[Path] | None, typer.Option(metavar="RUN", help="run to add; repeatable")]
Precision = Annotated[Literal["fp32", "int8"], typer.Option(help="fp32 or int8 weights")]
Decode = Annotated[list[str] | None, typer.Argument(metavar="[decode.a=b …]")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[a.b=c …]", help="override config values; none removes one"),
]
DataKind = Literal["pairs", "labelled", "text", "series"]
TaskName = Literal[
    "auto", "translation", "transduction", "classification", "language", "masked", "forecasting",
    "captioning", "vision",
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Ban = Annotated[list[str] | None, typer.Option(metavar="PHRASE", help="phrase never to output")]
Fuzzy = Annotated[float, typer.Option(min=1, max=100, help="minimum similarity in the memory, %")]


def flat(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb for typer: in place of each dataclass that it takes, the fields of this class.

    They are annotated as the parameters of a verb, and may be such dataclasses themselves.
    """

    @wraps(verb)
    def call(**values: object) -> None:
        _made_of(verb, values)

    setattr(call, "__signature__", inspect.Signature(list(_flat_parameters(verb))))  # noqa: B010
    return call


def _flat_parameters(target: Callable[..., object]) -> Iterator[inspect.Parameter]:
    for each in inspect.signature(target, eval_str=True).parameters.values():
        if isinstance(each.annotation, type) and is_dataclass(each.annotation):
            yield from _flat_parameters(each.annotation)
        else:
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _made_of(target: Callable[..., Item], values: Mapping[str, object]) -> Item:
    """Call a verb or a dataclass with its part of the values of `_flat_parameters`."""
    arguments = dict[str, object]()
    for name, each in inspect.signature(target, eval_str=True).parameters.items():
        group = is_dataclass(each.annotation)
        arguments[name] = _made_of(each.annotation, values) if group else values[name]
    return target(**arguments)


class VerbGroup(TyperGroup):
    """Verbs under a name, whose ``--help`` is False where it is absent.

    typer's default for an absent flag is None, checked by pydantic, whose import takes longer than
    all else that a help text needs.
    """

    def get_help_option(self, ctx: Context) -> TyperOption | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


class _DefaultContext(typer.Context):
    """The context of a command that needs no name: its usage is that of its group."""

    @property
    def command_path(self) -> str:
        return super().command_path if self.parent is None else self.parent.command_path


class DefaultGroup(VerbGroup):
    """Commands of which the first needs no name: ``serve RUN`` is ``serve runs RUN``.

    The help of the group shows the arguments and options of that command, then the other commands.
    """

    @property
    def default(self) -> str:
        return next(iter(self.commands))

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name == self.default:
            command.context_class = _DefaultContext
        return name, command, rest

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return self.commands[self.default].collect_usage_pieces(ctx)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def chosen(group: object) -> dict[str, Any]:
    """Return the options of a group that are set, by name."""
    return {name: value for name, value in vars(group).items() if value is not None}


def load(run: Path, checkpoint: str = "best", ensemble: Sequence[Path] = ()) -> Run:
    """Load the run of a folder, or several as one ensemble."""
    from foveate.run import load

    return load(run, checkpoint, ensemble)


def check_inputs(run: Run, text: object = None, image: object = None) -> None:
    """Raise ``ConfigError`` for a text if a run reads pictures, or for a picture if it does not."""
    pictures = run.task.reads == "picture"
    if pictures and text is not None:
        raise ConfigError(f"--text: {run.folder} reads pictures; give one with --image")
    if not pictures and image is not None:
        raise ConfigError(f"--image: {run.folder} reads {run.task.reads}; write --text")


CHUNK = 4096  # lines translated together: enough to sort by length, little enough for memory
SHOWN = 10  # line numbers, or file names, in a message
Place = int | str  # the number of a line, from 1, or FILE:LINE


@dataclass
class Tally:
    """Events by the input lines where they happened, and remarks."""

    lines: dict[str, list[Place]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def note(self, event: str, *lines: Place) -> None:
        """Count an event on each line; the first lines are named in the report."""
        if lines:
            self.lines.setdefault(event, []).extend(lines)

    def read(self, source: BinaryIO, size: int = CHUNK) -> Iterator[list[str]]:
        """Yield the lines of a stream in chunks of ``size``, one by one from a terminal.

        Lines that are not UTF-8 are read with U+FFFD, and noted at the end. Raises ``ConfigError``
        for one with a NUL byte, which no text has.
        """
        from foveate.data.text import DAMAGED, portions, read_lines

        damaged = list[int]()
        lines = without_nul(read_lines(source, damaged))
        yield from portions(lines, 1 if source.isatty() else size)
        self.note(DAMAGED, *damaged)

    def report(self) -> list[str]:
        """Return a sentence for each event, then the remarks."""
        sentences = []
        for event, lines in self.lines.items():
            count = "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
            numbers = ", ".join(map(str, lines[:SHOWN])) + (", …" if len(lines) > SHOWN else "")
            sentences.append(f"{count} {event}: {numbers}")
        return [*sentences, *self.remarks]


def without_nul(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text. Raises ``ConfigError`` for one with a NUL byte: it is a binary."""
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise ConfigError(
                f"line {number} of standard input has a NUL byte, so it is not text: write lines "
                "of UTF-8 (gunzip unpacks .gz, msgunfmt makes PO of .mo, iconv -f UTF-16 -t UTF-8 "
                "converts), or give a document to foveate translate by --in FILE"
            )
        yield line


def one_line(text: str) -> str:
    """Return a text without the characters that would make two lines of it."""
    return text.replace("\r", " ").replace("\n", " ")


def to_json(value: object, indent: int | None = 2) -> str:
    """Return plain values as JSON, on many lines or on one."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def hint(text: str) -> None:
    """Write a hint to standard error where standard input is a terminal."""
    if sys.stdin.isatty():
        typer.echo(text, err=True)


def say(sentences: Iterable[str]) -> None:
    """Write sentences to standard error, a line each."""
    for sentence in sentences:
        typer.echo(sentence, err=True)
