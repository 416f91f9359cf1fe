"""``foveate draft``: a document translated with an estimate of each sentence's quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import foveate.cli.options as options
from foveate.cli.engines import RunSpec
from foveate.cli.options import say
from foveate.errors import ConfigError

Held = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="SOURCE TARGET", help="fit the estimates to held-out lines"),
]
Second = Annotated[Path | None, typer.Option(metavar="RUN", help="run whose draft to compare")]
Limit = typer.Option(min=0, max=100, help="a chrF below it gets this colour")


def draft(
    run: options.RunPath,
    book: Annotated[Path | None, typer.Argument(metavar="[BOOK]", help="the document")] = None,
    out: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="draft to write")] = None,
    calibrate: Held = None,
    second: Second = None,
    red: Annotated[float, Limit] = 40.0,
    yellow: Annotated[float, Limit] = 60.0,
    to: Annotated[str | None, typer.Option(help="target language, if several")] = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Translate a document and say how far to trust it."""
    if (book is None and calibrate is None) or (book is None) != (out is None):
        raise ConfigError("name a document and its draft, BOOK OUT, or --calibrate SOURCE TARGET")
    if red > yellow:
        raise ConfigError(f"--red {red:g} is above --yellow {yellow:g}: lower it")
    from foveate.documents import drafts

    spec = RunSpec(str(run), checkpoint)
    model = spec.packed({}, threads) or spec.load()
    if calibrate is not None:
        from foveate.data.text import TextData, read_pairs

        held = read_pairs(*calibrate, TextData())
        say([drafts.calibrate(model, held.sources, held.targets, to)])
    if book is not None and out is not None:
        own = None if second is None else RunSpec(str(options.named(second)))
        other = None if own is None else own.packed({}) or own.load()
        say(drafts.write_draft(model, str(run), book, out, to, (red, yellow), other))
