"""The verb of pictures: ``foveate caption``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGE…", help="JPEG or PNG, or numbers of test pictures")
]
Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]


def caption(
    run: RunPath,
    images: Images,
    beam_size: Annotated[int | None, typer.Option(min=1, help="default: the run's own")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="SCORE TAB NAME TAB CAPTION")] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Describe pictures, a line for each."""
    from foveate.cli import streams as verbs
    from foveate.run import load

    for line in verbs.caption(load(run, checkpoint), images, beam_size, scores):
        typer.echo(line)


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("caption")(caption)
