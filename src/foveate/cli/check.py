"""``foveate check``: the laws on kinds of the user's own."""

from pathlib import Path
from typing import Annotated

import typer

from foveate.errors import ConfigError


def check(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Python files, folders, or modules")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="time limit for each file")] = 20.0,
    exercises: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write the twelve exercises here")
    ] = None,
) -> None:
    """Run the property tests on your own score, cell, …"""
    from foveate.measure.laws.check import check, write_exercises

    if exercises is not None:
        typer.echo("\n".join(map(str, write_exercises(exercises))) or "all of them exist already")
    elif not files or "" in files:
        raise ConfigError("name a file that defines a kind: foveate check my_scores.py")
    each = list[Path]()
    for path in map(Path, files or ()):
        each += sorted(path.glob("*.py")) or [path]
        if each[-1].is_dir():
            raise ConfigError(f"{each[-1]} is a folder without Python files")
    reports = [report for file in each for report in check(str(file), seconds)]
    typer.echo("\n\n".join(report.text() for report in reports), nl=bool(reports))
    tried = [report for report in reports if not report.untried]
    if not all(report.good for report in tried or reports):
        raise typer.Exit(1)
