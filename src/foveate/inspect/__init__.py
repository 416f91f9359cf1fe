"""Record, change and measure what a model computes.

Names are imported when they are first used, and torch with them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foveate.inspect.edits import (
        capture_outputs,
        diagonal,
        edit,
        force,
        patch,
        patch_output,
        silence,
        uniform,
    )
    from foveate.inspect.flow import rollout
    from foveate.inspect.hooks import capture
    from foveate.inspect.records import AttentionRecord

__all__ = [
    "AttentionRecord",
    "capture",
    "capture_outputs",
    "diagonal",
    "edit",
    "force",
    "patch",
    "patch_output",
    "rollout",
    "silence",
    "uniform",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"foveate.inspect has no {name!r}; it has {', '.join(__all__)}")
    homes = {"AttentionRecord": "records", "capture": "hooks", "rollout": "flow"}
    return getattr(importlib.import_module(f"foveate.inspect.{homes.get(name, 'edits')}"), name)
