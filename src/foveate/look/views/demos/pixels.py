"""A demo of pictures: what a model reads from one, as patches and as glimpses."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from foveate.look.draw.sheets import SHARES, SheetGrid, sheet
from foveate.look.views.demos import demo
from foveate.models.vision import Retina
from foveate.nn.embedding import PatchStem
from foveate.nn.spec import Pixels

SIDE, FEATURES, SCALES = 16, 8, 3
Place = Annotated[float, Field(ge=-1, le=1, description="centre of the glimpse, −1 to 1")]


def nine() -> Tensor:
    """Return a 9 in 16 × 16 pixels: a ring and a stem."""
    down, across = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    ring = 1.6 - ((across - 7).float().hypot((down - 5).float()) - 3).abs()
    stem = (1.6 - (across - 10.0).abs()) * ((down >= 5) & (down <= 13))
    return torch.maximum(ring, stem).clamp(0, 1)


@demo
@torch.no_grad()
def pixels(
    part: Annotated[Literal["patches", "glimpses"], Field(description="what to show")] = "patches",
    patch_size: Annotated[int, Field(ge=2, le=8, description="pixels per side of a patch")] = 4,
    x: Place = 0.3,
    y: Place = -0.4,
) -> SheetGrid:
    """Draw a picture as the tokens of a Vision Transformer, or as the patches of one glimpse."""
    torch.manual_seed(0)
    picture, grey = nine(), partial(sheet, scale=SHARES)
    whole = grey("picture, 16 × 16", picture.numpy())
    if part == "glimpses":
        retina = Retina(patch_size, SCALES)
        seen = retina(retina.pyramid(picture[None, None]), torch.tensor([[x, y]]))[0, :, 0]
        patches = [grey(f"{patch_size * 2**k} pixels wide", v.numpy()) for k, v in enumerate(seen)]
        middle = ((y + 1) / 2 * SIDE - 0.5, (x + 1) / 2 * SIDE - 0.5)
        return SheetGrid(
            sheets=[whole.model_copy(update={"dots": [middle]}), *patches], across=4,
            title=f"One glimpse at ({x:g}, {y:g})",
            caption="The patches around the dot have equally many numbers, but each is twice as "
            "wide as the one before: sharp in the middle, coarse around it. The next location is "
            "chosen from what was seen (Mnih et al., 2014).",
        )  # fmt: skip
    stem = PatchStem(PatchStem.Config(patch_size=patch_size), Pixels(1, SIDE, SIDE), FEATURES)
    rows = picture.unfold(0, patch_size, patch_size).unfold(1, patch_size, patch_size)
    rows = rows.flatten(2).flatten(0, 1)  # (T, P·P)
    tokens = sheet(
        f"× E: tokens of size {FEATURES}", stem(picture[None, None])[0].numpy(), aspect=0.5
    )
    return SheetGrid(
        sheets=[whole, grey(f"{len(rows)} patches as rows", rows.numpy()), tokens], across=3,
        title="A picture as a sequence of patches",
        caption="The picture is cut into patches, row by row; each is a row of numbers, which E "
        "maps to a token. The encoder reads these tokens with positions (Dosovitskiy et al., "
        "2020). Here E is random.",
    )  # fmt: skip
