"""The verbs of labels: ``foveate classify``.

Does not live here: what they do (`foveate.cli.streams`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def add(app: typer.Typer) -> None:
    """Give the program these verbs."""
    app.command("classify")(classify)


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="[IMAGE…]", help="JPEG or PNG, or numbers of test pictures"),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="LABEL TAB P of every label")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object a line")] = False,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="tokens, or pictures, of a batch")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, average or a step")] = "best",
    threads: Annotated[int | None, typer.Option(min=1, help="processor threads")] = None,
) -> None:
    """Label each line of stdin, or each picture."""
    from foveate.cli import streams as verbs
    from foveate.run import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    form = verbs.form(scores, as_json)
    loaded = load(run, checkpoint)
    if images:
        verbs.classify_pictures(loaded, images, sys.stdout, form, batch_tokens)
        return
    if sys.stdin.isatty():
        typer.echo("Type a text a line; Ctrl-D ends.", err=True)
    tally = verbs.classify(loaded, sys.stdin.buffer, sys.stdout, form, batch_tokens)
    for sentence in tally.report():
        typer.echo(sentence, err=True)
