"""The verbs ``foveate look …`` and ``foveate demo …``: one for each view and each demo.

The fields of a question become options, and so do the parameters of a demo; the views themselves
are in `foveate.look.views`, the demos in `foveate.look.views.demos`.
"""

from __future__ import annotations

import inspect
import shutil
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.options import Checkpoint, VerbGroup, check_inputs, installed_model, named
from foveate.look.views import VIEWS, ViewEntry, nearest
from foveate.look.views.demos import DEMOS, DemoEntry, find

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from typer._click import Command, Context, HelpFormatter

    from foveate.look.draw.drawings import Drawing

Out = Annotated[
    list[Path] | None,
    typer.Option(help="png, svg, pdf, webp, html, json, npz or txt; repeatable"),
]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN…", callback=named, help="folders of runs")]
OnlyRun = Annotated[
    Path, typer.Argument(metavar="RUN", callback=named, help="folder of a run, or a packed file")
]
# Rows and columns of attention: --tokens, --words, or by the tokenizer and the script.
UNITS = {True: "tokens", False: "words", None: None}
Call = Callable[..., None]


class Views(VerbGroup):
    """A verb for each view."""

    def list_commands(self, ctx: Context) -> list[str]:
        return sorted(VIEWS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:
        return verb(nearest("view", cmd_name, VIEWS))

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the verb, after its run: the verb of a view imports PyTorch."""
        name, *words = args
        if name in VIEWS and words and not words[0].startswith("-"):
            installed_model(Path(words[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write names and summaries, without making a verb of each view."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, VIEWS[name].summary) for name in self.list_commands(ctx)])


look = typer.Typer(
    cls=Views, help="Draw what a model does.", no_args_is_help=True, rich_markup_mode=None
)


def _draw_view(
    name: str,
    paths: Sequence[Path],
    fields: Mapping[str, Any],
    checkpoint: str,
    out: Sequence[Path] | None,
) -> None:
    """Load the runs, draw a view of them, and write the drawing; or that of a packed file."""
    from foveate.look.views.options import Question, draw_packed

    question = Question.parse({key: value for key, value in fields.items() if value is not None})
    if file := next((path for path in paths if path.is_file()), None):
        from foveate.engine.packed import load

        return write(draw_packed(name, load(file), question), out)
    from foveate.run import load as load_run

    runs = [load_run(path, checkpoint) for path in paths]
    for run in runs:
        check_inputs(run, fields.get("text"), fields.get("image"))
    write(VIEWS[name].draw(runs, question), out)


def write(drawing: Drawing, out: Sequence[Path] | None) -> None:
    """Write a drawing to each path and print their names; without paths print its text."""
    columns = shutil.get_terminal_size().columns
    lines = [f"wrote {drawing.save(path)}" for path in out or ()] or [drawing.text(columns)]
    typer.echo("\n".join(lines))


def verb(entry: ViewEntry) -> Command:
    """Make the verb of a view: its runs, the fields that it reads, and where to write."""

    def call(**fields: Any) -> None:
        if "units" in fields:
            fields["units"] = UNITS[fields["units"]]
        runs, out, checkpoint = fields.pop("runs"), fields.pop("out"), fields.pop("checkpoint")
        paths = [runs] if isinstance(runs, Path) else runs or []
        _draw_view(entry.name, paths, fields, checkpoint, out)

    reads, by_place, several = _form(entry)
    parameters = [_parameter("runs", Runs if several else OnlyRun, inspect.Parameter.empty)]
    for name in sorted(reads, key=lambda name: name != by_place):
        annotation, default = _option(name, by_place=name == by_place)
        parameters.append(_parameter(name, annotation, default))
    parameters += [_parameter("out", Out, None), _parameter("checkpoint", Checkpoint, "best")]
    return _command(entry, call, parameters)


def _form(entry: ViewEntry) -> tuple[Sequence[str], str, bool]:
    """Return the fields that a view reads, the positional one, and whether it takes several runs.

    Without PyTorch they are those of a packed file, if the view can draw one.
    """
    if find_spec("torch") is None:
        from foveate.look.views.options import PACKED_VIEWS

        if entry.name in PACKED_VIEWS:
            return ("text", "target", "units", *PACKED_VIEWS[entry.name][1]), "", False
    return entry.reads, entry.spec.by_place, entry.spec.several


def _command(
    entry: ViewEntry | DemoEntry, call: Call, parameters: list[inspect.Parameter]
) -> Command:
    """Make the command of an entry; it calls ``call`` with a value for each parameter."""
    setattr(call, "__signature__", inspect.Signature(parameters))  # noqa: B010
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(entry.name, help=entry.summary)(call)
    return typer.main.get_command(app)


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _option(name: str, by_place: bool) -> tuple[object, object]:
    """Return the annotation and default of a field of a question, an option or an argument."""
    from foveate.look.views.options import Question

    field = Question.model_fields[name]
    if by_place:
        argument = typer.Argument(metavar=name.upper(), help=field.description)
        return Annotated[_plain(field.annotation), argument], inspect.Parameter.empty
    if name == "units":
        flag = typer.Option("--tokens/--words", help=field.description)
        return Annotated[bool | None, flag], None
    return _of_field(field, *["--not", "--foil"] * (name == "foil"))


def _of_field(field: FieldInfo, *flags: str) -> tuple[object, object]:
    """Return the annotation and default of a field as an option; its config checks the bounds."""
    option = typer.Option(*flags, help=field.description)
    default = (list(field.default) or None) if isinstance(field.default, tuple) else field.default
    return Annotated[_plain(field.annotation) | None, option], default


def _plain(annotation: Any) -> Any:
    """Return the type of a field for the command line: str, int, Path, or a list of them."""
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return str
    if origin is tuple:
        return list[_plain(parts[0])]  # type: ignore[misc]
    return _plain(parts[0]) if parts else annotation


class Demos(VerbGroup):
    """A verb for each demo."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(DEMOS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:
        """Make the verb of a demo: its parameters as options, and where to write."""
        entry = find(cmd_name)

        def call(out: list[Path] | None, **values: Any) -> None:
            write(entry.draw({k: v for k, v in values.items() if v is not None}), out)

        fields = entry.options.model_fields.items()
        parameters = [_parameter(name, *_of_field(field)) for name, field in fields]
        return _command(entry, call, [*parameters, _parameter("out", Out, None)])

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write names and summaries, without making a verb of each demo."""
        with formatter.section("Demos"):
            formatter.write_dl([(name, entry.summary) for name, entry in DEMOS.items()])


demo = typer.Typer(
    cls=Demos, help="Draw an idea without a run: numbers and untrained models.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip
