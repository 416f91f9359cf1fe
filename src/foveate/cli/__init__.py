"""The command line: each verb is a function of a module of this package.

Verbs import what they need when they are called, so that ``foveate --help`` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import keyword
import os
import sys
import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from foveate.cli.options import VerbGroup, flat
from foveate.errors import UserError, one_line_errors, open_streams

if TYPE_CHECKING:
    from typer._click import Command, Context

VERBS = {  # the module of each, in the order of the help text
    "train": "train", "evaluate": "answers", "compare": "measure", "score": "answers",
    "new": "data", "answer": "answers", "translate": "translate", "draft": "translate",
    "classify": "answers", "generate": "answers", "student": "student", "shortlist": "train",
    "studio": "serve", "pack": "export", "publish": "export", "export": "export",
    "import": "export", "show": "doctor", "average": "train", "kinds": "doctor",
    "check": "measure", "doctor": "doctor", "quickstart": "train", "look": "looking",
    "demo": "looking", "data": "data", "bench": "measure", "align": "align", "serve": "serve",
    "models": "doctor",
}  # fmt: skip


class AllVerbs(VerbGroup):
    """All verbs, each of which is imported and made when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        for name in [cmd_name] if cmd_name in VERBS else VERBS:  # all, to name one that is near
            if name not in self.commands:
                self.add_command(_made(name), name)
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Import the files of ``--import FILE``, which may stand anywhere, and leave them out.

        To typer it is a flag: it would import pydantic for an option with a value.
        """
        words, files, rest = list[str](), list[str](), iter(args)
        for word in rest:
            if word.partition("=")[0] == "--import":
                files.append(word.partition("=")[2] or next(rest, ""))
            else:
                words.append(word)
        if "" in files:
            raise UserError("--import needs a file, such as --import my_views.py")
        if files:
            os.environ["FOVEATE_IMPORT"] = ",".join(files)  # for worker processes too
        if os.environ.get("FOVEATE_IMPORT"):
            from foveate.config import import_own

            import_own()
        return super().parse_args(ctx, words)


def _made(name: str) -> Command:
    module = importlib.import_module(f"foveate.cli.{VERBS[name]}")
    verb = getattr(module, f"{name}_" if keyword.iskeyword(name) else name)
    only = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(verb, typer.Typer):
        only.add_typer(verb, name=name)
    else:
        only.command(name)(flat(verb))
    return typer.main.get_group(only).commands[name]


# The options of shell completion import pydantic: they exist where they are asked for.
COMPLETES = "_FOVEATE_COMPLETE" in os.environ or any(
    "-completion" in word for word in sys.argv[1:2]
)
app = typer.Typer(
    name="foveate",
    cls=AllVerbs,
    help="Train, inspect and serve sequence models.",
    no_args_is_help=True,
    add_completion=COMPLETES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def program(
    show_version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="let runs import the modules they list")
    ] = False,
    own: Annotated[
        bool, typer.Option("--import", help="FILE: import your own Python file; repeatable")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="print tracebacks of errors")] = False,
) -> None:
    """Train, inspect and serve sequence models."""
    if trust:
        os.environ["FOVEATE_TRUST"] = "1"  # for worker processes too
    if debug:
        os.environ["FOVEATE_DEBUG"] = "1"
    if show_version:
        from foveate import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's error is one red line and exit code 2."""
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.argv[1:] = sorted(sys.argv[1:], key=lambda argument: argument != "--trust")  # anywhere
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them takes 0.02 s
    atexit.register(gc.freeze)  # else the last collections search all that was imported: 0.03 s
    warnings.formatwarning = lambda message, *_: f"{message}\n"
    with one_line_errors():
        app(prog_name="foveate")
