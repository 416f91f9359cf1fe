"""The verbs ``foveate serve RUN…``, ``foveate serve keys`` and ``foveate studio``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import foveate.cli.options as options
from foveate.cli.engines import RunSpec
from foveate.cli.options import DefaultGroup, VerbGroup, as_run, chosen, flat, named
from foveate.system import processors

if TYPE_CHECKING:
    from foveate.engine.answers import Translator


serve = typer.Typer(
    cls=DefaultGroup, help="Serve translations over HTTP: foveate serve RUN.", no_args_is_help=True
)
keys = typer.Typer(cls=VerbGroup, help="Make and remove the keys of clients.", no_args_is_help=True)
serve.add_typer(keys, name="keys")

FILES = "[en:fr=]FILE"  # or RUN=FILE
File = Annotated[Path, typer.Option("--file", help="file with the hashes of the keys")]


@dataclass(frozen=True)
class ServerEngine:
    """The options of how runs are loaded, and loading them."""

    precision: options.Precision = "fp32"
    engine: Literal["auto", "packed", "torch"] = "auto"

    def _spec(self, folder: Path) -> RunSpec:
        return RunSpec(str(folder), precision=self.precision, engine=self.engine)

    def load(self, folder: Path) -> Translator:
        """Load the packed model of a file or a run, or the run in PyTorch."""
        spec = self._spec(folder)
        if (model := spec.packed({}, threads=1)) is not None:
            return model
        batch_threads(None)  # where the file of a run was chosen, and is damaged
        return spec.load()

    def threads(self, runs: Sequence[Path], threads: int | None) -> int:
        """Return the number of batches that a server computes at a time, one thread each."""
        if all(self._spec(run).chosen({})[0] is not None for run in runs):
            return threads or processors()
        return batch_threads(threads)


def batch_threads(threads: int | None) -> int:
    """Return the number of batches that a server computes at a time, 1 on a GPU.

    Threads that share a batch wait for each other at every step.
    """
    import torch

    from foveate.run import device

    if device() != "cpu":
        return 1
    count = threads or torch.get_num_threads()
    torch.set_num_threads(1)
    return count


@dataclass(frozen=True)
class ServerAddress:
    """The options of where a server is reached, and by whom: fields of `ServerOptions`."""

    host: Annotated[str, typer.Option(help="other hosts need --keys or --no-auth")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port")] = 5000
    languages: Annotated[list[str] | None, typer.Option("--as", help="en:fr, or RUN=en:fr")] = None
    keys: Annotated[Path | None, typer.Option("--keys", help="file of the clients' keys")] = None
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="require keys")] = True
    allow_host: Annotated[list[str] | None, typer.Option(help="host name of this server")] = None
    cors: Annotated[list[str] | None, typer.Option(help="site whose pages may use it")] = None
    behind_proxy: Annotated[str | None, typer.Option(help="proxy whose headers to trust")] = None


@dataclass(frozen=True)
class ServerTerms:
    """The options of terms and memories by direction: parameters of `equip`."""

    glossary: Annotated[
        list[str] | None,
        typer.Option(metavar=FILES, help="lines TERM TAB VARIANT|VARIANT"),
    ] = None
    memory: Annotated[
        list[str] | None, typer.Option(metavar=FILES, help="TMX or TSV to look up first")
    ] = None
    fuzzy: options.Fuzzy = 100.0
    ban: options.Ban = None


@dataclass(frozen=True)
class RequestLimits:
    """The options of how large a request may be: fields of `Limits`."""

    characters: Annotated[int | None, typer.Option(min=1, help="characters per request")] = None
    items: Annotated[int | None, typer.Option(min=1, help="texts per request")] = None
    seconds: Annotated[float | None, typer.Option(min=0.1, help="seconds per request")] = None
    rate: Annotated[float | None, typer.Option(min=0, help="requests per minute")] = None


@dataclass(frozen=True)
class BatchLimits:
    """The options of how requests share batches: `Batching`, with a delay in milliseconds."""

    max_batch_delay_ms: Annotated[
        float, typer.Option(min=0, help="milliseconds to wait for a batch")
    ] = 5.0
    tokens: Annotated[
        int | None, typer.Option("--batch-tokens", min=1, help="source tokens × beams per batch")
    ] = None
    queue: Annotated[int | None, typer.Option(min=1, help="most characters in the queue")] = None
    max_wait: Annotated[float | None, typer.Option(min=0.1, help="longest wait in seconds")] = None


@dataclass(frozen=True)
class Serving:
    """The options of ``foveate serve``."""

    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", callback=named, help="runs, packed files or model names"),
    ]
    address: ServerAddress = ServerAddress()
    weights: Annotated[int | None, typer.Option(min=1, help="MiB of weights in memory")] = None
    engine: ServerEngine = ServerEngine()
    preload: Annotated[bool, typer.Option("--preload", help="load all runs at start")] = False
    studio: Annotated[bool, typer.Option(help="show the studio at /")] = True
    studio_token: Annotated[str | None, typer.Option(help="token for other users")] = None
    terms: ServerTerms = ServerTerms()
    protect: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="text to keep unchanged, like URLs")
    ] = None
    glossaries: Annotated[Path | None, typer.Option(help="folder for clients' glossaries")] = None
    limits: RequestLimits = RequestLimits()
    batching: BatchLimits = BatchLimits()
    drain: Annotated[float, typer.Option(min=0, help="seconds to finish at SIGTERM")] = 30.0
    threads: Annotated[int | None, typer.Option(min=1, help="batches at the same time")] = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"


@serve.command("runs")
@flat
def serve_runs(serving: Serving) -> None:
    """Serve runs until SIGTERM or Ctrl-C."""
    from foveate.config import shipped
    from foveate.serve.launch import ServerOptions, serve

    runs, engine = list(map(shipped, serving.runs)), serving.engine
    batching = chosen(serving.batching) | {"workers": engine.threads(runs, serving.threads)}
    batching["max_delay"] = batching.pop("max_batch_delay_ms") / 1000
    server = ServerOptions(
        **chosen(serving.address), weights=serving.weights, load=engine.load,
        preload=serving.preload or any(run.is_file() for run in runs),  # which may fail
        studio=serving.studio, studio_token=serving.studio_token, protect=serving.protect or (),
        glossaries=serving.glossaries, drain=serving.drain, log_level=serving.log_level,
        translation=chosen(serving.terms), limits=chosen(serving.limits),
        batching=batching,
    )  # fmt: skip
    serve(runs, server)


@keys.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="name of the client")],
    file: File,
    rate: Annotated[
        float | None, typer.Option(min=0, help="requests per minute; 0: no limit")
    ] = None,
) -> None:
    """Make a key and print it once."""
    from foveate.serve.keys import KeyFile

    typer.echo(KeyFile(file).add(name, rate))


@keys.command("list")
def list_keys(file: File) -> None:
    """List names, first characters and rates of the keys."""
    from foveate.serve.keys import KeyFile

    for key in KeyFile(file).all():
        rate = "" if key.rate is None else f"  {key.rate:g} a minute"
        typer.echo(f"{key.name}  {key.begins}…  {key.made}{rate}")


@keys.command("remove")
def remove_key(name: Annotated[str, typer.Argument(help="name of the client")], file: File) -> None:
    """Remove a key; running servers notice at once."""
    from foveate.serve.keys import KeyFile

    KeyFile(file).remove(name)


def studio(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN…", help="runs, or folders of runs")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port")] = 8377,
    browser: Annotated[bool, typer.Option(help="open the page")] = True,
    host: Annotated[str, typer.Option(help="other hosts need --token")] = "127.0.0.1",
    token: Annotated[str | None, typer.Option(help="token that opens the page")] = None,
    lectures: Annotated[Path | None, typer.Option(help="folder for your own lectures")] = None,
    openapi: Annotated[bool, typer.Option("--openapi", help="print the API and exit")] = False,
) -> None:
    """Open runs in the browser, or those that come with foveate."""
    from foveate.config import check_run, published, shipped
    from foveate.serve.launch import extra_packages, studio_document

    folders = [as_run(run) if published(run) else shipped(run) for run in runs or []]
    for folder in (each for each in folders if not each.is_dir()):
        check_run(folder)  # a folder may hold runs
    if openapi:
        typer.echo(studio_document(), nl=False)
        return
    with extra_packages("the studio", "studio"):
        from foveate.studio.api import serve
    serve(folders, port, host, token, browser, lectures)
