"""The command line: each verb is a function of a module of this package.

Verbs import what they need when they are called, so that ``foveate --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from foveate.cli import (
    align,
    answers,
    bench,
    check,
    compare,
    data,
    doctor,
    export,
    looking,
    serve,
    train,
    translate,
)
from foveate.cli.options import VerbGroup
from foveate.errors import one_line_errors

app = typer.Typer(
    name="foveate",
    cls=VerbGroup,
    help="Train, look inside and use models of sequences.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS: tuple[Callable[..., None], ...] = (
    train.train,
    answers.evaluate,
    compare.compare,
    answers.score,
    data.new,
    answers.answer,
    translate.translate,
    answers.classify,
    answers.generate,
    answers.forecast,
    answers.caption,
    train.distill,
    train.shortlist,
    serve.studio,
    export.pack,
    export.export,
    export.import_,
    doctor.show,
    train.average,
    doctor.kinds,
    check.check,
    doctor.doctor,
    train.quickstart,
    doctor.version,
)
for verb in VERBS:
    app.command(verb.__name__.rstrip("_"))(verb)
for name, group in {
    "look": looking.look,
    "demo": looking.demo,
    "data": data.data,
    "bench": bench.bench,
    "align": align.align,
    "serve": serve.serve,
}.items():
    app.add_typer(group, name=name)


@app.callback(invoke_without_command=True)
def program(
    show_version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="let runs import the modules that they name")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where errors arise")] = False,
) -> None:
    """Train, look inside and use models of sequences."""
    if trust:
        os.environ["FOVEATE_TRUST"] = "1"  # for worker processes too
    if debug:
        os.environ["FOVEATE_DEBUG"] = "1"
    if show_version:
        doctor.version()
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's error is one red line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.argv[1:] = sorted(sys.argv[1:], key=lambda argument: argument != "--trust")  # anywhere
    with one_line_errors():
        app(prog_name="foveate")
