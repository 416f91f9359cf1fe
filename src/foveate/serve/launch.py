"""Start the servers: from command-line options to applications and addresses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate import __version__
from foveate.config import ConfigError
from foveate.documents.spans import Rules
from foveate.errors import install
from foveate.serve.keys import KeyFile

if TYPE_CHECKING:
    from fastapi import FastAPI

    from foveate.engine.answers import Translator
    from foveate.serve.translation_api import LazyStudio

LOCAL = ("127.0.0.1", "localhost", "::1")
MIB = 2**20


@contextmanager
def extra_packages(subject: str, extra: str) -> Iterator[None]:
    """Raise ``ConfigError`` with the extra to install if an import in the block lacks a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "foveate":
            raise
        raise ConfigError(f"{subject} needs the package {error.name}; {install(extra)}") from None


@dataclass(frozen=True)
class ServerOptions:
    """Options of the translation server; the mappings have fields of the configs noted beside."""

    host: str = "127.0.0.1"
    port: int = 5000
    languages: Sequence[str] = ()  # "en:fr", or NAME=en:fr if there are several runs
    keys: Path | None = None
    auth: bool = True
    allow_host: Sequence[str] = ()  # names that it may be reached by, beside this machine's
    cors: Sequence[str] = ()  # origins of pages that may use it
    behind_proxy: str | None = None
    weights: int | None = None  # MiB of them in memory
    preload: bool = False
    load: Callable[[Path], Translator] | None = None  # of a run; None: in PyTorch
    studio: bool = True
    studio_token: str | None = None
    drain: float = 30.0
    log_level: str = "info"
    translation: Mapping[str, Any] = field(default_factory=dict)  # of `runs.equip`
    protect: Sequence[str] = ()  # patterns of spans that are not translated
    glossaries: Path | None = None  # a folder for those that clients store; None: in memory
    limits: Mapping[str, object] = field(default_factory=dict)  # `Limits`
    batching: Mapping[str, object] = field(default_factory=dict)  # `Batching`

    @property
    def key_file(self) -> KeyFile | None:
        """The keys that clients need, or None."""
        return None if self.keys is None or not self.auth else KeyFile(self.keys)

    def directions(self, runs: Sequence[Path]) -> dict[str, str]:
        """Return directions by run name. Raises ``ConfigError`` if the run is ambiguous."""
        named: dict[str, str] = {}
        for language in self.languages:
            name, equals, direction = language.rpartition("=")
            if not equals and len(runs) > 1:
                raise ConfigError(
                    f"--as {language}: there are several runs; write --as NAME={language}"
                )
            name = name if equals else runs[0].resolve().name
            named[name] = ",".join(filter(None, (named.get(name), direction)))
        return named


def serve(runs: Sequence[Path], options: ServerOptions) -> None:
    """Serve translations until SIGTERM. Raises ``ConfigError`` for an unsafe address."""
    if options.host not in LOCAL and options.keys is None and options.auth:
        raise ConfigError(
            f"{options.host} can be reached by others: give --keys FILE (made by foveate serve "
            "keys add NAME --file FILE), or --no-auth if everyone may use it"
        )
    if (keys := options.key_file) is not None and not keys.all():
        raise ConfigError(
            f"{options.keys} contains no key: foveate serve keys add NAME --file {options.keys}"
        )
    app = server_application(runs, options)
    from foveate.serve.common import address, listen, log_to_stderr
    from foveate.serve.connections import run_server

    log_to_stderr(options.log_level)
    listener = listen(options.host, options.port)
    print(f"serve: {address(options.host, listener)}  (Ctrl-C stops it)", flush=True)
    for sentence in app.state.started_with:
        print(sentence, flush=True)
    head_seconds = app.state.service.limits.reading
    run_server(app, listener, options.drain, head_seconds, options.behind_proxy)


def server_application(runs: Sequence[Path], options: ServerOptions) -> FastAPI:
    """Return the ASGI application of the translation server, with the studio at ``/``."""
    with extra_packages("serving", "serve"):
        import foveate.serve.connections  # noqa: F401  # it needs this extra
        from foveate.serve.common import LOOPBACK
        from foveate.serve.runs import RunPool, equip, load_run
        from foveate.serve.translation import Service
        from foveate.serve.translation_api import translation_application
        from foveate.serve.translation_schemas import Limits
        from foveate.serve.waiting import Batching

    limits = Limits.parse(options.limits)
    pool = RunPool(
        runs,
        options.directions(runs),
        None if options.weights is None else options.weights * MIB,
        Batching.parse(options.batching),
        options.load or load_run,
    )
    sentences = equip(pool, **options.translation)
    sentences += [f"protected: {pattern}" for pattern in options.protect]
    if options.preload:
        for served in pool.runs.values():
            pool.load(served)
            served.batcher.begin()
    rules = Rules(tuple(options.protect))
    service = Service(pool, limits, options.key_file, rules, options.glossaries)
    hosts = None
    if options.host in LOCAL or options.allow_host:
        hosts = [*LOOPBACK, *options.allow_host]
    studio = _studio([run for run in runs if not run.is_file()], options, hosts)
    app = translation_application(service, __version__, hosts, options.cors, studio, options.drain)
    app.state.started_with = sentences
    return app


def _studio(
    runs: Sequence[Path], options: ServerOptions, hosts: Sequence[str] | None
) -> LazyStudio | None:
    """Return the studio: open on this machine, for others only with a token.

    Without PyTorch, or for packed files alone, it is None.
    """
    open_to_all = options.host in LOCAL and (options.keys is None or not options.auth)
    if not options.studio or not (open_to_all or options.studio_token):
        return None
    if not runs or find_spec("torch") is None:
        return None
    from foveate.serve.translation_api import LazyStudio

    def make() -> FastAPI:
        from foveate.studio.api import studio_application

        return studio_application(runs, options.studio_token, hosts)

    return LazyStudio(make)


def studio_document() -> str:
    """Return the OpenAPI document of the studio, the same at every call."""
    with extra_packages("the studio", "studio"):
        from foveate.studio.api import document, studio_application
    tree = document(studio_application([]))
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
