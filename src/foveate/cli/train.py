"""The verbs that make runs and their data: train, average, shortlist and quickstart."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foveate.cli.options as options
from foveate.cli.options import load
from foveate.errors import install, not_built
from foveate.files import replace_file

if TYPE_CHECKING:
    from foveate.engine.links import Head
    from foveate.run import Run

SENTENCES = 7  # held-out ones on the page of the quickstart
EXPECTED = """\
{} where two processor cores are free, longer beside other programs, and 30
minutes at most; the lines below show the time left. Ctrl-C stops, and the same command resumes."""


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml")],
    overrides: options.Overrides = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="folder of the run")] = None,
    changed_data: Annotated[
        bool, typer.Option("--changed-data", help="resume with changed training data")
    ] = False,
) -> None:
    """Train a config, or resume its run."""
    from foveate.config import all_assigned, load_tree, shipped

    load_tree(shipped(config))  # what cannot be read is said before PyTorch is imported
    all_assigned(overrides or ())
    from foveate.run.training import train

    train(config, overrides or [], run, changed_data)


def average(
    run: options.RunPath,
    last: Annotated[int | None, typer.Option(min=1, help="checkpoints; default: all kept")] = None,
) -> None:
    """Average the weights of the last checkpoints."""
    from foveate.run.training import average

    typer.echo(average(run, last))


def shortlist(
    run: options.RunPath,
    often: Annotated[int, typer.Option(min=0, help="tokens that are always allowed")] = 300,
    likely: Annotated[int, typer.Option(min=1, help="tokens per source token")] = 100,
) -> None:
    """Learn likely target tokens, for decode.shortlist=true."""
    from foveate.align.shortlist import learn, reach
    from foveate.run.pack import renew
    from foveate.tasks.translation import Translation

    loaded = load(run)
    task = loaded.need(Translation, "have a shortlist")
    tokens = learn(task, often, likely, loaded.config.seed)
    tokens.save(run)
    renew(run)
    (covered, size), whole = reach(task, tokens), task.target_tokenizer.vocab_size
    typer.echo(
        f"a sentence has {size:,.0f} of {whole:,} tokens to choose from; these hold "
        f"{100 * covered:.2f} % of the tokens of the validation data"
    )
    typer.echo(f"to use them: foveate translate {run} decode.shortlist=true")


def quickstart(
    folder: Annotated[
        Path | None, typer.Option(help="default: runs/quickstart or runs/grammar")
    ] = None,
    grammar: Annotated[
        bool, typer.Option("--grammar", help="use a grammar with gold alignments")
    ] = False,
) -> None:
    """Train a small translator and look inside."""
    from foveate.run.quickstart import CORPORA

    corpus = "short" if grammar else "everyday"
    start(folder or Path("runs") / CORPORA[corpus].name, corpus)


def start(
    folder: Path,
    corpus: str = "everyday",
    sizes: Mapping[str, int] | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, float]:
    """Write an embedded corpus and its config into ``folder``, train, evaluate, and draw.

    The figures on the held-out sentences: bleu, chrf, ter, exact_match and, of a corpus with gold
    links, aer.
    """
    from rich.console import Console

    from foveate.align.heads import judge_alignment
    from foveate.run.quickstart import CORPORA, prepared, why_poor
    from foveate.run.training import train

    console, own = Console(stderr=True, highlight=False, markup=False), CORPORA[corpus]
    sizes = sizes or own.sizes
    console.rule(f"1 · data: {own.about}")
    config, data = prepared(folder, corpus, sizes), folder / "data"
    console.print(f"{sizes['train']:,} pairs to train on, {sizes['test']:,} held out: {data}")

    console.rule(f"2 · training: {config}")
    console.print(EXPECTED.format(own.expected), soft_wrap=True)
    run = train(config, overrides, folder / "run")

    console.rule(f"3 · {own.held_out}")
    evaluation = run.evaluate(*run.pairs("test"))
    figures = dict(evaluation.figures)
    head, agreement = judge_alignment(run, data)
    if (data / "test.align").exists():
        figures["aer"] = agreement.aer
    for figure, value in evaluation.figures.items():
        console.print(f"{figure:>12} {value:6.2f}")
    whose = "aer" if "aer" in figures else "aer, by an aligner's links"
    console.print(f"{whose:>12} {agreement.aer:6.3f}  (layer {head.layer}, head {head.head})")
    resume = f"{_command()} train {config} --run {run.path}"
    if poor := why_poor(run, evaluation.figures["bleu"], own.good, resume):
        console.print(poor, style="bold", soft_wrap=True)

    console.rule("4 · translate, and see why")
    tried = run.pairs("test")[0]
    shown = tried[:: max(1, len(tried) // SENTENCES)][:SENTENCES]
    drawn = _translated(run, [own.sentence, *shown], head, folder, console.print)
    console.rule("5 · next")
    places = {"run": run.path, "film": folder / "film.html", **drawn}
    next_steps = NEXT.format(**places, command=_command(), sentence=own.sentence)
    console.print(next_steps + missing_for_studio(), soft_wrap=True)
    return figures


def _translated(
    run: Run,
    sentences: Sequence[str],
    head: Head,
    folder: Path,
    say: Callable[[str], None],
) -> dict[str, Path]:
    """Translate sentences, draw a head as it reads the first; the files drawn."""
    from foveate.look.draw.maps import attention, attention_page

    records = []
    for answer in run.translate(sentences):
        say(f"{answer.source}\n  → {answer.hypotheses[0]}")
        records.append(answer.record())
    view = attention(records[0], layer=head.layer, head=head.head)
    print(view.text())
    files = {"picture": folder / "attention.png", "page": folder / "attention.html"}
    view.save(files["picture"])
    replace_file(files["page"], attention_page(records))
    return files


def _command() -> str:
    """Return the command foveate: its name, or its path if PATH does not have it."""
    path = shutil.which("foveate", path=Path(sys.executable).parent)  # .exe on Windows
    if shutil.which("foveate") or path is None:
        return "foveate"
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def missing_for_studio() -> str:
    """Return a line for each missing part of the studio, with the remedy."""
    lines = ""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        lines += f"\n  the studio's packages are missing; {install('studio')}"
    if not files("foveate").joinpath("studio/static/index.html").is_file():
        lines += "\n  " + not_built("the studio's page")
    return lines


NEXT = """\
look at the picture      {picture}
open in a browser        {page}
translate a line         echo "{sentence}" | {command} translate {run}
draw your own sentence   {command} look attention {run} --text "{sentence}"
watch it learn           {command} look learning {run} --out {film}
what can be changed      {command} kinds
what this run is         {command} show {run}
your own data            {command} data report train.en train.fr
see it in the studio     {command} studio {run} → http://127.0.0.1:8377"""
