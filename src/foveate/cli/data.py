"""The verbs ``foveate data list | get | report``, and ``foveate new`` for one's own data."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveate.cli.options import DataKind, Json, TaskName, VerbGroup, to_json

if TYPE_CHECKING:
    from foveate.data.series import SeriesData
    from foveate.data.text import TextData


data = typer.Typer(cls=VerbGroup, help="List, get and check data sets.", no_args_is_help=True)

Split = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="one file, or one per side")]
ConfigPath = Annotated[Path | None, typer.Option(help="config whose limits to apply")]


@data.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the known data sets, with sizes and licences."""
    from foveate.data.catalogue import catalogue

    if as_json:
        typer.echo(to_json({name: entry.tree() for name, entry in catalogue().items()}))
        return
    for name, entry in catalogue().items():
        typer.echo(f"{name:<24} {entry.bytes / 1e6:6.1f} MB  {entry.title}")
        typer.echo(f"{'':<36}{entry.task}; {', '.join(entry.languages)}; {entry.licence}")


@data.command("get")
def get_set(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    mirror: Annotated[Path | None, typer.Option(metavar="DIR", help="folder to copy from")] = None,
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="default: the cache")] = None,
) -> None:
    """Get a data set from its source or a mirror."""
    from foveate.cli.export import progress_shown
    from foveate.data.catalogue import get

    with progress_shown() as progress:
        folder = get(name, into, mirror, progress)
    typer.echo(folder)


@data.command("report")
def report_on(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES…", help="a table, a text, or two sides")
    ],
    valid: Split = None,
    test: Split = None,
    config: ConfigPath = None,
    kind: Annotated[DataKind | None, typer.Option(help="override the detected kind")] = None,
    as_json: Json = False,
) -> None:
    """Report what data files contain, and what is unusual in them."""
    from rich.console import Console

    from foveate.data.report import report_files
    from foveate.data.text import TextData

    others = {name: paths for name, paths in (("valid", valid), ("test", test)) if paths}
    text, known, series = _data_of(config) if config else (TextData(), None, None)
    report = report_files(files, text, others, kind or known, series)
    if as_json:
        typer.echo(to_json(asdict(report)))
    else:
        Console(markup=False).print(report.table())


def _data_of(path: Path) -> tuple[TextData, DataKind | None, SeriesData | None]:
    """Return the [data] of a config, the kind of its data, and the series of a forecast."""
    from foveate.config import load_tree, read, shipped

    load_tree(shipped(path))  # what cannot be read is said before PyTorch is imported
    from foveate.kinds import load_kinds
    from foveate.run import RunConfig
    from foveate.tasks.forecasting import Forecasting

    load_kinds()
    config = read(RunConfig, path)
    if isinstance(config.task, Forecasting.Config):
        return config.data, "series", config.task.series
    kinds: dict[str | None, DataKind] = {
        "classification": "labelled",
        "language": "text",
        "masked_language": "text",
    }
    return config.data, kinds.get(config.task.kind), None


def new(
    task: Annotated[TaskName, typer.Argument(help="auto: guessed from the files")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="one file, or two sides")],
    out: Annotated[Path, typer.Option(help="config to write")] = Path("config.toml"),
    minutes: Annotated[float, typer.Option(min=0.01, help="minutes of training")] = 30.0,
    force: Annotated[bool, typer.Option("--force", help="overwrite the config")] = False,
) -> None:
    """Write a config for your own data."""
    from foveate.config import all_assigned, parse_tree, with_overrides
    from foveate.data.catalogue import DataError
    from foveate.files import replace_file
    from foveate.kinds import load_kinds
    from foveate.run import RunConfig
    from foveate.tasks.draft import TASKS, planned

    # a word KEY=VALUE among the files is an override of what the config says
    overrides = [str(word) for word in files if "=" in str(word) and not word.exists()]
    files = [file for file in files if str(file) not in overrides]
    if not files:
        raise DataError("name the data file before the overrides")
    if out.exists() and not force:
        raise DataError(
            f"{out} exists; choose another name with --out, or overwrite it with --force"
        )
    load_kinds()
    plan = planned(task, files, minutes, all_assigned(overrides))
    plan.override(with_overrides(RunConfig, tomllib.loads(plan.text()), overrides))
    text = plan.text()
    parse_tree(RunConfig, tomllib.loads(text))
    replace_file(out, text)
    run, config = shlex.quote(f"runs/{out.stem}"), shlex.quote(str(out))
    messages = [f"{out}: {plan.task}; {plan.facts}", *(f"  {reason}" for reason in plan.reasons)]
    if plan.task not in ("captioning", "vision"):
        messages.append(f"look at the data  foveate data report {shlex.join(map(str, files))}")
    messages.append(f"train             foveate train {config} --run {run}")
    messages.append(f"use it            {TASKS[plan.task].verb.format(run=run)}")
    typer.echo("\n".join(messages))
