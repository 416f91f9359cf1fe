"""Pictures of models that look at pictures; the shapes are drawn by us."""

from __future__ import annotations

from pathlib import Path

from foveate.look.view import View
from history.drawing import Draw, narrow
from history.models import trained

PICTURE = 3  # of the test pictures: a triangle


def glimpses(folder: Path) -> View:
    """Where a recurrent model looks, glimpse after glimpse."""
    return narrow(trained("glimpses", folder).view(PICTURE), 3.0)


def patches(folder: Path) -> View:
    """What the class token reads in each layer of a Vision Transformer."""
    return narrow(trained("patches", folder).view(PICTURE), 2.3)


DRAWN: dict[str, Draw] = {"glimpses": glimpses, "patches": patches}
