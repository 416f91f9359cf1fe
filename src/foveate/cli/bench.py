"""The verbs of measuring: ``foveate bench train | decode``."""

from collections.abc import Mapping
from typing import Annotated

import typer

from foveate.cli.options import Json, Overrides, Threads, VerbGroup, say, to_json

MACHINE = "machine"  # the key of a result that describes the machine, on the last line

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
