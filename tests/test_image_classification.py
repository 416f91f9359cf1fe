"""Pictures to labels: batches, figures, answers, maps, and noise that seeds what is random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.data.catalogue import DataError
from foveate.data.image import IDX, Canvas, ImageFiles
from foveate.data.text import TextData
from foveate.decode.beam import Greedy
from foveate.draw.pictures import AttendedPicture, PictureDrawing
from foveate.engine.base import SearchRequest
from foveate.models.classifier import Classifier, First
from foveate.models.presets import vit
from foveate.models.vision import Glimpse
from foveate.tasks.image_classification import ImageClassification
from pictures import idx, write_bars, write_squares
from tolerances import close, near

VIT = Classifier.Config(encoder=vit(4, 10, (8, 2, 2, 12)), pooling=First.Config(), dropout=0.0)
GLIMPSE = Glimpse.Config(patch_size=4, scales=2, num_glimpses=3, hidden_size=8, glimpse_size=6)


@pytest.fixture
def task(tmp_path: Path) -> ImageClassification:
    pattern = write_bars(tmp_path)
    config = ImageClassification.Config(
        pictures=IDX.Config(images=f"{pattern}-images", labels=f"{pattern}-labels", held_out=4),
        augmentation=Canvas.Config(size=12),
    )
    built: ImageClassification = config.build(TextData())
    built.prepare(tmp_path, seed=0)
    return built


def test_batches_are_normalised_and_seeded_by_noise_alone(task: ImageClassification) -> None:
    batch = task.batch("train", range(20))
    assert batch.pixels.shape == (20, 1, 12, 12)
    assert batch.labels.tolist() == [n % 2 for n in range(20)]
    assert abs(float(batch.pixels.mean())) < 0.05
    assert abs(float(batch.pixels.std()) - 1) < 0.05
    again, other = (task.batch("train", range(20), noise=n).pixels for n in (5, 6))
    assert torch.equal(task.batch("train", range(20), noise=5).pixels, again)
    assert not torch.equal(again, other)
    close(task.batch("train", [7, 3], noise=5).pixels, again[[7, 3]])
    valid = [task.batch("valid", range(4)).pixels for _ in range(2)]
    assert torch.equal(*valid), "places of validation stay"


def test_what_was_prepared_is_restored(task: ImageClassification, tmp_path: Path) -> None:
    other: ImageClassification = task.config.build(TextData())
    other.restore(tmp_path)
    assert other.label_names == task.label_names
    assert other.source == task.source
    assert torch.equal(other.pixels("test", [1]), task.pixels("test", [1]))
    lines = task.describe_data()
    assert lines[0] == "train: 20 pictures"
    assert lines[-1] == "labels: 0, 1"


@torch.no_grad()
def test_figures_and_answers(task: ImageClassification) -> None:
    model: Any = task.build(VIT).eval()
    model.output.weight.zero_()
    model.output.bias.copy_(torch.tensor([0.0, 1.0]))
    result = task.evaluate(
        task.engine(model), task.examples("test"), SearchRequest(Greedy.Config().build())
    )
    assert result.figures["accuracy"] == 50
    nll = [float(torch.tensor([0.0, 1.0]).log_softmax(0)[label]) for label in (0, 1)]
    assert result.figures["loss"] == pytest.approx(-sum(nll) / 2)
    assert result.figures["f1_macro"] == pytest.approx(
        100 / 3
    )  # of "1": 2/3; of "0", never said: 0
    assert result.outputs == ["1"] * 24
    assert result.tables["confusion"].cells == [[0, 12], [0, 12]]
    assert task.measure(model, "test", None).figures == result.figures
    assert (
        len(
            task.evaluate(
                task.engine(model), "test", SearchRequest(Greedy.Config().build(), batch_tokens=7)
            ).outputs
        )
        == 24
    )
    (answer,) = task.classify(model, [3])
    assert (answer.source, answer.label) == (3, "1")
    assert list(answer.probabilities) == ["1", "0"]  # the most probable first
    assert sum(answer.probabilities.values()) == pytest.approx(1)


@torch.no_grad()
def test_answers_are_in_order_whatever_the_batch(task: ImageClassification) -> None:
    model: Any = task.build(VIT).eval()
    together = task.classify(model, [5, 2, 9], batch_size=2)
    assert [item.source for item in together] == [5, 2, 9]
    for item in together:
        (alone,) = task.classify(model, [item.source])
        assert item.probabilities == near(alone.probabilities)
    assert task.classify(model, []) == []


def test_a_label_that_training_did_not_show_is_named(task: ImageClassification, tmp_path) -> None:
    (tmp_path / "test-labels").write_bytes(idx(np.full(24, 7, np.uint8)))
    with pytest.raises(DataError, match=r"test-images\.gz#0: the label '7'.*has '0', '1'"):
        task.batch("test", [0])


def test_several_labels_of_one_picture_are_refused(tmp_path: Path) -> None:
    folder = write_squares(tmp_path)
    pictures = ImageFiles.Config(files=str(folder / "pictures"), table=str(folder / "table.tsv"))
    task: ImageClassification = ImageClassification.Config(pictures=pictures).build(TextData())
    with pytest.raises(DataError, match=r"red\.png has several labels"):
        task.prepare(tmp_path, seed=0)


def test_patches_are_named_on_the_maps(task: ImageClassification) -> None:
    model: Any = task.build(VIT).eval()
    record = task.explain(model, 5)
    rows, columns = record.axes("encoder.layers.1.self_attention")
    assert rows == columns == ["[class]", *(f"{y},{x}" for y in range(3) for x in range(3))]
    close(record.select("self_attention").sum(axis=1), 1)
    view = task.view(model, 5)
    assert isinstance(view, AttendedPicture)
    assert [overlay.title for overlay in view.overlays] == ["layer 0", "layer 1"]


def test_the_path_of_glimpses_begins_in_the_middle(task: ImageClassification) -> None:
    model: Any = task.build(GLIMPSE).eval()
    view = task.view(model, 2)
    assert isinstance(view, PictureDrawing)
    assert len(view.path) == 3
    assert view.path[0] == (6, 6)
    assert tuple(view.sides) == (4, 8)
    with pytest.raises(ValueError, match="foveate look picture"):
        task.explain(model, 2)


def test_a_picture_of_the_users(task: ImageClassification, tmp_path: Path) -> None:
    Image.new("RGB", (30, 30), "white").save(tmp_path / "white.png")
    pixels, name = task.shown(tmp_path / "white.png")
    assert name == "white.png"
    assert pixels.shape == (1, 12, 12)
    assert int((pixels == 255).sum()) == 64
