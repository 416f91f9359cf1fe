"""The verbs ``foveate look …``: one for each view of the registry, made when it is called.

The fields of a question become options; the views themselves are in `foveate.look.views`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli.options import VerbGroup
from foveate.look.views import VIEWS, ViewEntry

Out = Annotated[
    list[Path] | None, typer.Option(help="png, svg, pdf, html, json, npz or txt; may be repeated")
]
Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders of runs")]
# Rows and columns of attention: --tokens, --words, or by the tokenizer and the script.
UNITS = {True: "tokens", False: "words", None: None}
OnlyRun = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")]


class Views(VerbGroup):
    """The verbs that are written below, and one for each other view."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*self.commands, *VIEWS})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        written = super().get_command(ctx, cmd_name)
        return verb(VIEWS[cmd_name]) if written is None and cmd_name in VIEWS else written

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Names and lines, without making a verb of each view."""
        summaries = {name: entry.summary for name, entry in VIEWS.items()}
        summaries |= {name: command.help or "" for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, summaries[name]) for name in self.list_commands(ctx)])


look = typer.Typer(
    cls=Views, help="Draw what a model does.", no_args_is_help=True, rich_markup_mode=None
)


@look.command()
def positions(
    kind: Annotated[str, typer.Argument(metavar="KIND|RUN", help="see: foveate kinds position")],
    length: Annotated[int, typer.Option(min=2, help="places")] = 64,
    hidden_size: Annotated[int, typer.Option(min=2, help="numbers of a vector, of a KIND")] = 64,
    num_heads: Annotated[int, typer.Option(min=1, help="of a KIND")] = 4,
    out: Out = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw what a position encoding tells of each place."""
    import foveate.cli.pictures as pictures

    if (Path(kind) / "config.toml").is_file():
        drawing = pictures.drawn("positions", [Path(kind)], {"length": length}, checkpoint)
    else:
        drawing = pictures.positions(kind, length, hidden_size, num_heads)
    _say(pictures.saved(drawing, out or []))


@look.command()
def schedule(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG…", help="TOML files or runs")],
    steps: Annotated[int | None, typer.Option(min=1, help="default: the longest")] = None,
    out: Out = None,
) -> None:
    """Draw the learning rates of configs."""
    import foveate.cli.pictures as pictures

    _say(pictures.saved(pictures.schedule(configs, steps), out or []))


@look.command()
def report(
    run: OnlyRun,
    out: Annotated[Path, typer.Option(help="the page, .html")] = Path("report.html"),
    text: Annotated[str | None, typer.Option(help="what the model reads")] = None,
    image: Annotated[str | None, typer.Option(help="picture, or number of one")] = None,
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    checkpoint: Checkpoint = "best",
) -> None:
    """Write one page with every view that fits a run."""
    import foveate.cli.pictures as pictures

    fields = {"text": text, "image": image, "split": split}
    _say(pictures.report(run, out, fields, checkpoint))


def verb(entry: ViewEntry) -> Any:
    """The verb of a view: its runs, the fields that it reads as options, and where to write."""
    second, several = entry.spec.by_place, entry.spec.several

    def call(**fields: Any) -> None:
        import foveate.cli.pictures as pictures

        if "units" in fields:
            fields["units"] = UNITS[fields["units"]]
        runs, out, checkpoint = fields.pop("runs"), fields.pop("out"), fields.pop("checkpoint")
        folders = runs if several else [runs]
        view = pictures.drawn(entry.name, folders or [], fields, checkpoint)
        _say(pictures.saved(view, out or []))

    runs: Any = Runs if several else OnlyRun
    optional = entry.runs[0] == 0
    parameters = [_parameter("runs", runs, None if optional else inspect.Parameter.empty)]
    parameters += [_option(name, by_place=name == second) for name in _order(entry)]
    parameters += [_parameter("out", Out, None), _parameter("checkpoint", Checkpoint, "best")]
    return _command(entry, call, parameters)


def _order(entry: ViewEntry) -> list[str]:
    return sorted(entry.reads, key=lambda name: name != entry.spec.by_place)


def _option(name: str, by_place: bool) -> inspect.Parameter:
    """A field of the question as an option, or as what stands behind the run."""
    from foveate.look.views.options import Question

    field = Question.model_fields[name]
    default = None if field.default == () else field.default
    if by_place:
        option: Any = typer.Argument(metavar=name.upper(), help=field.description)
        return _parameter(
            name, Annotated[_plain(field.annotation), option], inspect.Parameter.empty
        )
    if name == "units":
        flag = typer.Option("--tokens/--words", help=field.description)
        return _parameter(name, Annotated[bool | None, flag], None)
    option = typer.Option(help=field.description)
    return _parameter(name, Annotated[_plain(field.annotation) | None, option], default)


def _plain(annotation: Any) -> Any:
    """The type of a field as the command line knows it: str, int, Path, or a list of them."""
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return str
    if origin is tuple:
        return list[_plain(parts[0])]  # type: ignore[misc]
    return parts[0] if parts else annotation


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _command(
    entry: ViewEntry, call: Callable[..., None], parameters: list[inspect.Parameter]
) -> Any:
    command: Any = call
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(entry.name, help=entry.summary)(command)
    return typer.main.get_command(app)


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
