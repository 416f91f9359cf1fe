"""What ``foveate serve`` does: it checks who could reach the service, and puts its parts together.

Does not live here: the service (`foveate.serve`), the page at ``/`` (`foveate.studio`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from foveate import __version__
from foveate.config import ConfigError
from foveate.documents.spans import Rules
from foveate.listening import address, listen
from foveate.run import device
from foveate.verbs.decoding import PRECISIONS
from foveate.verbs.export import ENGINES
from foveate.verbs.staff import staffed

LOCAL = ("127.0.0.1", "localhost", "::1")
MIB = 2**20


@dataclass(frozen=True)
class Choices:
    """What is said on the command line; ``limits`` and ``batching`` are fields of those configs."""

    host: str = "127.0.0.1"
    port: int = 5000
    languages: Sequence[str] = ()  # "en:fr", or NAME=en:fr where there are several runs
    keys: Path | None = None
    auth: bool = True
    names: Sequence[str] = ()  # under which it may be reached, beside those of this machine
    origins: Sequence[str] = ()
    proxy: str | None = None
    weights: int | None = None  # MiB of them in memory
    precision: str = "fp32"
    engine: str = "torch"
    sample: Path | None = None  # for the engine: see `foveate.verbs.crew.Loading`
    processes: int = 0  # that translate, beside this one
    preload: bool = False
    studio: bool = True
    studio_token: str | None = None
    drain: float = 30.0
    log_level: str = "info"
    help: dict[str, Any] = field(default_factory=dict)  # fields of `foveate.serve.helping.Help`
    protect: Sequence[str] = ()  # patterns of spans that stay as they are
    limits: dict[str, Any] = field(default_factory=dict)
    batching: dict[str, Any] = field(default_factory=dict)


def serve(runs: Sequence[Path], said: Choices) -> None:
    """Serve runs until SIGTERM. Raises ``ConfigError`` where others could use it unasked."""
    if not runs:
        raise ConfigError("name a run, or several: foveate serve runs/en-fr")
    check_reach(said)
    app = application(runs, said)
    part("logs").log_to_stderr(said.log_level)
    listener = listen(said.host, said.port)
    print(f"serve: {address(said.host, listener)}  (Ctrl-C ends it)", flush=True)
    for sentence in app.state.said:
        print(sentence, flush=True)
    patience = app.state.service.limits.reading
    part("serving").serve(app, listener, said.drain, patience, said.proxy)


def check_reach(said: Choices) -> None:
    """Raise ``ConfigError`` for an address of others without keys, unless that is meant."""
    for what, named, known in (
        ("precision", said.precision, PRECISIONS), ("engine", said.engine, ENGINES)
    ):  # fmt: skip
        if named not in known:
            raise ConfigError(f"no {what} {named!r}; there are: {', '.join(known)}")
    if said.host not in LOCAL and said.keys is None and said.auth:
        raise ConfigError(
            f"{said.host} can be reached by others: give --keys FILE (made by foveate serve keys "
            "add NAME --file FILE), or --no-auth if everyone may use it"
        )
    if said.keys is not None and said.auth and not key_file(said.keys).all():
        raise ConfigError(
            f"{said.keys} holds no key: foveate serve keys add NAME --file {said.keys}"
        )


def workers(threads: int | None, processes: int = 0) -> int:
    """How many batches are answered at a time, one thread each; on a GPU it is one.

    Threads that share a batch wait for each other at every step.
    """
    if device() != "cpu":
        return 1
    count = threads or processes or torch.get_num_threads()
    torch.set_num_threads(1)
    return count


def application(runs: Sequence[Path], said: Choices) -> Any:
    """The ASGI application of runs, the studio at ``/`` included."""
    settings, fleet = part("settings"), part("fleet")
    limits = settings.Limits.parse(_given(said.limits))
    models = fleet.Fleet(
        runs,
        named(said.languages, runs),
        None if said.weights is None else said.weights * MIB,
        settings.Batching.parse(_given(said.batching)),
        partial(
            staffed,
            processes=said.processes,
            precision=said.precision,
            engine=said.engine,
            sample=None if said.sample is None else str(said.sample),
        ),
        1 + said.processes,
    )
    helping = part("helping")
    told = helping.equip(models, helping.Help(**said.help))
    told += [f"protected: {pattern}" for pattern in said.protect]
    keys = None if said.keys is None or not said.auth else key_file(said.keys)
    if said.preload or said.engine != "torch":  # which may not be able to have them
        models.load()
    service = part("service").Service(models, limits, keys, Rules(tuple(said.protect)))
    hosts = None
    if said.host in LOCAL or said.names:
        hosts = [*part("guard").LOOPBACK, *said.names]
    home = _studio(runs, said, hosts)
    make = part("app").application
    app = make(service, __version__, hosts, said.origins, home, said.drain)
    app.state.said = told
    return app


def named(languages: Sequence[str], runs: Sequence[Path]) -> dict[str, str]:
    """Directions by the names of runs. Raises ``ConfigError`` where it is not said of which."""
    found = {}
    for said in languages:
        name, equals, direction = said.rpartition("=")
        if not equals and len(runs) > 1:
            raise ConfigError(f"--as {said}: of which run? Say --as NAME={said}")
        found[name if equals else runs[0].resolve().name] = direction
    return found


def key_file(path: Path) -> Any:
    """The keys of a file."""
    return part("keys").KeyFile(path)


def _studio(runs: Sequence[Path], said: Choices, hosts: Sequence[str] | None) -> Any:
    """The studio: for everyone on this machine, for others only with a token."""
    open_to_all = said.host in LOCAL and (said.keys is None or not said.auth)
    if not said.studio or not (open_to_all or said.studio_token):
        return None
    return _module("foveate.studio.app").application(runs, said.studio_token, hosts)


def _given(choices: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if value is not None}


def part(name: str) -> Any:
    """A module of the service. Raises ``ConfigError`` where its packages are not there."""
    return _module(f"foveate.serve.{name}")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "foveate":
            raise
        raise ConfigError(
            f"serving needs the package {error.name}: pip install 'foveate[serve]'"
        ) from None
