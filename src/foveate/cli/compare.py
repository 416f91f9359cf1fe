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
        typer.Argument(metavar="CONFIG|RUN… [a.b=c …]", help="two or more, or: lineage [MODEL…]"),
    ],
    steps: Annotated[int | None, typer.Option(min=1, help="of each model; default 1,000")] = None,
    minutes: Annotated[float | None, typer.Option(help="of training for each model")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="target tokens for each model")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="replace the first's: source, then target or labels"),
    ] = None,
    text: Annotated[str | None, typer.Option(help="the example that all models answer")] = None,
    out: Annotated[Path, typer.Option(help="the page; .json and .md beside it")] = Path(
        "report.html"
    ),
    runs: Annotated[Path | None, typer.Option(metavar="DIR", help="where runs go")] = None,
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
