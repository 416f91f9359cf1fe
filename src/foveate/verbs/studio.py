"""What ``foveate studio`` does, once its packages are there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveate.config import ConfigError


def serve(runs: Sequence[Path], port: int, host: str, token: str | None, browser: bool) -> None:
    """Serve runs until interrupted. Raises ``ConfigError`` where there are none."""
    if not runs:
        raise ConfigError("name a run, or a folder of runs: foveate studio runs/en-fr")
    _module("serving").serve(runs, port, host, token, browser)


def document() -> str:
    """The OpenAPI document of the studio."""
    return str(_module("openapi").text(_module("app").application([])))


def _module(name: str) -> Any:
    """A module of the studio. Raises ``ConfigError`` where the extra is not installed."""
    try:
        return importlib.import_module(f"foveate.studio.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "foveate":
            raise
        raise ConfigError(
            f"the studio needs the package {error.name}: pip install 'foveate[studio]'"
        ) from None
