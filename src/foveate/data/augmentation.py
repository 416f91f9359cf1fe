"""What chance does to pictures: small shifts, crops, places on a larger canvas.

Everything random comes from the generator that is given, never from a global one. Pixels are
bytes (C, H, W), 0 is the background.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.config import BaseConfig, Configurable

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height, width


class Augmentation(Configurable):
    """How a picture is changed before a model sees it."""

    class Config(BaseConfig, family="augmentation"):
        """Which change."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def size(self, before: Size) -> Size:
        """The height and width that pictures have afterwards."""
        return before

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        """The picture as training sees it, another one each time."""
        return self.settle(pixels, random)

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        """The picture as it is judged; the generator is the same for it every time."""
        raise NotImplementedError


class Unchanged(Augmentation):
    """The picture as it is."""

    class Config(Augmentation.Config, kind="none"):
        pass

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        return pixels


class Shift(Augmentation):
    """In training moved by up to ``pixels`` in each direction; background comes in."""

    class Config(Augmentation.Config, kind="shift"):
        pixels: int = Field(2, ge=0)

    config: Config

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        by = self.config.pixels
        down, right = random.integers(0, 2 * by + 1, 2)
        _, height, width = pixels.shape
        wide = np.pad(pixels, ((0, 0), (by, by), (by, by)))
        return wide[:, down : down + height, right : right + width]

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        return pixels


class Canvas(Augmentation):
    """Set at a place by chance on a square of background (translated MNIST; Mnih et al., 2014).

    In training the place changes from epoch to epoch; a picture that is judged keeps its own.
    Raises ``ValueError`` where the picture is larger than ``size``.
    """

    class Config(Augmentation.Config, kind="canvas"):
        size: int = Field(60, gt=0)

    config: Config

    def size(self, before: Size) -> Size:
        side = self.config.size
        if max(before) > side:
            raise ValueError(
                f"a picture of {before[0]}×{before[1]} does not fit on a canvas of {side}×{side}: "
                "raise task.augmentation.size"
            )
        return side, side

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        channels, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (int(random.integers(0, side - n + 1)) for n in (height, width))
        canvas = np.zeros((channels, side, side), np.uint8)
        canvas[:, top : top + height, left : left + width] = pixels
        return canvas


class Crop(Augmentation):
    """In training a part by chance, half of them mirrored; judged by the middle.

    Raises ``ValueError`` where the picture is smaller than ``size``.
    """

    class Config(Augmentation.Config, kind="crop"):
        size: int = Field(56, gt=0)

    config: Config

    def size(self, before: Size) -> Size:
        side = self.config.size
        if min(before) < side:
            raise ValueError(
                f"no part of {side}×{side} can be cut from a picture of {before[0]}×{before[1]}: "
                "lower task.augmentation.size, or raise task.pictures.size"
            )
        return side, side

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        _, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (int(random.integers(0, n - side + 1)) for n in (height, width))
        part = pixels[:, top : top + side, left : left + side]
        return part[:, :, ::-1] if random.random() < 0.5 else part

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        _, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (height - side) // 2, (width - side) // 2
        return pixels[:, top : top + side, left : left + side]
