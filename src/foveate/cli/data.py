"""The verbs of data: ``foveate data list | get | report``.

Does not live here: the sets (`foveate.data.catalogue`), fetching them (`foveate.data.catalogue`)
and what is looked for in a corpus (`foveate.data.report`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foveate.cli.options import Group

if TYPE_CHECKING:
    from foveate.data.series import SeriesData
    from foveate.data.text import TextData

DataKind = Literal["pairs", "labelled", "text", "series"]

data = typer.Typer(cls=Group, help="List, get and check data sets.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Split = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="once, or for each side")]
ConfigPath = Annotated[Path | None, typer.Option(help="say what its limits would drop")]


@data.command("list")
def list_sets(as_json: Json = False) -> None:
    """The data sets known, sizes and licences."""
    from foveate.cli.streams import as_text
    from foveate.data.catalogue import catalogue

    if as_json:
        typer.echo(as_text({name: found.tree() for name, found in catalogue().items()}))
        return
    for name, found in catalogue().items():
        typer.echo(f"{name:<24} {found.bytes / 1e6:6.1f} MB  {found.title}")
        typer.echo(f"{'':<36}{found.task}; {', '.join(found.languages)}; {found.licence}")


@data.command("get")
def get_set(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    mirror: Annotated[Path | None, typer.Option(metavar="DIR", help="take it from here")] = None,
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="instead of the cache")] = None,
) -> None:
    """Get a data set from its source or a mirror."""
    from foveate.data.catalogue import get

    typer.echo(get(name, into, mirror, _progress))


@data.command("report")
def report_on(
    files: Annotated[list[Path], typer.Argument(metavar="FILES…", help="a table, text, or two")],
    valid: Split = None,
    test: Split = None,
    config: ConfigPath = None,
    kind: Annotated[DataKind | None, typer.Option(help="instead of what the files show")] = None,
    as_json: Json = False,
) -> None:
    """What pairs, labelled or plain text or a series hold, and what is odd in them."""
    from rich.console import Console

    from foveate.cli.streams import as_text
    from foveate.data.report import report_files
    from foveate.data.text import TextData

    others = {name: paths for name, paths in (("valid", valid), ("test", test)) if paths}
    text, known, series = _described(config) if config else (TextData(), None, None)
    report = report_files(files, text, others, kind or known, series)
    if as_json:
        typer.echo(as_text(report.to_dict()))
    else:
        Console().print(report.table())


def _described(path: Path) -> tuple[TextData, DataKind | None, SeriesData | None]:
    """What a run's config says of its data: how text is read, the kind, how a series is read."""
    from foveate.config import read
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


def _progress(name: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        of = "" if total is None else f" of {total / 1e6:.1f}"
        typer.echo(f"\r{name}: {done / 1e6:.1f}{of} MB ", err=True, nl=done == total)
