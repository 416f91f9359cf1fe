"""The command line: a verb for a function, its arguments and nothing else.

Does not live here: what the verbs do (`foveate.verbs`), the verbs of data (`foveate.cli.data`).
Nothing heavy is imported before a verb needs it, so ``foveate --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate import __version__
from foveate.cli import align, export, forecast, labels, language, looking, methods, studio, vision
from foveate.cli.bench import bench
from foveate.cli.data import data
from foveate.errors import one_line_errors

if TYPE_CHECKING:
    from foveate.run import Run
    from foveate.verbs.crew import Loading

app = typer.Typer(
    name="foveate",
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
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


# ------------------------------------------------------------------------------ train and use


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[a.b=c …]")] = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="where the run goes")] = None,
) -> None:
    """Train a config; a run that exists goes on."""
    from foveate.training import train as train_run

    train_run(config, overrides or [], run)


@app.command()
def translate(
    run: RunPath,
    overrides: Decode = None,
    beam_size: BeamSize = None,
    num_hypotheses: Annotated[int, typer.Option(min=1, help="more: n-best list")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="SCORE TAB TRANSLATION")] = False,
    alignments: Annotated[Path | None, typer.Option(help="Pharaoh file 0-0 1-2")] = None,
    attention: Annotated[Path | None, typer.Option(help="one HTML file of the maps")] = None,
    to: Annotated[str | None, typer.Option(help="language, if the run knows several")] = None,
    prefix_file: Annotated[
        Path | None, typer.Option(help="how outputs begin, line by line")
    ] = None,
    silence: Annotated[
        list[str] | None, typer.Option(metavar="PLACE[:HEAD,…]", help="heads that add nothing")
    ] = None,
    ensemble: Ensemble = None,
    batch_tokens: BatchTokens = None,
    length_penalty: LengthPenalty = None,
    checkpoint: Checkpoint = "best",
    precision: Precision = "fp32",
    engine: Annotated[str, typer.Option(help="torch or ctranslate2")] = "torch",
    processes: Annotated[int, typer.Option(min=1, help="of one thread each, for bulk work")] = 1,
    threads: Threads = None,
) -> None:
    """Translate stdin to stdout, a line for a line."""
    from foveate import verbs
    from foveate.config import ConfigError
    from foveate.look.edit import edit, silenced
    from foveate.verbs.crew import Crew

    search = _search(beam_size, length_penalty, batch_tokens) | {"to": to}
    wanted = verbs.Wanted(num_hypotheses, scores, alignments, attention, prefix_file)
    loading = _loading(run, checkpoint, threads, ensemble, overrides, precision, engine)
    loaded = loading.load()
    _hint("Type a sentence a line; Ctrl-D ends.")
    answering: Run | Crew = loaded
    with contextlib.ExitStack() as stack:
        if processes > 1 and silence:
            raise ConfigError("--silence works in this process alone: leave out --processes")
        if processes > 1:
            answering = stack.enter_context(Crew(loaded, loading, processes))
        stack.enter_context(edit(loaded.model, silenced(silence or [])))
        _say(verbs.translate(answering, sys.stdin.buffer, sys.stdout, wanted, search).report())


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
    output: Annotated[Path | None, typer.Option(help="write the outputs here")] = None,
    ensemble: Ensemble = None,
    checkpoint: Checkpoint = "best",
    precision: Precision = "fp32",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """All figures of the task on held-out data."""
    from foveate import verbs

    loaded = _load(run, checkpoint, threads, ensemble, overrides, precision)
    search = _search(beam_size, length_penalty, batch_tokens)
    evaluation = verbs.evaluate(loaded, source, reference, split, search)
    if output is not None:
        verbs.write_outputs(evaluation.outputs, output)
    typer.echo(verbs.evaluation_text(evaluation, as_json))
    _say(verbs.noted(evaluation).report())


@app.command()
def score(
    run: RunPath,
    tokens: Annotated[bool, typer.Option("--tokens", help="also each token's")] = False,
    ensemble: Ensemble = None,
    checkpoint: Checkpoint = "best",
    threads: Threads = None,
) -> None:
    """Log-probabilities of given pairs (TSV, stdin)."""
    from foveate import verbs

    loaded = _load(run, checkpoint, threads, ensemble)
    _hint("Type SOURCE TAB TARGET; Ctrl-D ends.")
    _say(verbs.score(loaded, sys.stdin.buffer, sys.stdout, tokens).report())


# the verbs of other tasks, each in a file of its own
labels.add(app)
language.add(app)
forecast.add(app)
vision.add(app)
align.add(app)
methods.add(app)
studio.add(app)
export.add(app)


# ------------------------------------------------------------------------------ runs


@app.command()
def show(run: RunPath) -> None:
    """A run: settings, data, figures, steps."""
    from foveate import verbs

    typer.echo(verbs.description(_load(run, "best", None)))


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
    family: Annotated[str | None, typer.Argument(metavar="[FAMILY]")] = None, as_json: Json = False
) -> None:
    """Every score, position, cell, … and its fields."""
    from foveate import kinds, verbs

    found = kinds.all_kinds(family)
    typer.echo(verbs.as_text(kinds.kinds_tree(found)) if as_json else kinds.kinds_table(found))


@app.command("doctor")
def call_doctor(as_json: Json = False) -> None:
    """What is slow on this machine, and why."""
    from foveate import doctor, verbs

    report = doctor.examine()
    typer.echo(verbs.as_text(report.tree()) if as_json else report.text())


@app.command("quickstart")
def start_quickly(
    folder: Annotated[Path, typer.Option(help="where the run goes")] = Path("runs/quickstart"),
) -> None:
    """Train a small translator and look inside."""
    from foveate.quickstart import main as quickstart

    quickstart(folder)


@app.command("version")
def print_version() -> None:
    """The version of foveate."""
    typer.echo(__version__)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where errors arise")] = False,
) -> None:
    """Train, look inside and use models of sequences."""
    if debug:
        os.environ["FOVEATE_DEBUG"] = "1"
    if version:
        print_version()
        raise typer.Exit


# ------------------------------------------------------------------------------ what verbs share


def _loading(
    run: Path,
    checkpoint: str,
    threads: int | None,
    ensemble: list[Path] | None = None,
    overrides: list[str] | None = None,
    precision: str = "fp32",
    engine: str = "torch",
) -> Loading:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from foveate.verbs.crew import Loading

    names = tuple(map(str, ensemble or ())), tuple(overrides or ())
    return Loading(str(run), checkpoint, *names, precision, engine)


def _load(*choices: Any) -> Run:
    return _loading(*choices).load()


def _search(
    beam_size: int | None, length_penalty: float | None, batch_tokens: int | None
) -> dict[str, Any]:
    return {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "batch_tokens": batch_tokens,
    }


def _hint(text: str) -> None:
    if sys.stdin.isatty():
        _say([text])


def _say(sentences: list[str]) -> None:
    for sentence in sentences:
        typer.echo(sentence, err=True)


def main() -> None:
    """Run the command line; what a user can mend is one red line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    with one_line_errors():
        app(prog_name="foveate")
