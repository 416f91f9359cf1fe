"""The verbs of measuring: ``foveate bench train | decode``, ``foveate compare``, ``foveate check``.

Speed and memory, models trained with an equal budget, and the laws on kinds of the user's own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from foveate.cli.options import Json, Overrides, Threads, VerbGroup, say, to_json
from foveate.errors import ConfigError

MACHINE = "machine"  # the key of a result that describes the machine, on the last line
LINEAGE = "lineage"

bench = typer.Typer(cls=VerbGroup, help="Measure speed and memory here.", no_args_is_help=True)

Shape = Annotated[
    str, typer.Argument(metavar="[SHAPE]", help="small, base, rnnsearch, a preset or CONFIG.toml")
]
Seconds = Annotated[float, typer.Option(min=0.1, help="seconds to measure")]


@bench.command("train")
def bench_train(
    shape: Shape = "small",
    overrides: Overrides = None,
    seconds: Seconds = 30,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="skip the breakdown of time")] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure target tokens per second in training."""
    from foveate.measure import training
    from foveate.measure.training import workload

    chosen = [*(overrides or []), *([f"train.precision={precision}"] if precision else [])]
    say([f"{shape}: its data and tokenizers"])
    with workload(shape, chosen) as work:
        _say(training.measure(work, seconds, quick, lambda line: say([line])), as_json)


@bench.command("decode")
def bench_decode(
    shape: Shape = "small",
    overrides: Overrides = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="seconds per search")] = 10,
    sentences: Annotated[int, typer.Option(min=1, help="number of test sentences")] = 1000,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or int8")] = "fp32",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure sentences per second in decoding."""
    from foveate.measure import decoding
    from foveate.measure.training import workload

    say([f"{shape}: its data and tokenizers"])
    with workload(shape, overrides or []) as work:
        result = decoding.measure(work, seconds, sentences, precision, lambda line: say([line]))
        _say(result, as_json)


def _say(result: Mapping[str, object], as_json: bool) -> None:
    lines = _lines({k: v for k, v in result.items() if k != MACHINE}, "")
    facts = result.get(MACHINE)
    pairs = facts.items() if isinstance(facts, Mapping) else ()
    lines.append(f"machine: {', '.join(f'{k} {v}' for k, v in pairs)}")
    typer.echo(to_json(result) if as_json else "\n".join(lines))


def _lines(tree: Mapping[str, object], indent: str) -> list[str]:
    wide = max((len(key) for key in tree), default=0)
    lines = []
    for key, value in tree.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        else:
            shown = f"{value:,}" if isinstance(value, int | float) else str(value)
            lines.append(f"{indent}{name:<{wide}}  {shown}")
    return lines


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
