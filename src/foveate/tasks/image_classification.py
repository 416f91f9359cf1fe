"""Classification of pictures."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import from_json
from foveate.data.catalogue import DataError
from foveate.data.image import Album, Augmentation, PictureData, Unchanged
from foveate.data.text import TextData, portions
from foveate.decode.engine import Picture
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import Model
from foveate.models.vision import Glimpse
from foveate.nn.normalizers import choices
from foveate.nn.spec import Labels, Pixels
from foveate.tasks.abilities import Classifies
from foveate.tasks.attention_losses import add_choices
from foveate.tasks.base import Batch, Loss, Measures, Task, by_split
from foveate.tasks.classification import (
    FIGURES,
    LabelledBatch,
    LogP,
    load_labels,
    measures_of_labels,
    numbers_of,
    save_labels,
    sorted_labels,
)
from foveate.tasks.objectives import CrossEntropy

STATISTICS = "pixels.json"
MOST = 2000  # training pictures from which mean and deviation are taken
ROWS = 250  # pictures that are judged together
Bytes = NDArray[np.uint8]
PictureModel = Classifier | Glimpse


class PictureTask(Task[Batch]):
    """Pictures in; what comes out is up to who derives from it.

    Pixels are normalised, (x − mean) / deviation of each channel over the training pictures as
    they are judged.
    """

    class Config(Task.Config):
        """The pictures, and their augmentation."""

        pictures: PictureData.Config  # where the pictures and their texts or labels are
        augmentation: Augmentation.Config = Unchanged.Config()  # how training pictures are varied

    reads = "picture"

    def __init__(self, config: Config, data: TextData) -> None:
        super().__init__(config, data)
        self.pictures: PictureData = config.pictures.build(data.splits)
        self.augmentation: Augmentation = config.augmentation.build()
        self.mean, self.deviation = np.zeros(1, np.float32), np.ones(1, np.float32)
        self.shape = (0, 0, 0)  # channels, height, width of what the model reads

    @by_split
    def album(self, split: str) -> Album:
        """The pictures of a split, read once."""
        return self.pictures.album(split)

    def digest(self, split: str) -> str:
        album = self.album(split)
        return hashlib.sha256(album.pixels.tobytes() + json.dumps(album.texts).encode()).hexdigest()

    def measure_pixels(self, folder: Path) -> None:
        """Take shape, mean and deviation from the training pictures, and write them into a run."""
        album = self.album("train")
        rows = range(0, len(album), -(-len(album) // MOST))
        seen = np.stack([self.seen("train", row) for row in rows]).astype(np.float32) / 255
        self.shape = seen.shape[1:]
        self.mean = seen.mean(axis=(0, 2, 3))
        self.deviation = np.maximum(seen.std(axis=(0, 2, 3)), 1e-3)
        statistics = {
            "shape": list(self.shape),
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
        }
        replace_file(folder / STATISTICS, json.dumps(statistics, indent=1))

    def restore_pixels(self, folder: Path) -> None:
        """Read what `measure_pixels` wrote."""

        def measured(statistics: dict[str, Any]) -> None:
            channels, height, width = map(int, statistics["shape"])
            self.shape = (channels, height, width)
            self.mean = np.array(statistics["mean"], np.float32)
            self.deviation = np.array(statistics["deviation"], np.float32)

        from_json(folder / STATISTICS, measured)

    @property
    def source(self) -> Pixels:
        """The size of what a model reads."""
        return Pixels(*self.shape)

    def seen(self, split: str, row: int, noise: int = 0) -> Bytes:
        """The picture (C, H, W) as a model sees it; ``noise`` 0 is the one that is judged."""
        random = np.random.default_rng((noise, zlib.crc32(split.encode()), row))
        change = self.augmentation.vary if noise else self.augmentation.settle
        return change(self.album(split).pixels[row], random)

    def tensor(self, pictures: Sequence[Bytes]) -> Tensor:
        """Normalised pixels (B, C, H, W)."""
        centred = np.stack(pictures).astype(np.float32) / 255 - self.mean[:, None, None]
        return torch.from_numpy(centred / self.deviation[:, None, None])

    def pixels(self, split: str, rows: Sequence[int], noise: int = 0) -> Tensor:
        """Normalised pixels of some pictures of a split."""
        return self.tensor([self.seen(split, row, noise) for row in rows])

    def shown(self, source: Picture) -> tuple[Bytes, str]:
        """A picture as the model sees it, and its name: of the test data, or of a file."""
        if isinstance(source, int):
            album = self.album("test")
            if not 0 <= source < len(album):
                raise UserError(f"picture {source}: the test data has 0 to {len(album) - 1}")
            return self.seen("test", source), album.names[source]
        random = np.random.default_rng(zlib.crc32(str(source).encode()))
        return self.augmentation.settle(self.pictures.open(source), random), Path(source).name

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

    Raises `UserError` where the encoder does not say.
    """
    for part in (encoder, getattr(encoder, "stem", None)):
        labels = getattr(part, "labels", None)
        if labels is not None:
            return list(labels)
    raise UserError(f"{type(encoder).__name__} does not name its places: give it `labels`")


class ImageClassification(PictureTask[LabelledBatch], Classifies, kind="image_classification"):
    """One of the labels of the training data for each picture; the loss is −log p(label | picture).

    Figures and answers are those of `foveate.tasks.classification`.
    """

    figures = FIGURES
    gives = "label"

    def prepare(self, folder: Path, seed: int) -> None:
        self.measure_pixels(folder)
        self.label_names = sorted_labels([text for (text,) in self.texts("train")])
        save_labels(self.label_names, folder)

    def restore(self, folder: Path) -> None:
        self.restore_pixels(folder)
        self.label_names = load_labels(folder)

    def texts(self, split: str) -> list[list[str]]:
        album = self.album(split)
        wrong = [n for n, texts in zip(album.names, album.texts, strict=True) if len(texts) != 1]
        if wrong:
            raise DataError(f"{wrong[0]} has several labels; keep one line of the table")
        return album.texts

    def lengths(self, split: str) -> NDArray[np.int32]:
        """1 for each picture, so that ``train.batch_tokens`` is the number of pictures."""
        return np.ones((len(self.album(split)), 1), dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> LabelledBatch:
        album = self.album(split)
        labels = self.numbers(album, indices)
        return LabelledBatch(self.pixels(split, indices, noise), None, labels)

    def numbers(self, album: Album, indices: Sequence[int]) -> Tensor:
        labels = [album.texts[i][0] for i in indices]
        return torch.tensor(numbers_of(labels, self.label_names, lambda n: album.names[indices[n]]))

    def describe_data(self) -> list[str]:
        return [*self.describe_pixels(), f"labels: {', '.join(self.label_names)}"]

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(self.source, Labels(self.label_names))

    def loss(self, model: PictureModel, batch: LabelledBatch, objective: CrossEntropy) -> Loss:
        batch = batch.to(next(model.parameters()).device)
        with choices(model) as made:
            scores = model(batch.source)
        # The objective joins vectors with the output's weights; scores are joined already: I s.
        loss = objective(scores, torch.eye(scores.shape[1], device=scores.device), batch.targets)
        right = (scores.argmax(dim=1) == batch.targets).float()  # the reward of where it looked
        logged = loss.logged | {"accuracy": 100 * right.sum()}
        return add_choices(Loss(loss.total, loss.count, logged), made, right, objective)

    def measure(
        self, model: PictureModel, split: str, search: Search, samples: int = 3
    ) -> Measures:
        log_p, target = self.judged(model, split, ROWS)
        return measures_of_labels(log_p, target, self.label_names, self.album(split).names, samples)

    def judged(self, model: PictureModel, split: str, rows: int) -> tuple[LogP, list[int]]:
        """Log p of every label for each picture of a split (N, C), and the right ones (N,)."""
        every = range(len(self.album(split)))
        log_p = self.predict(model, (self.pixels(split, part) for part in portions(every, rows)))
        return log_p, self.numbers(self.album(split), every).tolist()

    @torch.inference_mode()
    def predict(self, model: PictureModel, batches: Iterable[Tensor]) -> LogP:
        """Log p of every label for each picture of all batches (B, C, H, W), (N, C)."""
        device = next(model.parameters()).device
        log_p = [np.zeros((0, len(self.label_names)), np.float32)]
        for pixels in batches:
            log_p.append(model(pixels.to(device)).float().log_softmax(dim=1).cpu().numpy())
        return np.concatenate(log_p)
