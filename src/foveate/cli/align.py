"""The verbs of word alignment: ``foveate align MODEL SOURCE TARGET | evaluate | symmetrize``.

Does not live here: what they do (`foveate.cli.alignment`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from foveate.cli.options import DefaultGroup


class _Align(DefaultGroup):
    """``foveate align MODEL SOURCE TARGET`` is short for ``foveate align files MODEL …``."""

    default = "files"


align = typer.Typer(
    cls=_Align,
    help="Link the words of pairs: foveate align MODEL SOURCE TARGET.",
    no_args_is_help=True,
)

Out = Annotated[Path | None, typer.Option(help="instead of standard output")]


def add(app: typer.Typer) -> None:
    """Put the verbs into the command line."""
    app.add_typer(align, name="align")


@align.command("files")
def align_files(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a run, ibm1, ibm2, hmm, …")],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="a sentence a line")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="their translations")],
    layer: Annotated[int | None, typer.Option(help="of a run: from 0, or -1: the last")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="of the layer; else their mean")] = None,
    gold: Annotated[Path | None, typer.Option(help="choose the head by these gold links")] = None,
    agree_with: Annotated[Path | None, typer.Option(help="or by these Pharaoh links")] = None,
    save: Annotated[bool, typer.Option("--save", help="keep the head for this run")] = False,
    after_reading: Annotated[
        bool, typer.Option("--after-reading", help="rows: the word read, not the one produced")
    ] = False,
    train_on: Annotated[
        list[Path] | None, typer.Option(help="TSV, or once a side: learn from these as well")
    ] = None,
    symmetrize: Annotated[
        str | None, typer.Option(help="both directions: intersection, union, grow-diag, …")
    ] = None,
    pretokenised: Annotated[
        bool | None, typer.Option(help="words stand between blanks; detected if not given")
    ] = None,
    out: Out = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, average or a step")] = "best",
) -> None:
    """Links 0-0 1-2 of each pair, by a run's attention or an aligner trained on the files."""
    from foveate.cli import alignment as verbs

    choices: dict[bool | None, Literal["text", "blanks"]] = {True: "blanks", False: "text"}
    words = verbs.Files(source, target, choices.get(pretokenised))
    if verbs.is_aligner(model):
        verbs.refuse(f"{model} is no run", layer=layer, head=head, gold=gold, agree_with=agree_with)
        found, said = verbs.by_aligner(model, words, train_on or [], symmetrize)
    else:
        verbs.refuse("a run is trained", train_on=train_on, symmetrize=symmetrize)
        by = verbs.By(layer, head, gold, agree_with, "read" if after_reading else "produced")
        found, said = verbs.by_run(Path(model), checkpoint, words, by, save)
    for line in said:
        typer.echo(line, err=True)
    verbs.write_links(found, out, sys.stdout)


@align.command("evaluate")
def evaluate_links(
    links: Annotated[Path, typer.Argument(metavar="LINKS", help="Pharaoh: 0-0 1-2")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="1-1 2p3, from 1")],
    reference_format: Annotated[
        str, typer.Option(help="of GOLD: gold (i-j sure, ipj possible, from 1) or pharaoh")
    ] = "gold",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Precision, recall and alignment error rate."""
    from foveate.cli import alignment as verbs

    figures, notes = verbs.evaluation(links, gold, reference_format, as_json)
    typer.echo(figures)
    for note in notes:
        typer.echo(note, err=True)


@align.command("symmetrize")
def join_links(
    forward: Annotated[Path, typer.Argument(metavar="FORWARD", help="links source-target")],
    backward: Annotated[Path, typer.Argument(metavar="BACKWARD", help="links target-source")],
    method: Annotated[str, typer.Option(help="how")] = "grow-diag-final-and",
    out: Out = None,
) -> None:
    """Join the links of two directions."""
    from foveate.cli import alignment as verbs

    verbs.write_links(verbs.joined(forward, backward, method), out, sys.stdout)
