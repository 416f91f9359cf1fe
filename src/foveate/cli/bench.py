"""The verbs of measuring: ``foveate bench train | decode | memory | length``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli.options import Group, Json, Overrides, Threads

bench = typer.Typer(cls=Group, help="Measure speed and memory here.", no_args_is_help=True)

Shape = Annotated[
    str,
    typer.Argument(metavar="[SHAPE]", help="small, base, rnnsearch, a preset or CONFIG.toml"),
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
    _use(threads)
    from foveate.bench import training
    from foveate.bench.training import workload

    chosen = [*(overrides or []), *([f"train.precision={precision}"] if precision else [])]
    with workload(shape, chosen) as work:
        _say(training.measure(work, seconds, quick), as_json)


@bench.command("decode")
def bench_decode(
    shape: Shape = "small",
    overrides: Overrides = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each way of decoding")] = 10,
    sentences: Annotated[int, typer.Option(min=1, help="of the test data")] = 1000,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or int8")] = "fp32",
    levers: Annotated[bool, typer.Option("--levers", help="plain, native, int8 in turn")] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Sentences a second, outputs of equal length."""
    _use(threads)
    from foveate.bench import decoding
    from foveate.bench.training import workload

    with workload(shape, overrides or []) as work:
        if levers:
            _say(decoding.levers(work, seconds, sentences), as_json)
            return
        _say(decoding.measure(work, seconds, sentences, precision), as_json)


@bench.command("memory")
def bench_memory(
    shape: Shape = "small",
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """What the memory of training and decoding holds."""
    from foveate.bench import growth

    _say(growth.measure_memory(shape, overrides or []), as_json)


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
    from foveate.cli import pictures as verbs
    from foveate.cli.streams import as_text

    def told(line: str) -> None:
        typer.echo(line, err=True)

    result = growth.measure_length(lengths or growth.LENGTHS, seconds, told, only or [])
    drawn = verbs.draw_growth(result, out or [])
    for line in drawn if out or not as_json else []:
        typer.echo(line, err=as_json)
    if as_json:
        typer.echo(as_text(result))


def _use(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _say(result: dict[str, Any], as_json: bool) -> None:
    from foveate.cli import pictures as verbs
    from foveate.cli.streams import as_text

    typer.echo(as_text(result) if as_json else verbs.text(result))
