"""Pictures of models that look at pictures; the shapes are drawn by us."""

from __future__ import annotations

from pathlib import Path

from foveate.look.draw.drawings import Drawing
from history.drawing import Draw, narrow
from history.models import SHAPES, trained

PICTURE = 3  # of the test pictures: a triangle


def patches(folder: Path) -> Drawing:
    """What the class token reads in each layer of a Vision Transformer."""
    run = trained("patches", folder)
    (answer,) = run.classify([PICTURE])
    title = f"Attention of the class token; predicted label: {SHAPES[int(answer.label)]}"
    return narrow(run.view(PICTURE), 2.7, title)


DRAWN: dict[str, Draw] = {"patches": patches}
