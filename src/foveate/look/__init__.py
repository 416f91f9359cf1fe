"""Record, change and measure what a model computes.

Names are imported when they are first used, and torch with them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import foveate.look.draw as draw
    from foveate.look.edits import edit, force, patch, silence
    from foveate.look.hooks import capture
    from foveate.look.records import AttentionRecord
    from foveate.look.relevance import rollout

__all__ = ["AttentionRecord", "capture", "draw", "edit", "force", "patch", "rollout", "silence"]


def __getattr__(name: str) -> object:
    if name == "draw":
        return importlib.import_module("foveate.look.draw")
    if name not in __all__:
        raise AttributeError(f"foveate.look has no {name!r}; it has {', '.join(__all__)}")
    homes = {"AttentionRecord": "records", "capture": "hooks", "rollout": "relevance"}
    return getattr(importlib.import_module(f"foveate.look.{homes.get(name, 'edits')}"), name)
