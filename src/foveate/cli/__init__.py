"""The command line: a verb for a function, its arguments and nothing else.

Does not live here: what the commands do (`foveate.cli.streams`, `foveate.cli.workers`, …).
Nothing heavy is imported before a verb needs it, so ``foveate --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from foveate import __version__
from foveate.cli import (
    align,
    export,
    forecast,
    labels,
    language,
    looking,
    methods,
    new,
    options,
    serve,
    studio,
    translating,
    vision,
)
from foveate.cli.bench import bench
from foveate.cli.data import data
from foveate.cli.options import (
    BatchTokens,
    BeamSize,
    Checkpoint,
    Decode,
    Ensemble,
    Json,
    LengthPenalty,
    Overrides,
    Precision,
    RunPath,
    Threads,
)
from foveate.errors import one_line_errors

app = typer.Typer(
    name="foveate",
    cls=options.Group,
    help="Train, look inside and use models of sequences.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(looking.look, name="look")
app.add_typer(data, name="data")
app.add_typer(bench, name="bench")

# ------------------------------------------------------------------------------ train and use


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml")],
    overrides: Overrides = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="where the run goes")] = None,
) -> None:
    """Train a config; a run that exists goes on."""
    from foveate.training import train as train_run

    train_run(config, overrides or [], run)


@app.command()
def evaluate(
    run: RunPath,
    overrides: Decode = None,
    source: Annotated[Path | None, typer.Option("--data", help="inputs, or pairs")] = None,
    reference: Annotated[Path | None, typer.Option(help="references, line by line")] = None,
    split: Annotated[str, typer.Option(help="of the run's own data, without --data")] = "test",
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: BatchTokens = None,
    bleu_tokenizer: Annotated[
        str | None, typer.Option(help="that cuts BLEU's words; default: by the references' script")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="write the outputs here")] = None,
    ensemble: Ensemble = None,
    checkpoint: Checkpoint = "best",
    precision: Precision = "fp32",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """All figures of the task on held-out data."""
    from foveate.cli import streams

    loaded = options.load(run, checkpoint, threads, ensemble, overrides, precision)
    search = options.search(beam_size, length_penalty, batch_tokens)
    if bleu_tokenizer is not None:
        search["bleu_tokenizer"] = bleu_tokenizer
    evaluation = streams.evaluate(loaded, source, reference, split, search)
    if output is not None:
        streams.write_outputs(evaluation.outputs, output)
    typer.echo(streams.evaluation_text(evaluation, as_json))
    options.say(streams.noted(evaluation).report())


@app.command()
def score(
    run: RunPath,
    tokens: Annotated[bool, typer.Option("--tokens", help="also each token's")] = False,
    ensemble: Ensemble = None,
    checkpoint: Checkpoint = "best",
    threads: Threads = None,
) -> None:
    """Log-probabilities of given pairs (TSV, stdin)."""
    from foveate.cli import streams

    loaded = options.load(run, checkpoint, threads, ensemble)
    options.hint("Type SOURCE TAB TARGET; Ctrl-D ends.")
    options.say(streams.score(loaded, sys.stdin.buffer, sys.stdout, tokens).report())


new.add(app)
# the other verbs, each family in a file of its own
translating.add(app)
labels.add(app)
language.add(app)
forecast.add(app)
vision.add(app)
align.add(app)
methods.add(app)
studio.add(app)
serve.add(app)
export.add(app)


# ------------------------------------------------------------------------------ runs


@app.command()
def show(run: RunPath) -> None:
    """A run: settings, data, figures, steps."""
    from foveate.cli import streams

    typer.echo(streams.description(options.load(run, "best", None)))


@app.command()
def average(
    run: RunPath,
    last: Annotated[int | None, typer.Option(min=1, help="how many; all kept if absent")] = None,
) -> None:
    """Average the weights of the last checkpoints."""
    from foveate.training import average as average_run

    typer.echo(average_run(run, last))


# ------------------------------------------------------------------------------ the program


@app.command("kinds")
def list_kinds(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="score, train, train.save, max_minutes, metrics, …"),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a config may hold: tables, kinds, fields."""
    from foveate import kinds
    from foveate.cli import streams
    from foveate.run import RunConfig

    chosen = kinds.described(name, RunConfig)
    typer.echo(streams.as_text(kinds.kinds_tree(chosen)) if as_json else kinds.kinds_table(chosen))


@app.command("doctor")
def call_doctor(as_json: Json = False) -> None:
    """What is slow on this machine, and why."""
    from foveate.cli import doctor, streams

    report = doctor.examine()
    typer.echo(streams.as_text(report.tree()) if as_json else report.text())


@app.command("quickstart")
def start_quickly(
    folder: Annotated[Path, typer.Option(help="where the run goes")] = Path("runs/quickstart"),
) -> None:
    """Train a small translator and look inside."""
    from foveate.cli.quickstart import main as quickstart

    quickstart(folder)


@app.command("version")
def print_version() -> None:
    """The version of foveate."""
    typer.echo(__version__)


@app.callback(invoke_without_command=True)
def program(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where errors arise")] = False,
) -> None:
    """Train, look inside and use models of sequences."""
    if debug:
        os.environ["FOVEATE_DEBUG"] = "1"
    if version:
        print_version()
        raise typer.Exit


def main() -> None:
    """Run the command line; what a user can mend is one red line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    with one_line_errors():
        app(prog_name="foveate")
