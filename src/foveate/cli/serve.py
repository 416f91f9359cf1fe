"""The verbs ``foveate serve RUN…``, ``foveate serve keys`` and ``foveate studio``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import foveate.cli.options as options
from foveate import __version__
from foveate.cli.engines import RunSpec
from foveate.cli.options import DefaultGroup, VerbGroup, as_run, chosen, flat, named
from foveate.errors import ConfigError, install
from foveate.system import processors

if TYPE_CHECKING:
    from foveate.engine.answers import Translator
    from foveate.serve.common import Application
    from foveate.serve.keys import KeyFile
    from foveate.serve.translation_api import LazyStudio

LOCAL = ("127.0.0.1", "localhost", "::1")
MIB = 2**20

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
    """The options of where a server is reached, and by whom."""

    host: Annotated[str, typer.Option(help="other hosts need --keys or --no-auth")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port")] = 5000
    languages: Annotated[list[str] | None, typer.Option("--as", help="en:fr, or RUN=en:fr")] = None
    keys: Annotated[Path | None, typer.Option("--keys", help="file of the clients' keys")] = None
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="require keys")] = True
    allow_host: Annotated[list[str] | None, typer.Option(help="host name of this server")] = None
    cors: Annotated[list[str] | None, typer.Option(help="site whose pages may use it")] = None
    behind_proxy: Annotated[str | None, typer.Option(help="proxy whose headers to trust")] = None

    def key_file(self) -> KeyFile | None:
        """Return the keys that clients need, or None."""
        from foveate.serve.keys import KeyFile

        return None if self.keys is None or not self.auth else KeyFile(self.keys)

    def directions(self, runs: Sequence[Path]) -> dict[str, str]:
        """Return directions by run name. Raises ``ConfigError`` if the run is ambiguous."""
        named: dict[str, str] = {}
        for language in self.languages or ():
            name, equals, direction = language.rpartition("=")
            if not equals and len(runs) > 1:
                raise ConfigError(
                    f"--as {language}: there are several runs; write --as NAME={language}"
                )
            name = name if equals else runs[0].resolve().name
            named[name] = ",".join(filter(None, (named.get(name), direction)))
        return named


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
    own = serving.address
    if own.host not in LOCAL and own.keys is None and own.auth:
        raise ConfigError(
            f"{own.host} can be reached by others: give --keys FILE (made by foveate serve "
            "keys add NAME --file FILE), or --no-auth if everyone may use it"
        )
    if (keys := own.key_file()) is not None and not keys.all():
        raise ConfigError(
            f"{own.keys} contains no key: foveate serve keys add NAME --file {own.keys}"
        )
    app, sentences = server_application(serving)
    from foveate.serve.common import address, listen, log_to_stderr
    from foveate.serve.connections import run_server

    log_to_stderr(serving.log_level)
    listener = listen(own.host, own.port)
    for sentence in (f"serve: {address(own.host, listener)}  (Ctrl-C stops it)", *sentences):
        print(sentence, flush=True)
    run_server(app, listener, serving.drain, app.state.service.limits.reading, own.behind_proxy)


def server_application(serving: Serving) -> tuple[Application, list[str]]:
    """Return the server as an ASGI application, with the studio at ``/``, and what it starts with.

    Raises ``ConfigError`` for a wrong file, direction or limit.
    """
    with extra_packages("serving", "serve"):
        import foveate.serve.connections  # noqa: F401  # it needs this extra
        from foveate.serve.common import LOOPBACK
        from foveate.serve.runs import RunPool, equip
        from foveate.serve.translation import Service
        from foveate.serve.translation_api import translation_application
        from foveate.serve.translation_schemas import Limits
        from foveate.serve.waiting import Batching
    from foveate.config import shipped
    from foveate.documents.spans import Rules

    own, runs = serving.address, list(map(shipped, serving.runs))
    limits = Limits.parse(chosen(serving.limits))
    batching = chosen(serving.batching) | {"workers": serving.engine.threads(runs, serving.threads)}
    batching["max_delay"] = batching.pop("max_batch_delay_ms") / 1000
    memory = None if serving.weights is None else serving.weights * MIB
    bounds = Batching.parse(batching)
    pool = RunPool(runs, own.directions(runs), memory, bounds, serving.engine.load)
    protect = serving.protect or ()
    sentences = equip(pool, **chosen(serving.terms))
    sentences += [f"protected: {pattern}" for pattern in protect]
    if serving.preload or any(run.is_file() for run in runs):  # which may fail
        for served in pool.runs.values():
            pool.load(served)
            served.batcher.begin()
    service = Service(pool, limits, own.key_file(), Rules(tuple(protect)), serving.glossaries)
    hosts = [*LOOPBACK, *(own.allow_host or ())] if own.host in LOCAL or own.allow_host else None
    home, cors = _studio(serving, runs, hosts), own.cors or ()
    app = translation_application(service, __version__, hosts, cors, home, serving.drain)
    return app, sentences


def _studio(serving: Serving, runs: list[Path], hosts: list[str] | None) -> LazyStudio | None:
    """Return the studio: open on this machine, for others only with a token.

    Without PyTorch, or for packed files alone, it is None.
    """
    from foveate.serve.translation_api import LazyStudio

    own, token = serving.address, serving.studio_token
    open_to_all = own.host in LOCAL and (own.keys is None or not own.auth)
    runs = [run for run in runs if not run.is_file()]
    if not serving.studio or not (open_to_all or token) or not runs or find_spec("torch") is None:
        return None

    def make() -> Application:
        from foveate.studio.api import studio_application

        return studio_application(runs, token, hosts)

    return LazyStudio(make)


@contextmanager
def extra_packages(subject: str, extra: str) -> Iterator[None]:
    """Raise ``ConfigError`` with the extra to install if an import in the block lacks a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "foveate":
            raise
        raise ConfigError(f"{subject} needs the package {error.name}; {install(extra)}") from None


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

    folders = [as_run(run) if published(run) else shipped(run) for run in runs or []]
    for folder in (each for each in folders if not each.is_dir()):
        check_run(folder)  # a folder may hold runs
    with extra_packages("the studio", "studio"):
        from foveate.studio.api import document, serve, studio_application
    if openapi:
        tree = document(studio_application([]))
        typer.echo(json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False))
        return
    serve(folders, port, host, token, browser, lectures)
