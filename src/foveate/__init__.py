"""foveate: train, inspect and serve sequence models. The public surface, spelled once.

    run = foveate.load("runs/en-fr")
    answer = run.translate(["A dog runs."], beam_size=5)[0]
    answer.hypotheses, answer.scores, answer.attention

Names are imported when first used, so that ``import foveate`` and ``foveate --help`` stay quick.
``foveate.train`` is the function; import from the package of that name: ``from foveate.train …``.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import foveate.look as look
    from foveate.config import Config
    from foveate.look.hooks import capture
    from foveate.nn.native.kernels import changed
    from foveate.run import load
    from foveate.run.training import train

__version__ = "1.0.0rc1"
__all__ = ["Config", "__version__", "capture", "changed", "load", "look", "train"]

_HOME = {
    "Config": "foveate.config",
    "capture": "foveate.look.hooks",
    "changed": "foveate.nn.native.kernels",
    "load": "foveate.run",
    "train": "foveate.run.training",
}


def __getattr__(name: str) -> object:
    if name == "look":
        return importlib.import_module("foveate.look")
    if name not in _HOME:
        raise AttributeError(f"foveate has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Surface(types.ModuleType):
    """Keeps the import of the package ``foveate.train`` from hiding the function of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Surface
