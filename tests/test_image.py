"""Reading pictures, and classifying them: what is wrong is named by file."""

import codecs
import gzip
import io
import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.config import kinds
from foveate.data.catalogue import DataError
from foveate.data.image import IDX, Canvas, Crop, ImageFiles, Shift, decode, read_idx
from foveate.data.text import TextData
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.look.draw.pictures import over_picture
from foveate.look.views.maps import glimpses
from foveate.models.classifier import Classifier, First
from foveate.models.vision import Glimpse
from foveate.run import RunEngine, answering
from foveate.run.evaluation import evaluate, examples
from foveate.run.passes import forced
from foveate.tasks.image_classification import ImageClassification
from pictures import COLOURS, bars, idx, png, vit, write_bars, write_squares
from tolerances import close


# ---- Reading pictures: IDX, folders and tars with a table; what is wrong is named by file
def idx_pictures(folder: Path, held_out: int = 4) -> IDX:
    pattern = write_bars(folder)
    config = IDX.Config(images=f"{pattern}-images", labels=f"{pattern}-labels", held_out=held_out)
    return config.build({})


def files(folder: Path, **fields: object) -> ImageFiles:
    names = {"files": str(folder / "pictures"), "table": str(folder / "table.tsv"), "size": 16}
    return ImageFiles.Config.parse(names | fields).build({})


def test_idx_splits_and_labels(tmp_path: Path) -> None:
    pictures = idx_pictures(tmp_path)
    train, valid, test = (pictures.album(split) for split in ("train", "valid", "test"))
    images, labels = bars(24)
    assert [len(train), len(valid), len(test)] == [20, 4, 24]
    assert train.pixels.shape == (20, 1, 8, 8)
    assert (np.concatenate([train.pixels, valid.pixels])[:, 0] == images).all()
    assert train.texts + valid.texts == [[str(label)] for label in labels]
    assert valid.names[0] == "train-images.gz#20"


def test_idx_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((2, 3), np.uint8)))[:-6])
    with pytest.raises(DataError, match=r"x\.gz is a damaged gzip file"):
        read_idx(path)
    path = tmp_path / "x"
    for content, message in (
        (b"PNG!" + b"\0" * 20, "not an IDX file"),
        (b"\0\0\x08\x03\0\0", "ends within its header"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"says it holds 6 bytes \(2, 3\), but has 5"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(path)


def test_idx_files_that_do_not_belong_together(tmp_path: Path) -> None:
    pictures = idx_pictures(tmp_path)
    (tmp_path / "train-labels").write_bytes(idx(np.zeros(7, np.uint8)))
    with pytest.raises(DataError, match=r"train-labels \(7,\).*belong together"):
        pictures.album("train")
    with pytest.raises(DataError, match="held_out = 24 leaves none of 24"):
        idx_pictures(tmp_path, held_out=24).album("train")


@pytest.mark.parametrize("place", ["pictures", "pictures.tar", "pictures.zip"])
def test_a_folder_and_archives_with_captions(tmp_path: Path, place: str) -> None:
    write_squares(tmp_path)
    shutil.make_archive(str(tmp_path / "pictures"), "zip", tmp_path / "pictures")
    album = files(tmp_path, files=str(tmp_path / place)).album("train")
    assert album.names == [f"{colour}.png" for colour in COLOURS]
    assert album.texts[1] == ["A green square on grey .", "The square is green ."]
    for row, colour in enumerate(COLOURS.values()):
        assert album.pixels[row, :, 8, 6].tolist() == list(colour)  # cut to the middle 16 of 20
    grey = files(tmp_path, files=str(tmp_path / place), channels=1, size=4).album("train").pixels
    assert grey.shape == (3, 1, 4, 4) and len({*grey[:, 0, 2, 1].tolist()}) == 3


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pictures = files(write_squares(tmp_path))
    place = tmp_path / "pictures" / "deep" / "blue.png"
    for content in (png("blue")[:60], b"no picture"):
        place.write_bytes(content)
        with pytest.raises(DataError, match=r"pictures: blue\.png cannot be read as a picture"):
            pictures.album("train")
    place.unlink()
    with pytest.raises(DataError, match=r"names 1 pictures that are missing from .*blue\.png"):
        pictures.album("train")


def test_a_table_that_is_wrong_names_its_line(tmp_path: Path) -> None:
    pictures = files(write_squares(tmp_path))
    with pytest.raises(DataError, match=r"no split 'val', only test, train, valid; name it"):
        pictures.album("val")
    table = tmp_path / "table.tsv"
    table.write_text(table.read_text() + "train\tred.png\n")
    with pytest.raises(DataError, match=r"table\.tsv:19: 2 columns"):
        pictures.album("train")
    table.write_bytes(b"train\tred.png\t\xff\n")
    with pytest.raises(DataError, match=r"table\.tsv:1: not UTF-8"):
        pictures.album("train")
    table.write_bytes(codecs.BOM_UTF8 + b"first\tred.png\tred\n")
    assert len(pictures.album("first").pixels) == 1


def test_grey_of_16_bits_is_scaled_to_8() -> None:
    file, grey = io.BytesIO(), np.arange(256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(grey * 257).save(file, "png")
    for channels in (1, 3):
        pixels = decode(file.getvalue(), "grey", channels, (16, 16))
        assert pixels.tolist() == [grey.tolist()] * channels


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB", "1", "I;16", "PA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_transparent_is_white_in_every_mode(mode: str, channels: int) -> None:
    """A black square on a ground that is transparent, and black (or nearly) beneath."""
    square = np.zeros((16, 16), bool)
    square[4:12, 4:12] = True
    if mode == "I;16":
        image = Image.fromarray(np.where(square, 0, 5).astype(np.uint16))
    else:
        image = Image.new(mode if mode in ("P", "L", "RGB", "1") else "RGBA", (16, 16))
        ground = {"RGB": (1, 1, 1), "1": 1}.get(mode, 5 if mode in ("P", "L") else (0, 0, 0, 0))
        if mode == "P":
            image.putpalette([0] * 768)
        black = (0, 0, 0, 255) if image.mode == "RGBA" else (0, 0, 0) if mode == "RGB" else 0
        for x, y in np.argwhere(np.ones_like(square)).tolist():
            image.putpixel((x, y), black if square[y, x] else ground)
        image = image.convert(mode)
    file = io.BytesIO()
    clear = {"P": 5, "L": 5, "RGB": (1, 1, 1), "1": 1, "I;16": 5}.get(mode)
    if mode == "PA":
        image.save(file, "TIFF")
    else:
        image.save(file, "PNG", **({} if clear is None else {"transparency": clear}))
    pixels = decode(file.getvalue(), mode, channels, (16, 16))
    np.testing.assert_array_equal(pixels, np.where(square, 0, 255)[None].repeat(channels, 0))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_32_bits_are_refused(mode: str) -> None:
    file = io.BytesIO()
    Image.new(mode, (4, 4), 300).save(file, "TIFF")
    with pytest.raises(DataError, match=r"big.tif .*32 bits.* mode .*convert it to 8 bits"):
        decode(file.getvalue(), "big.tif", 1, (4, 4))


@pytest.mark.parametrize("place", ["pictures", "pictures.tar", "pictures.zip"])
def test_a_picture_is_found_by_its_folder_and_equal_names_are_refused(tmp_path, place) -> None:
    for colour in ("red", "blue"):
        folder = tmp_path / "pictures" / colour
        folder.mkdir(parents=True)
        (folder / "000.png").write_bytes(png(colour))
    if "." in place:
        kind = place.rpartition(".")[2]
        shutil.make_archive(str(tmp_path / "pictures"), kind, tmp_path / "pictures")
    table = tmp_path / "table.tsv"
    table.write_text("train\tred/000.png\tred\ntrain\t./blue/000.png\tblue\n")
    album = files(tmp_path, files=str(tmp_path / place)).album("train")
    assert [tuple(p[:, 6, 6]) for p in album.pixels] == [COLOURS["red"], COLOURS["blue"]]
    table.write_text("train\t000.png\tred\n")
    with pytest.raises(DataError, match=r"000\.png several times, as .*/000.png and as"):
        files(tmp_path, files=str(tmp_path / place)).album("train")


def test_a_turned_photograph_is_set_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4), "black")
    image.paste("white", (0, 0, 8, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° to the right to see it
    path = tmp_path / "turned.png"
    image.save(path, exif=exif)
    pixels = decode(path.read_bytes(), "turned", 1, (8, 4))
    assert pixels[0, :, -1].min() == 255
    assert pixels[0, :, 0].max() == 0
    assert files(tmp_path).open(path).shape == (3, 16, 16)  # as those of the data are
    assert idx_pictures(tmp_path).open(path).shape == (1, 8, 8)


PICTURE = np.arange(1, 3 * 8 * 8 + 1, dtype=np.uint8).reshape(3, 8, 8)
ALL = [config() for config in kinds("augmentation")["augmentation"].values()]
SMALL: list[Any] = [
    config.model_copy(update={"size": 12 if config.kind == "canvas" else 5})
    if hasattr(config, "size")
    else config
    for config in ALL
]


@pytest.mark.parametrize("config", SMALL, ids=lambda c: c.kind)
def test_laws_of_every_change(config: Any) -> None:
    change = config.build()
    for make in (change.vary, change.settle):
        item, same = (make(PICTURE, np.random.default_rng(3)) for _ in range(2))
        assert (item == same).all()
        assert item.shape == (3, *change.size((8, 8)))
        assert item.dtype == np.uint8
    seen = {change.vary(PICTURE, np.random.default_rng(n)).tobytes() for n in range(30)}
    assert len(seen) > 4 or config.kind == "none"


def test_a_shift_moves_and_fills_with_background() -> None:
    shift = Shift.Config(pixels=1).build()
    assert (shift.settle(PICTURE, np.random.default_rng(0)) == PICTURE).all()
    for n in range(20):
        moved = shift.vary(PICTURE, np.random.default_rng(n))
        wide = np.pad(PICTURE, ((0, 0), (2, 2), (2, 2)))
        shifts = itertools.product((-1, 0, 1), repeat=2)
        assert any((wide[:, 2 + y : 10 + y, 2 + x : 10 + x] == moved).all() for y, x in shifts)


def test_a_canvas_holds_the_picture_whole_and_nothing_else() -> None:
    placed = Canvas.Config(size=12).build().settle(PICTURE, np.random.default_rng(1))
    assert int(placed.sum(dtype=int)) == int(PICTURE.sum(dtype=int))
    rows, columns = placed[0].any(axis=1).nonzero()[0], placed[0].any(axis=0).nonzero()[0]
    assert (placed[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] == PICTURE).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="8×8 does not fit on a canvas of 6×6"):
        Canvas.Config(size=6).build().size((8, 8))
    with pytest.raises(ValueError, match=r"no part of 9×9.*raise task\.pictures\.size"):
        Crop.Config(size=9).build().size((8, 8))


def test_crops_are_mirrored_half_of_the_time() -> None:
    crop = Crop.Config(size=8).build()
    varied = (crop.vary(PICTURE, np.random.default_rng(n)) for n in range(40))
    assert 8 < sum(bool((each == PICTURE[:, :, ::-1]).all()) for each in varied) < 32


# ---- Pictures to labels: batches, figures, answers, maps, and noise that seeds what is random
VIT = Classifier.Config(encoder=vit(4, 10, (8, 2, 2, 12)), pooling=First.Config(), dropout=0.0)
GLIMPSE = Glimpse.Config(patch_size=4, scales=2, num_glimpses=3, hidden_size=8, glimpse_size=6)
REQUEST = SearchRequest(Greedy.Config().build())


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
    assert batch.source.shape == (20, 1, 12, 12)
    assert batch.targets.tolist() == [n % 2 for n in range(20)]
    assert abs(float(batch.source.mean())) < 0.05
    assert abs(float(batch.source.std()) - 1) < 0.05
    again, other = (task.batch("train", range(20), noise=n).source for n in (5, 6))
    assert torch.equal(task.batch("train", range(20), noise=5).source, again)
    assert not torch.equal(again, other)
    close(task.batch("train", [7, 3], noise=5).source, again[[7, 3]])
    valid = [task.batch("valid", range(4)).source for _ in range(2)]
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
    result = evaluate(task, RunEngine(task, model), examples(task, "test"), REQUEST)
    assert result.figures["accuracy"] == 50
    nll = [float(torch.tensor([0.0, 1.0]).log_softmax(0)[label]) for label in (0, 1)]
    assert result.figures["loss"] == pytest.approx(-sum(nll) / 2)
    # of "1": 2/3; of "0", never said: 0
    assert result.figures["f1_macro"] == pytest.approx(100 / 3)
    assert result.outputs == ["1"] * 24
    assert result.tables["confusion"].cells == [[0, 12], [0, 12]]
    assert task.measure(model, "test", None).figures == result.figures
    few = replace(REQUEST, batch_tokens=7)
    assert len(evaluate(task, RunEngine(task, model), "test", few).outputs) == 24
    (answer,) = answering.answer(task, RunEngine(task, model), [3], REQUEST)
    assert (answer.source, answer.label) == (3, "1")
    assert list(answer.probabilities) == ["1", "0"]  # the most probable first
    assert sum(answer.probabilities.values()) == pytest.approx(1)


def test_labels_that_do_not_fit_are_named(task: ImageClassification, tmp_path: Path) -> None:
    (tmp_path / "test-labels").write_bytes(idx(np.full(24, 7, np.uint8)))
    with pytest.raises(DataError, match=r"test-images\.gz#0: the label '7'.*has '0', '1'"):
        task.batch("test", [0])
    pictures = files(write_squares(tmp_path)).config
    captioned: ImageClassification = ImageClassification.Config(pictures=pictures).build(TextData())
    with pytest.raises(DataError, match=r"red\.png has several labels"):
        captioned.prepare(tmp_path, seed=0)


def test_patches_are_named_on_the_maps(task: ImageClassification) -> None:
    model: Any = task.build(VIT).eval()
    record = forced(task, model, 5).record()
    rows, columns = record.axes("encoder.layers.1.self_attention")
    assert rows == columns == ["[class]", *(f"{y},{x}" for y in range(3) for x in range(3))]
    close(record.select("self_attention").sum(axis=1), 1)
    view = over_picture(record, task.shown(5)[0])
    assert [overlay.title for overlay in view.overlays] == ["layer 0", "layer 1"]


def test_the_path_of_glimpses_begins_in_the_middle(task: ImageClassification) -> None:
    model: Any = task.build(GLIMPSE).eval()
    view = glimpses(task, model, 2)
    assert len(view.path) == 3
    assert view.path[0] == (6, 6)
    assert tuple(view.sides) == (4, 8)
    with pytest.raises(ValueError, match="foveate look picture"):
        forced(task, model, 2).record()
