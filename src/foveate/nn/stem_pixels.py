"""The stem of pictures: a grid of patches becomes a sequence of vectors."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.stem import Stem
from foveate.spec import Input, Pixels

CLASS = "[class]"  # the label of the place that belongs to no patch


class PatchStem(Stem):
    """x_i = E p_i + b for each of the H/P × W/P patches p_i, row by row (Dosovitskiy, 2020).

    E is a convolution of P × P pixels with stride P. With a class token a learned vector stands
    before them. Raises ``ValueError`` where patches do not fill the picture.
    """

    class Config(Stem.Config, kind="patches"):
        """``patch_size`` P in pixels."""

        patch_size: int = Field(4, gt=0)
        class_token: bool = False

    config: Config
    reads: ClassVar[type] = Pixels

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Pixels)
        patch = config.patch_size
        if source.height % patch or source.width % patch:
            raise ValueError(
                f"patches of {patch}×{patch} do not fill a picture of "
                f"{source.height}×{source.width}: choose a patch_size that divides both"
            )
        self.labels = grid_labels(source.height // patch, source.width // patch)
        self.patches = nn.Conv2d(source.channels, size, patch, stride=patch)
        spread = 1 / math.sqrt(source.channels * patch * patch)
        nn.init.trunc_normal_(self.patches.weight, std=spread)
        assert self.patches.bias is not None
        nn.init.zeros_(self.patches.bias)
        self.class_token = None
        if config.class_token:
            self.labels = [CLASS, *self.labels]
            self.class_token = nn.Parameter(0.02 * torch.randn(size))

    def forward(self, inputs: Float[Tensor, "B C H W"]) -> Float[Tensor, "B T D"]:
        x: Tensor = self.patches(inputs).flatten(2).mT  # (B, D, h, w) -> (B, h·w, D)
        if self.class_token is None:
            return x
        first = self.class_token.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((first, x), dim=1)


def grid_labels(height: int, width: int) -> list[str]:
    """The label "row,column" of each cell of a grid, row by row, counted from 0."""
    return [f"{row},{column}" for row in range(height) for column in range(width)]
