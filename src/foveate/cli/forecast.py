"""The verbs of forecasting: ``foveate forecast``, ``foveate look horizon``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]


def add(app: typer.Typer, look: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(forecast)
    look.command("horizon")(look_horizon)


def forecast(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    source: Annotated[
        Path | None, typer.Argument(metavar="[CSV]", help="the run's own series if absent")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="a CSV file instead of stdout")] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """The rows after the end of a series, as CSV."""
    from foveate.run import load
    from foveate.verbs import forecast as verbs

    typer.echo(verbs.forecast(load(run, checkpoint), source, out))


def look_horizon(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders of runs")],
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    out: Annotated[
        list[Path] | None, typer.Option(help="png, svg, pdf, html or txt; may be repeated")
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw how a forecast errs at each step ahead."""
    from foveate.run import load
    from foveate.verbs import forecast as verbs

    loaded = [load(path, checkpoint) for path in runs]
    for line in verbs.look_horizon(loaded, split, out or []):
        typer.echo(line)
