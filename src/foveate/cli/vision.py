"""The verbs of pictures: ``foveate caption`` and ``foveate look picture``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGE…", help="JPEG or PNG, or numbers of test pictures")
]
Image = Annotated[
    str, typer.Argument(metavar="IMAGE", help="JPEG or PNG, or the number of a test picture")
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
    from foveate.run import load
    from foveate.verbs import vision as verbs

    for line in verbs.caption(load(run, checkpoint), images, beam_size, scores):
        typer.echo(line)


def look_picture(
    run: RunPath,
    image: Image,
    target: Annotated[str | None, typer.Option(help="explain this instead of the answer")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="mean of all if absent")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="png, svg, pdf, html or txt; may be repeated")
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw where the model looked, over the picture."""
    from foveate.run import load
    from foveate.verbs import vision as verbs

    for line in verbs.look_picture(load(run, checkpoint), image, target, head, out or []):
        typer.echo(line)


def add(app: typer.Typer, look: typer.Typer) -> None:
    """Register the verbs."""
    app.command("caption")(caption)
    look.command("picture")(look_picture)
