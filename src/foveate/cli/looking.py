"""The verbs ``foveate look positions``, ``schedule``, ``gradients`` and ``gates``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[list[Path] | None, typer.Option(help="png, svg, pdf, html or txt; may be repeated")]
Text = Annotated[str, typer.Option(help="what the model reads")]
Checkpoint = Annotated[str, typer.Option(help="best, last, average or a step")]

verbs = typer.Typer()


def add(look: typer.Typer) -> None:
    """Register the verbs."""
    look.registered_commands += verbs.registered_commands


@verbs.command()
def positions(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="see: foveate kinds position")],
    length: Annotated[int, typer.Option(min=2, help="places")] = 64,
    hidden_size: Annotated[int, typer.Option(min=2, help="numbers of a vector")] = 64,
    num_heads: Annotated[int, typer.Option(min=1)] = 4,
    out: Out = None,
) -> None:
    """Draw what a position encoding tells of each place."""
    from foveate.verbs import looking

    _say(looking.saved(looking.positions(kind, length, hidden_size, num_heads), out or []))


@verbs.command()
def schedule(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG…", help="TOML files or runs")],
    steps: Annotated[int | None, typer.Option(min=1, help="default: the longest")] = None,
    out: Out = None,
) -> None:
    """Draw the learning rates of configs."""
    from foveate.verbs import looking

    _say(looking.saved(looking.schedule(configs, steps), out or []))


@verbs.command()
def gradients(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders of runs")],
    text: Text,
    out: Out = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw how far back language models can learn."""
    from foveate.run import load
    from foveate.verbs import looking

    view = looking.gradients([load(path, checkpoint) for path in runs], text)
    _say(looking.saved(view, out or []))


@verbs.command()
def gates(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    text: Text,
    layer: Annotated[int, typer.Option(help="from 0, or -1 for the last")] = -1,
    out: Out = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw the gates of a recurrent language model."""
    from foveate.run import load
    from foveate.verbs import looking

    _say(looking.saved(looking.gates(load(run, checkpoint), text, layer), out or []))


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
