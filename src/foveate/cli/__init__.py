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

from foveate.cli.align import align as align_group
from foveate.cli.answers import answer, caption, classify, evaluate, forecast, generate, score
from foveate.cli.bench import bench as bench_group
from foveate.cli.data import data as data_group
from foveate.cli.data import new as new_verb
from foveate.cli.doctor import doctor as doctor_verb
from foveate.cli.doctor import kinds, show, version
from foveate.cli.export import export as export_verb
from foveate.cli.export import import_
from foveate.cli.looking import look
from foveate.cli.options import VerbGroup
from foveate.cli.serve import serve as serve_group
from foveate.cli.serve import studio
from foveate.cli.train import average, distill, quickstart, shortlist
from foveate.cli.train import train as train_verb
from foveate.cli.translate import translate as translate_verb
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
verbs: dict[str, Callable[..., None]] = {
    "train": train_verb,
    "evaluate": evaluate,
    "score": score,
    "new": new_verb,
    "answer": answer,
    "translate": translate_verb,
    "classify": classify,
    "generate": generate,
    "forecast": forecast,
    "caption": caption,
    "distill": distill,
    "shortlist": shortlist,
    "studio": studio,
    "export": export_verb,
    "import": import_,
    "show": show,
    "average": average,
    "kinds": kinds,
    "doctor": doctor_verb,
    "quickstart": quickstart,
    "version": version,
}
for name, verb in verbs.items():
    app.command(name)(verb)
app.add_typer(look, name="look")
app.add_typer(data_group, name="data")
app.add_typer(bench_group, name="bench")
app.add_typer(align_group, name="align")
app.add_typer(serve_group, name="serve")


@app.callback(invoke_without_command=True)
def program(
    show_version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where errors arise")] = False,
) -> None:
    """Train, look inside and use models of sequences."""
    if debug:
        os.environ["FOVEATE_DEBUG"] = "1"
    if show_version:
        version()
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's error is one red line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    with one_line_errors():
        app(prog_name="foveate")
