"""Drawings: what can be drawn, and how it becomes a figure, a text or a page.

Names are imported at their first use.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foveate.look.draw.maps import AttentionView, attention, heads, links
    from foveate.look.draw.pictures import over_picture

__all__ = ["AttentionView", "attention", "heads", "links", "over_picture"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"foveate.look.draw has no {name!r}; it has {', '.join(__all__)}")
    home = "pictures" if name == "over_picture" else "maps"
    return getattr(importlib.import_module(f"foveate.look.draw.{home}"), name)
