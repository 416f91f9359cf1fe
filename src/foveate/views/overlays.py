"""What the model of a picture task looked at, drawn over the picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from foveate.decode.search import Search
from foveate.draw.drawings import Drawing
from foveate.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.engine.answers import Picture
from foveate.models.vision import Glimpse
from foveate.run.passes import explain
from foveate.tasks.image_classification import ImageClassification, PictureTask


def picture_view(
    task: PictureTask[Any],
    model: nn.Module,
    source: Picture,
    target: str | None,
    search: Search,
    **part: Any,
) -> Drawing:
    """Return the path of a model that takes glimpses, or what another attended to.

    ``part``: units, block, layer, head.
    """
    if isinstance(model, Glimpse) and isinstance(task, ImageClassification):
        return _path(task, model, source)
    record = explain(task, model, source, target, search, part.pop("units", "auto"))
    return over_picture(record, task.shown(source)[0], **part)


@torch.inference_mode()
def _path(task: ImageClassification, model: Glimpse, source: Picture) -> PictureDrawing:
    pixels, name = task.shown(source)
    seen = model.look(task.tensor([pixels]).to(model.output.weight.device))
    _, height, width = pixels.shape
    size = torch.tensor([width, height], dtype=torch.float32)
    places = ((seen.places[0].cpu() + 1) / 2 * size).numpy()
    answer = task.label_names[int(model.output(seen.final)[0].argmax())]
    sides = tuple(model.config.patch_size * 2**k for k in range(model.config.scales))
    return picture_drawing(pixels, f"{name} → {answer}", places, sides)
