"""Looking inside: capture what attention does, and draw it.

Names are imported when they are first used: the table of views below needs none of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foveate.look.edits import (
        capture_outputs,
        diagonal,
        edit,
        force,
        patch,
        patch_output,
        silence,
        uniform,
    )
    from foveate.look.maps import AttentionView, attention
    from foveate.look.records import AttentionRecord, capture

__all__ = [
    "AttentionRecord",
    "AttentionView",
    "attention",
    "capture",
    "capture_outputs",
    "diagonal",
    "edit",
    "force",
    "patch",
    "patch_output",
    "silence",
    "uniform",
]

_HOME = {
    "AttentionRecord": "records",
    "capture": "records",
    "AttentionView": "maps",
    "attention": "maps",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"foveate.look has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"foveate.look.{_HOME.get(name, 'edits')}"), name)
