"""What verbs of the command line share: options, loading a run, talking on standard error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from foveate.cli.workers import Loading
    from foveate.run import Run


class Group(TyperGroup):
    """Verbs under a name, whose ``--help`` is False where it is not given.

    typer has an absent flag, None, checked by pydantic, and to import that takes longer than all
    else that a help text needs.
    """

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


class DefaultGroup(Group):
    """Commands of which one, ``default``, needs no name: ``serve RUN`` is ``serve runs RUN``.

    The help of the group shows the arguments and options of that command, then the other commands.
    """

    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = self.commands[self.default].collect_usage_pieces(ctx)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")]
Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]
Threads = Annotated[int | None, typer.Option(min=1, help="processor threads")]
BeamSize = Annotated[int | None, typer.Option(min=1, help="default: the run's own")]
LengthPenalty = Annotated[float | None, typer.Option(help="exponent of the length in scores")]
BatchTokens = Annotated[int | None, typer.Option(min=1, help="source tokens of a batch")]
Ensemble = Annotated[
    list[Path] | None, typer.Option(metavar="RUN", help="decode with it too; may be repeated")
]
Precision = Annotated[str, typer.Option(help="of the weights: fp32 or int8")]
Decode = Annotated[list[str] | None, typer.Argument(metavar="[decode.a=b …]")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[a.b=c …]", help="other values than the config's; none takes one away"),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def loading(
    run: Path,
    checkpoint: str,
    threads: int | None,
    ensemble: list[Path] | None = None,
    overrides: list[str] | None = None,
    precision: str = "fp32",
    engine: str = "torch",
    sample: Path | None = None,
) -> Loading:
    """How a run is to be loaded; the threads are set at once."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from foveate.cli.workers import Loading

    names = tuple(map(str, ensemble or ())), tuple(overrides or ())
    tried = None if sample is None else str(sample)
    return Loading(str(run), checkpoint, *names, precision, engine, tried)


def load(*choices: Any) -> Run:
    """The run of the same choices."""
    return loading(*choices).load()


def search(
    beam_size: int | None, length_penalty: float | None, batch_tokens: int | None
) -> dict[str, Any]:
    """The choices of a search, as a run takes them."""
    return {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "batch_tokens": batch_tokens,
    }


def hint(text: str) -> None:
    """Say something to who types at a terminal."""
    if sys.stdin.isatty():
        say([text])


def say(sentences: list[str]) -> None:
    """Write sentences to standard error, a line each."""
    for sentence in sentences:
        typer.echo(sentence, err=True)
