"""foveate: train, look inside and use models of sequences. The public surface, spelled once.

    run = foveate.load("runs/en-fr")
    answer = run.translate(["A dog runs."], beam_size=5)[0]
    answer.hypotheses, answer.scores, answer.attention

Names are imported when first used, so that ``import foveate`` and ``foveate --help`` stay quick.
``foveate.train`` is the function; import from the package of that name: ``from foveate.train …``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foveate import look
    from foveate.config import Config
    from foveate.look.records import capture
    from foveate.run import load
    from foveate.training import train

__version__ = "0.1.0"
__all__ = ["Config", "__version__", "capture", "load", "look", "train"]

_HOME = {
    "Config": "foveate.config",
    "capture": "foveate.look.records",
    "load": "foveate.run",
    "train": "foveate.training",
}


# Modules by the names that examples imported before, and where their contents are now.
_MOVED = {
    "foveate.data.bag": "foveate.data.words",
    "foveate.data.readers": "foveate.data.text",
    "foveate.export.compare": "foveate.export.base",
    "foveate.export.engine": "foveate.export.ctranslate2",
    "foveate.look.capture": "foveate.look.records",
    "foveate.look.drawing": "foveate.look.drawings",
    "foveate.look.edit": "foveate.look.edits",
    "foveate.look.flow": "foveate.look.models",
    "foveate.look.heatmap": "foveate.look.maps",
    "foveate.look.importance": "foveate.look.inside",
    "foveate.look.lens": "foveate.look.inside",
    "foveate.look.permutation": "foveate.look.models",
    "foveate.look.picture": "foveate.look.maps",
    "foveate.look.surface": "foveate.look.models",
    "foveate.look.view": "foveate.look.drawings",
    "foveate.decode.choose": "foveate.decode.beam",
    "foveate.decode.greedy": "foveate.decode.beam",
    "foveate.models.base": "foveate.models.encoder_decoder",
    "foveate.nn.position": "foveate.nn.positions",
    "foveate.nn.score": "foveate.nn.scores",
    "foveate.passages": "foveate.documents",
    "foveate.passages.glossary": "foveate.documents.memory",
    "foveate.passages.html": "foveate.documents.html",
    "foveate.tasks.labels": "foveate.tasks.text",
    "foveate.tasks.objective": "foveate.tasks.objectives",
    "foveate.tasks.text_batch": "foveate.tasks.text",
}


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module of `_MOVED` under its earlier name, with one warning."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in _MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {module}: import from there", FutureWarning, 2)
        return importlib.import_module(module)

    def exec_module(self, module: types.ModuleType) -> None:
        """The module has been executed under its own name."""


sys.meta_path.insert(0, _MovedModules())


def __getattr__(name: str) -> Any:
    if name == "look":
        return importlib.import_module("foveate.look")
    if name not in _HOME:
        raise AttributeError(f"foveate has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Surface(types.ModuleType):
    """Keeps the import of the package ``foveate.train`` from hiding the function of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Surface
