"""The verb of forecasting: ``foveate forecast``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(forecast)


def forecast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    source: Annotated[
        Path | None, typer.Argument(metavar="[CSV]", help="the run's own series if absent")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="a CSV file instead of stdout")] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """The rows after the end of a series, as CSV."""
    from foveate.cli import streams as verbs
    from foveate.run import load

    typer.echo(verbs.forecast(load(run, checkpoint), source, out))
