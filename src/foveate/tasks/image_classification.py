"""Pictures to labels: the only file that knows both pictures and classifiers.

loss = −log p(label | picture); figures: accuracy in percent, and the mean loss
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.catalogue import DataError
from foveate.data.image import Album
from foveate.look.capture import capture
from foveate.look.path import PathView
from foveate.look.record import AttentionRecord
from foveate.look.view import View
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import Model
from foveate.models.glimpse import Glimpse
from foveate.nn.choice import choices
from foveate.spec import Labels
from foveate.tasks.base import Evaluation, Loss, Measures, Sample
from foveate.tasks.label_figures import label_names, load_labels, numbers_of, save_labels
from foveate.tasks.objective import CrossEntropy
from foveate.tasks.objective_reinforce import add_choices
from foveate.tasks.pictures import PictureTask, Source, place_labels

ROWS = 250  # pictures that are judged together


@dataclass(frozen=True)
class PictureBatch:
    """``pixels`` (B, C, H, W), normalised; ``labels`` (B,) the numbers of their classes."""

    pixels: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> PictureBatch:
        """The same on a device."""
        return PictureBatch(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True)
class LabelAnswer:
    """The most probable label of a picture, and the probability of each label."""

    label: str
    probabilities: dict[str, float]


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

    @torch.inference_mode()
    def measure(self, model: Any, split: str, search: Any, samples: int = 3) -> Measures:
        album = self.album(split)
        plain = CrossEntropy.Config(label_smoothing=0.0).build()
        total, outputs = 0.0, []
        for rows, scores in self._scores(model, split):
            wanted = self._numbers(album, rows).to(scores.device)
            total += float(_cross_entropy(scores, wanted, plain).total)
            outputs += [self.labels.names[best] for best in scores.argmax(dim=1).tolist()]
        wanted_names = [text for (text,) in album.texts]
        shown = range(0, len(album), max(1, len(album) // max(1, samples)))[:samples]
        return Measures(
            {"loss": total / max(1, len(album)), "accuracy": _accuracy(outputs, wanted_names)},
            [Sample(album.names[i], wanted_names[i], outputs[i]) for i in shown],
        )

    def _scores(self, model: Any, split: str) -> Iterator[tuple[range, Tensor]]:
        device = next(model.parameters()).device
        count = len(self.album(split))
        for start in range(0, count, ROWS):
            rows = range(start, min(start + ROWS, count))
            yield rows, model(self.pixels(split, rows).to(device)).float()

    # ---- answers

    def examples(self, split: str) -> str:
        self._texts(split)
        return split

    def evaluate(
        self, model: Any, examples: str, search: Any, batch_tokens: int = 8192
    ) -> Evaluation:
        """Accuracy in percent and mean loss on a split; the outputs are labels."""
        found = self.measure(model, examples, search, samples=len(self.album(examples)))
        return Evaluation(found.figures, {}, [sample.output for sample in found.samples])

    @torch.inference_mode()
    def classify_images(self, model: Any, sources: Sequence[Source]) -> list[LabelAnswer]:
        """The label of each picture."""
        device = next(model.parameters()).device
        answers = []
        for source in sources:
            scores = model(self.tensor([self.shown(source)[0]]).to(device)).float()
            chances = dict(zip(self.labels.names, scores[0].softmax(0).tolist(), strict=True))
            answers.append(LabelAnswer(max(chances, key=chances.__getitem__), chances))
        return answers

    @torch.inference_mode()
    def explain(
        self, model: Classifier, source: Source, target: Any = None, search: Any = None
    ) -> AttentionRecord:
        """What each patch attended to; rows and columns are "row,column" of the patches."""
        pixels, picture = self.shown(source)
        with capture(model) as maps:
            scores = model(self.tensor([pixels]).to(model.output.weight.device))
        if not maps:
            raise ValueError(
                f"the model {model.config.kind!r} has no attention over patches; a path of "
                "glimpses is drawn by: foveate look picture"
            )
        labels = place_labels(model.encoder)
        answer = self.labels.names[int(scores[0].argmax())]
        return AttentionRecord(
            {name: weights[0].cpu().numpy() for name, weights in maps.items()},
            {"": labels},
            {"": labels},
            title=f"{picture} → {answer}",
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


def _accuracy(outputs: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of right outputs in percent."""
    return 100 * float(np.mean([o == w for o, w in zip(outputs, wanted, strict=True)]))
