"""The verb ``foveate compare``: models trained with an equal budget, side by side on one page."""

from pathlib import Path
from typing import Annotated

import typer

from foveate.cli.options import Threads, say
from foveate.errors import ConfigError

LINEAGE = "lineage"


def compare(
    models: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG|RUN… [a.b=c …]", help="two or more; or: lineage [MODEL…]"),
    ],
    steps: Annotated[int | None, typer.Option(min=1, help="steps a model; default: 1,000")] = None,
    minutes: Annotated[float | None, typer.Option(help="minutes of training per model")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="target tokens per model")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="files in place of the first config's data"),
    ] = None,
    text: Annotated[str | None, typer.Option(help="example for all models")] = None,
    out: Annotated[Path, typer.Option(help="page; .json and .md go beside it")] = Path(
        "report.html"
    ),
    runs: Annotated[Path | None, typer.Option(metavar="DIR", help="folder for the runs")] = None,
    threads: Threads = None,
) -> None:
    """Train models with an equal budget and compare them."""
    from foveate.config import shipped

    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the comparison is a page; end its name in .html")
    overrides = [each for each in models if "=" in each]
    paths = [each for each in models if "=" not in each]
    for each in paths if paths[:1] != [LINEAGE] else ():
        if not shipped(Path(each)).exists():
            raise ConfigError(f"{each}: no such config or run; make a config: foveate new")
    from foveate.measure.budget import Budget, planned
    from foveate.measure.comparison import compare
    from foveate.measure.lineage import lineage

    folder = runs or out.with_name(f"{out.stem}-runs")
    if paths[:1] == [LINEAGE]:
        plan, usual = lineage(folder, paths[1:], overrides)
    else:
        plan, usual = planned(list(map(Path, paths)), overrides, data or []), Budget(steps=1000)
    limits = minutes, steps, tokens
    budget = usual if limits == (None, None, None) else Budget(*limits)
    try:
        comparison = compare(plan, budget, folder, text, lambda line: say([line]))
    except (KeyboardInterrupt, SystemExit):
        say(["the same command resumes where it stopped"])
        raise
    for path in comparison.save(out):
        typer.echo(f"wrote {path}")
