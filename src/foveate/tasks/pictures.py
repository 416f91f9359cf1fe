"""Pictures as data of a task: albums, chance changes, normalising. Knows no model."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.atomic import replace_file
from foveate.data.augmentation import Augmentation, Unchanged
from foveate.data.image import Album, Pictures
from foveate.data.text import TextData
from foveate.look.picture import over_picture
from foveate.look.view import View
from foveate.look.words import Units
from foveate.spec import Pixels
from foveate.tasks.base import Task
from foveate.tree import from_json

STATISTICS = "pixels.json"
MOST = 2000  # training pictures from which mean and deviation are taken
Batch = TypeVar("Batch")
Bytes = NDArray[np.uint8]
Source = int | str | Path  # a picture of the test data by its number, or a file


class PictureTask(Task[Batch]):
    """Pictures in; what comes out is up to who derives from it.

    Pixels are normalised, (x − mean) / deviation of each channel over the training pictures as
    they are judged.
    """

    class Config(Task.Config):
        """Where the pictures lie, and what chance does to them."""

        pictures: Pictures.Config
        augmentation: Augmentation.Config = Unchanged.Config()

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self.pictures: Pictures = config.pictures.build(data.splits)
        self.augmentation: Augmentation = config.augmentation.build()
        self.mean, self.deviation = np.zeros(1, np.float32), np.ones(1, np.float32)
        self.shape = (0, 0, 0)  # channels, height, width of what the model reads
        self._albums: dict[str, Album] = {}

    def album(self, split: str) -> Album:
        """The pictures of a split, read once."""
        if split not in self._albums:
            self._albums[split] = self.pictures.album(split)
        return self._albums[split]

    def measure_pixels(self) -> None:
        """Take shape, mean and deviation from the training pictures."""
        album = self.album("train")
        rows = range(0, len(album), -(-len(album) // MOST))
        seen = np.stack([self.seen("train", row) for row in rows]).astype(np.float32) / 255
        self.shape = seen.shape[1:]
        self.mean = seen.mean(axis=(0, 2, 3))
        self.deviation = np.maximum(seen.std(axis=(0, 2, 3)), 1e-3)

    def save_pixels(self, folder: Path) -> None:
        """Write what `measure_pixels` found."""
        found = {
            "shape": list(self.shape),
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
        }
        replace_file(folder / STATISTICS, json.dumps(found, indent=1))

    def restore_pixels(self, folder: Path) -> None:
        """Read what `save_pixels` wrote."""
        from_json(folder / STATISTICS, self._measured)

    def _measured(self, found: dict[str, Any]) -> None:
        channels, height, width = map(int, found["shape"])
        self.shape = (channels, height, width)
        self.mean = np.array(found["mean"], np.float32)
        self.deviation = np.array(found["deviation"], np.float32)

    @property
    def source(self) -> Pixels:
        """What a model reads."""
        return Pixels(*self.shape)

    def seen(self, split: str, row: int, noise: int = 0) -> Bytes:
        """The picture (C, H, W) as a model sees it; ``noise`` 0 is the one that is judged."""
        pixels = self.album(split).pixels[row]
        random = np.random.default_rng((noise, zlib.crc32(split.encode()), row))
        change = self.augmentation.vary if noise else self.augmentation.settle
        return change(pixels, random)

    def tensor(self, pictures: Sequence[Bytes]) -> Tensor:
        """Normalised pixels (B, C, H, W)."""
        stacked = np.stack(pictures).astype(np.float32) / 255
        centred = stacked - self.mean[:, None, None]
        return torch.from_numpy(centred / self.deviation[:, None, None])

    def pixels(self, split: str, rows: Sequence[int], noise: int = 0) -> Tensor:
        """Normalised pixels of some pictures of a split."""
        return self.tensor([self.seen(split, row, noise) for row in rows])

    def shown(self, source: Source) -> tuple[Bytes, str]:
        """A picture as the model sees it, and its name: of the test data, or of a file."""
        if isinstance(source, int):
            album = self.album("test")
            if not 0 <= source < len(album):
                raise ValueError(f"picture {source}: the test data has 0 to {len(album) - 1}")
            return self.seen("test", source), album.names[source]
        random = np.random.default_rng(zlib.crc32(str(source).encode()))
        return self.augmentation.settle(self.pictures.open(source), random), Path(source).name

    def view(
        self,
        model: Any,
        source: Source,
        target: Any = None,
        search: Any = None,
        units: Units = "auto",
        **part: Any,
    ) -> View:
        """What `explain` finds, drawn over the picture; ``part`` names block, layer, head."""
        record = self.explain(model, source, target, search, units)
        return over_picture(record, self.shown(source)[0], **part)

    def describe_pixels(self) -> list[str]:
        """Lines that say what was read."""
        channels, height, width = self.shape
        mean, deviation = (", ".join(f"{v:.3f}" for v in p) for p in (self.mean, self.deviation))
        return [
            f"train: {len(self.album('train')):,} pictures",
            f"a model reads {channels}×{height}×{width}: mean {mean}, deviation {deviation} of 0–1",
        ]


def place_labels(encoder: nn.Module) -> list[str]:
    """A name for each place of the memory of an encoder of pictures: "row,column" of its cell.

    Raises ``ValueError`` where the encoder does not say.
    """
    for part in (encoder, getattr(encoder, "stem", None)):
        labels = getattr(part, "labels", None)
        if labels is not None:
            return list(labels)
    raise ValueError(f"{type(encoder).__name__} does not name its places: give it `labels`")
