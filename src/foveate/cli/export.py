"""The verbs ``foveate pack``, ``foveate export`` and ``foveate import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foveate.cli.options import Checkpoint, RunPath, load
from foveate.errors import ConfigError


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
    checkpoint: Checkpoint = "best",
) -> None:
    """Write a run for another program, and try it there."""
    from foveate.export.base import export, sample_of

    loaded = load(run, checkpoint)
    tried, languages = sample_of(loaded, check, sample), tuple(language or ())
    place, checked = export(loaded, out, to, tried, quantization, languages)
    typer.echo(f"{place}: {to} of {run}/{loaded.checkpoint}")
    typer.echo(str(checked))


def pack(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="a .safetensors file; default: in RUN")
    ] = None,
    precision: Annotated[str, typer.Option(help="of the matrices: fp32, fp16 or int8")] = "fp32",
    licence: Annotated[str, typer.Option(help="of the training data, and whom to name")] = "",
    checkpoint: Checkpoint = "best",
) -> None:
    """Write a run as one file that answers without PyTorch."""
    from foveate.engine.packed import NAME
    from foveate.pack import pack

    loaded = load(run, checkpoint)
    if out is not None and out.suffix != ".safetensors":
        raise ConfigError(f"{out}: a packed file ends in .safetensors")
    file = pack(loaded, out or run / NAME, precision, licence)
    size = file.stat().st_size / 1e6
    typer.echo(f"{file}: {size:.1f} MB, {precision}, of {run}/{loaded.checkpoint}")


def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="folder or vocabulary file")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder to make")],
) -> None:
    """Make a run of a model or vocabulary of others."""
    from foveate.export.huggingface import import_from

    typer.echo(import_from(source, run))
