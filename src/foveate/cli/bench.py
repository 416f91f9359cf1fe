"""The verbs of measuring: ``foveate bench train | decode | memory | length``."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from foveate.cli.options import Json, Overrides, Threads, VerbGroup, say, to_json

if TYPE_CHECKING:
    from foveate.draw.charts import PanelGrid

Lengths = Mapping[str, Any]  # the JSON of `foveate.bench.growth.measure_length`
MACHINE = "machine"  # the key of a result that describes the machine, on the last line

bench = typer.Typer(cls=VerbGroup, help="Measure speed and memory here.", no_args_is_help=True)

Shape = Annotated[
    str, typer.Argument(metavar="[SHAPE]", help="small, base, rnnsearch, a preset or CONFIG.toml")
]
Seconds = Annotated[float, typer.Option(min=0.1, help="of measuring")]


@bench.command("train")
def bench_train(
    shape: Shape = "small",
    overrides: Overrides = None,
    seconds: Seconds = 30,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="without the shares of time")] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Real target tokens a second in training."""
    from foveate.bench import training
    from foveate.bench.training import workload

    chosen = [*(overrides or []), *([f"train.precision={precision}"] if precision else [])]
    say([f"{shape}: its data and tokenizers"])
    with workload(shape, chosen) as work:
        _say(training.measure(work, seconds, quick, lambda line: say([line])), as_json)


@bench.command("decode")
def bench_decode(
    shape: Shape = "small",
    overrides: Overrides = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each way of decoding")] = 10,
    sentences: Annotated[int, typer.Option(min=1, help="of the test data")] = 1000,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or int8")] = "fp32",
    levers: Annotated[
        bool, typer.Option("--levers", help="PyTorch, the engine, int8 in turn")
    ] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Sentences a second, outputs of equal length."""
    from foveate.bench import decoding
    from foveate.bench.training import workload

    say([f"{shape}: its data and tokenizers"])
    with workload(shape, overrides or []) as work:
        if levers:
            result = decoding.levers(work, seconds, sentences, say=lambda line: say([line]))
        else:
            result = decoding.measure(work, seconds, sentences, precision, lambda line: say([line]))
        _say(result, as_json)


@bench.command("memory")
def bench_memory(
    shape: Shape = "small", overrides: Overrides = None, as_json: Json = False
) -> None:
    """What the memory of training and decoding holds."""
    from foveate.bench import growth

    _say(growth.measure_memory(shape, overrides or [], lambda line: say([line])), as_json)


@bench.command("length")
def bench_length(
    lengths: Annotated[list[int] | None, typer.Argument(metavar="[LENGTH…]")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="of each figure")] = 0.5,
    only: Annotated[list[str] | None, typer.Option(help="names that hold this")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="png, svg, pdf, html or txt; may be repeated")
    ] = None,
    as_json: Json = False,
) -> None:
    """Time and memory against the length, exponents."""
    from foveate.bench import growth

    result = growth.measure_length(
        lengths or growth.LENGTHS, seconds, lambda line: say([line]), only or []
    )
    drawn = draw_growth(result, out or [])
    for line in drawn if out or not as_json else []:
        typer.echo(line, err=as_json)
    if as_json:
        typer.echo(to_json(result))


def _say(result: Mapping[str, object], as_json: bool) -> None:
    typer.echo(to_json(result) if as_json else result_text(result))


def result_text(result: Mapping[str, object]) -> str:
    """A result of any bench as lines of names and values."""
    lines = list(_lines({k: v for k, v in result.items() if k != MACHINE}, ""))
    facts = cast("Mapping[str, object]", result.get(MACHINE, {}))
    machine = ", ".join(f"{k} {v}" for k, v in facts.items())
    return "\n".join([*lines, f"machine: {machine}"])


def growth_view(result: Lengths) -> PanelGrid:
    """The picture of a bench of lengths: a panel of milliseconds and one of megabytes.

    Both axes are logarithmic: a square rises twice as steeply as a line.
    """
    import numpy as np

    from foveate.draw.charts import PanelGrid, line_chart

    kinds = result["kinds"]
    panels = [
        line_chart(
            result["lengths"], {name: np.array(row[panel], float) for name, row in kinds.items()},
            "length", panel, log="xy",
        )
        for panel in ("milliseconds", "megabytes")
    ]  # fmt: skip
    return PanelGrid(panels=panels, title="Forward and backward through one layer")


def draw_growth(result: Lengths, out: Sequence[Path]) -> list[str]:
    """Write the picture in the form of each ending, or give it as text with the exponents."""
    view = growth_view(result)
    if out:
        return [f"wrote {view.save(path)}" for path in out]
    lines = [
        view.text(shutil.get_terminal_size().columns),
        "",
        "grows with the length to the power of (time, memory)",
    ]
    for name, row in result["kinds"].items():
        lines.append(f"  {name:<24} {row['exponent_time']!s:>6} {row['exponent_memory']!s:>6}")
    return lines


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
