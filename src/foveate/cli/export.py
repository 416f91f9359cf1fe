"""The verbs ``foveate pack``, ``foveate publish``, ``foveate export`` and ``foveate import``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from foveate.cli.options import Checkpoint, RunPath, load, named, say
from foveate.errors import ConfigError

Target = Literal["argos", "ctranslate2", "huggingface", "onnx"]


def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder or file to write")],
    to: Annotated[Target, typer.Option(help="program that will run it")],
    quantization: Annotated[
        str, typer.Option(help="float32, bfloat16, float16, int16 or int8, if supported")
    ] = "float32",
    check: Annotated[int, typer.Option(min=1, help="sentences to test the export with")] = 100,
    sample: Annotated[
        Path | None, typer.Option(help="test lines: SOURCE or SOURCE TAB REFERENCE")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="both languages, for argos")
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Convert a run for another program, and test it there."""
    from foveate.exchange.base import export, sample_of

    loaded = load(run, checkpoint)
    tried, languages = sample_of(loaded, check, sample), tuple(language or ())
    place, checked = export(loaded, out, to, tried, quantization, languages)
    typer.echo(f"{place}: {to} of {run}/{loaded.checkpoint}")
    typer.echo(str(checked))


def pack(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help=".safetensors file; default: in RUN")
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8 matrices")] = "fp32",
    licence: Annotated[str, typer.Option(help="licence and credits of the data")] = "",
    checkpoint: Checkpoint = "best",
) -> None:
    """Write a run as one file that answers without PyTorch."""
    from foveate.engine.packed import NAME
    from foveate.run.pack import pack

    loaded = load(run, checkpoint)
    if out is not None and out.suffix != ".safetensors":
        raise ConfigError(f"{out}: a packed file ends in .safetensors")
    known = earlier(file := out or run / NAME)
    size = pack(loaded, file, precision, licence).stat().st_size / 1e6
    typer.echo(f"{file}: {size:.1f} MB, {precision}, of {run}/{loaded.checkpoint}{known}")


def earlier(target: Path) -> str:
    """Return what a message adds if a file or page that is about to be written replaces one."""
    return ", in place of what was there" if target.exists() else ""


@contextmanager
def progress_shown() -> Iterator[Callable[[str, int, int | None], None]]:
    """Return a function that reports what is being done, and how many bytes are done of all.

    Outside a terminal it prints a line for each thing that is done.
    """
    from foveate.data.corpus import Meter

    with ExitStack() as shown:
        meters: dict[str, Meter] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in meters:
                shown.close()
                size = None if total is None else total / 1e6
                meters[what] = shown.enter_context(Meter(what, size, "MB"))
                if not sys.stderr.isatty():
                    say([f"{what} …"])
            if total is None:
                meters[what].busy()
            else:
                meters[what].add(done / 1e6 - meters[what].done)

        yield progress


def publish(
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN|FILE...]", callback=named, help="runs or packed files"),
    ] = None,
    single: Annotated[Path | None, typer.Option(metavar="PAGE.html", help="an HTML file")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder of a page")] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8")] = "int8",
    example: Annotated[list[str] | None, typer.Option(help="example input; repeatable")] = None,
    title: Annotated[str, typer.Option(help="page title; default: the models' names")] = "",
    licence: Annotated[str, typer.Option(help="licence of the training data")] = "",
    train: Annotated[bool, typer.Option("--train", help="add a model that trains there")] = False,
) -> None:
    """Write a page whose models answer, or train, without a server."""
    from foveate.config import shipped
    from foveate.studio.publish import PublishedFile, packed_run, publish

    target = single or out
    if target is None or (single and out):
        raise ConfigError("name one: --single PAGE.html, or --out FOLDER")
    if not (models or train):
        raise ConfigError("name a run or a packed file, or --train")
    with TemporaryDirectory(prefix="foveate-publish-") as folder, progress_shown() as progress:
        files = []
        for number, path in enumerate(models or ()):
            progress(f"packing {path.name}", 0, None)
            own = tuple(example or ()) if number == 0 else ()
            if path.is_file():
                files.append(PublishedFile(path, path.stem, own))
                continue
            run, place = shipped(path), Path(folder) / f"{number}.safetensors"
            file = packed_run(run, place, precision, licence)
            files.append(PublishedFile(file, run.resolve().name, own or run))
        known = earlier(target if single else target / "index.html")
        size = publish(files, target, title, single is not None, progress, train)
    names = ", ".join([file.name for file in files] + ["training"] * train)
    typer.echo(f"{target}: {size / 1e6:.1f} MB, {names}{known}")


def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="folder of the model")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder to write")],
) -> None:
    """Make a run from another library's model."""
    if not source.exists():
        raise ConfigError(f"{source}: no such file or folder; give what another program has saved")
    from foveate.exchange.importing import import_from

    typer.echo(import_from(source, run))
