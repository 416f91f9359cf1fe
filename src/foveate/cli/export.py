"""The verbs ``foveate export`` and ``foveate import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")]


def add(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(export)
    app.command("import")(import_)


def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder or file to write")],
    to: Annotated[str, typer.Option(help="argos, ctranslate2, huggingface, onnx or safetensors")],
    quantization: Annotated[
        str, typer.Option(help="float32, bfloat16, float16, int16 or int8, where the target has it")
    ] = "float32",
    check: Annotated[int, typer.Option(min=1, help="sentences tried before it is done")] = 100,
    sample: Annotated[
        Path | None, typer.Option(help="try it on these: SOURCE or SOURCE TAB REFERENCE a line")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="source and target, for argos")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, average or a step")] = "best",
) -> None:
    """Write a run for another program, and try it there."""
    from foveate.cli.workers import export as export_run

    choices = {"quantization": quantization, "languages": tuple(language or ())}
    for line in export_run(run, out, to, checkpoint, (check, sample), choices):
        typer.echo(line)


def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="folder or vocabulary file")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder to make")],
) -> None:
    """Make a run of a model or vocabulary of others."""
    from foveate.cli.workers import import_

    for line in import_(source, run):
        typer.echo(line)
