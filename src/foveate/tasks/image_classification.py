"""Pictures to labels: the only file that knows both pictures and classifiers.

loss = −log p(label | picture); figures and answers are those of `foveate.tasks.label_figures`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.catalogue import DataError
from foveate.data.image import Album
from foveate.look.forced import ForcedPass, Maps
from foveate.look.path import PathView
from foveate.look.record import AttentionRecord
from foveate.look.view import View
from foveate.look.words import Units
from foveate.models.classifier import Classifier, First
from foveate.models.encoder_decoder import Model
from foveate.models.glimpse import Glimpse
from foveate.nn.choice import choices
from foveate.spec import Labels
from foveate.tasks.base import Evaluation, Loss, Measures
from foveate.tasks.label_figures import (
    Classification,
    LogP,
    evaluation_of_labels,
    label_names,
    load_labels,
    measures_of_labels,
    numbers_of,
    probabilities_of,
    save_labels,
)
from foveate.tasks.objective import CrossEntropy
from foveate.tasks.objective_reinforce import add_choices
from foveate.tasks.pictures import PictureTask, Source, place_labels

ROWS = 250  # pictures that are judged together
One = TypeVar("One")


@dataclass(frozen=True)
class PictureBatch:
    """``pixels`` (B, C, H, W), normalised; ``labels`` (B,) the numbers of their classes."""

    pixels: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> PictureBatch:
        """The same on a device."""
        return PictureBatch(self.pixels.to(device), self.labels.to(device))


class ImageClassification(PictureTask[PictureBatch]):
    """One label for each picture."""

    class Config(PictureTask.Config, kind="image_classification"):
        """Where the pictures and their labels lie, and what chance does to them."""

    config: Config
    labels: Labels

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        self.measure_pixels()
        self.save_pixels(folder)
        self.labels = Labels(label_names(text for (text,) in self._texts("train")))
        save_labels(self.labels.names, folder)

    def restore(self, folder: Path) -> None:
        self.restore_pixels(folder)
        self.labels = Labels(load_labels(folder))

    def _texts(self, split: str) -> list[list[str]]:
        album = self.album(split)
        wrong = [n for n, texts in zip(album.names, album.texts, strict=True) if len(texts) != 1]
        if wrong:
            raise DataError(f"{wrong[0]} has several labels; leave it one line of the table")
        return album.texts

    def lengths(self, split: str) -> NDArray[np.int32]:
        """1 for each picture, so that ``train.batch_tokens`` is the number of pictures."""
        return np.ones((len(self.album(split)), 1), dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> PictureBatch:
        album = self.album(split)
        return PictureBatch(self.pixels(split, indices, noise), self._numbers(album, indices))

    def _numbers(self, album: Album, indices: Sequence[int]) -> Tensor:
        labels = [album.texts[i][0] for i in indices]
        names = self.labels.names
        return torch.tensor(numbers_of(labels, names, lambda n: album.names[indices[n]]))

    def describe_data(self) -> list[str]:
        return [*self.describe_pixels(), f"labels: {', '.join(self.labels.names)}"]

    # ---- model

    def build(self, model: Model.Config) -> nn.Module:
        built: nn.Module = model.build(self.source, self.labels)
        return built

    def loss(self, model: Any, batch: PictureBatch, objective: CrossEntropy) -> Loss:
        batch = batch.to(next(model.parameters()).device)
        with choices(model) as made:
            scores = model(batch.pixels)
        found = _cross_entropy(scores, batch.labels, objective)
        right = (scores.argmax(dim=1) == batch.labels).float()  # the reward of where it looked
        logged = found.logged | {"accuracy": 100 * right.sum()}
        return add_choices(Loss(found.total, found.count, logged), made, right, objective)

    def measure(self, model: Any, split: str, search: Any, samples: int = 3) -> Measures:
        log_p, wanted = self._judged(model, split, ROWS)
        return measures_of_labels(
            log_p, wanted, self.labels.names, self.album(split).names, samples
        )

    def _judged(self, model: Any, split: str, rows: int) -> tuple[LogP, list[int]]:
        """Log p of every label for each picture of a split (N, C), and the right ones (N,)."""
        every = range(len(self.album(split)))
        log_p = self.predict(model, (self.pixels(split, part) for part in _parts(every, rows)))
        return log_p, self._numbers(self.album(split), every).tolist()

    @torch.inference_mode()
    def predict(self, model: Any, batches: Iterable[Tensor]) -> LogP:
        """Log p of every label for each picture of all batches (B, C, H, W), (N, C)."""
        device = next(model.parameters()).device
        found = [np.zeros((0, len(self.labels.names)), np.float32)]
        for pixels in batches:
            scores = model(pixels.to(device)).float().log_softmax(dim=1)
            found.append(scores.cpu().numpy())
        return np.concatenate(found)

    # ---- answers

    def examples(self, split: str) -> str:
        self._texts(split)
        return split

    def evaluate(
        self, model: Any, examples: str, search: Any, batch_tokens: int = 8192
    ) -> Evaluation:
        """Accuracy and macro F1 in percent, mean loss and confusion matrix of a split."""
        log_p, wanted = self._judged(model, examples, min(ROWS, batch_tokens))
        return evaluation_of_labels(log_p, wanted, self.labels.names)

    def classify_images(
        self, model: Any, sources: Sequence[Source], rows: int = ROWS
    ) -> list[Classification]:
        """The label of each picture, ``rows`` of them at a time, in their order."""
        shown = [self.shown(source)[0] for source in sources]  # all are read before one is judged
        log_p = self.predict(model, (self.tensor(part) for part in _parts(shown, rows)))
        found = [probabilities_of(row, self.labels.names) for row in log_p]
        return [Classification(s, next(iter(p)), p) for s, p in zip(sources, found, strict=True)]

    def forced(
        self, model: Classifier, source: Source, target: Any = None, search: Any = None
    ) -> ForcedPass:
        """A picture being read, and log p of the label, or of the most probable one.

        Rows and columns are "row,column" of the patches.
        """
        pixels, picture = self.shown(source)
        seen = self.tensor([pixels]).to(model.output.weight.device)
        with torch.inference_mode():
            best = self.labels.names[int(model(seen)[0].argmax())]
        label = best if target is None else str(target)
        [number] = numbers_of([label], self.labels.names, lambda i: f"target {label!r}")

        def named(maps: Maps, units: Units) -> AttentionRecord:
            if not maps:
                raise ValueError(
                    f"the model {model.config.kind!r} has no attention over patches; a path of "
                    "glimpses is drawn by: foveate look picture"
                )
            places = place_labels(model.encoder)
            rows = {n: places if w.shape[1] == len(places) else [label] for n, w in maps.items()}
            return AttentionRecord(dict(maps), rows, {"": places}, f"{picture} → {label}")

        return ForcedPass(
            model,
            lambda: model(seen).log_softmax(dim=-1)[0, number][None],
            named,
            [label],
            token=self.labels.names.__getitem__,
            answer_at=0 if isinstance(getattr(model, "pooling", None), First) else None,
        )

    def view(
        self, model: Any, source: Source, target: Any = None, search: Any = None, **part: Any
    ) -> View:
        """The path of a model that takes glimpses; the attention over patches of another."""
        if isinstance(model, Glimpse):
            return self._path(model, source)
        return super().view(model, source, target, search, **part)

    @torch.inference_mode()
    def _path(self, model: Glimpse, source: Source) -> PathView:
        pixels, name = self.shown(source)
        seen = model.look(self.tensor([pixels]).to(model.output.weight.device))
        _, height, width = pixels.shape
        size = torch.tensor([width, height], dtype=torch.float32)
        places = ((seen.places[0].cpu() + 1) / 2 * size).numpy()
        answer = self.labels.names[int(model.output(seen.final)[0].argmax())]
        sides = tuple(model.config.patch_size * 2**k for k in range(model.config.scales))
        return PathView(pixels, places, sides, f"{name} → {answer}")


def _cross_entropy(scores: Tensor, labels: Tensor, objective: CrossEntropy) -> Loss:
    """The objective joins its vectors with the output's weights; scores are joined already: I s."""
    return objective(scores, torch.eye(scores.shape[1], device=scores.device), labels)


def _parts(many: Sequence[One], size: int) -> Iterator[Sequence[One]]:
    """A sequence in pieces of at most ``size``."""
    return (many[start : start + size] for start in range(0, len(many), size))
