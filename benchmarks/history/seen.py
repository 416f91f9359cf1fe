"""Pictures of models that look at pictures; the shapes are drawn by us."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from foveate.look.heatmap import FONT_SIZE
from history.drawing import Draw, Drawing, narrow
from history.models import SHAPES, trained

PICTURE = 3  # of the test pictures: a triangle


def glimpses(folder: Path) -> Drawing:
    """Where a recurrent model looks, glimpse after glimpse."""
    run = trained("glimpses", folder)
    (answer,) = run.classify_images([PICTURE])
    resized = narrow(run.view(PICTURE), 3.1)

    def draw() -> Figure:
        drawn = resized.figure()
        plain, path = drawn.axes
        plain.set_title(f"the picture → {SHAPES[int(answer.label)]}", size=FONT_SIZE)
        path.set_title("glimpses in order; frames: sharp", size=FONT_SIZE)
        return drawn

    return Drawing(draw)


def patches(folder: Path) -> Drawing:
    """What the class token reads in each layer of a Vision Transformer."""
    run = trained("patches", folder)
    (answer,) = run.classify_images([PICTURE])
    title = f"What the class token looks at before it says: {SHAPES[int(answer.label)]}"
    return narrow(run.view(PICTURE), 2.7, title)


DRAWN: dict[str, Draw] = {"glimpses": glimpses, "patches": patches}
