"""Reading pictures: IDX, folders and tars with a table; what is wrong is named by file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveate.config import kinds
from foveate.data.catalogue import DataError
from foveate.data.image import IDX, Canvas, Crop, ImageFiles, Shift, decode, read_idx
from pictures import COLOURS, bars, idx, png, write_bars, write_squares


def idx_pictures(folder: Path, held_out: int = 4) -> IDX:
    pattern = write_bars(folder)
    config = IDX.Config(images=f"{pattern}-images", labels=f"{pattern}-labels", held_out=held_out)
    built: IDX = config.build({})
    return built


def files(folder: Path, **fields: object) -> ImageFiles:
    names = {"files": str(folder / "pictures"), "table": str(folder / "table.tsv"), "size": 16}
    built: ImageFiles = ImageFiles.Config.parse(names | fields).build({})
    return built


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
        (b"PNG!" + b"\0" * 20, "no IDX file"),
        (b"\0\0\x08\x03\0\0", "ends within its header"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"says it holds 6 bytes \(2, 3\), but has 5"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(path)


def test_idx_files_that_do_not_belong_together(tmp_path: Path) -> None:
    pictures = idx_pictures(tmp_path)
    (tmp_path / "train-labels").write_bytes(idx(np.zeros(7, np.uint8)))
    with pytest.raises(DataError, match=r"train-labels \(7,\).*of one set"):
        pictures.album("train")
    with pytest.raises(DataError, match="held_out = 24 leaves nothing"):
        idx_pictures(tmp_path, held_out=24).album("train")


@pytest.mark.parametrize("place", ["pictures", "pictures.tar"])
def test_a_folder_and_a_tar_with_captions(tmp_path: Path, place: str) -> None:
    album = files(write_squares(tmp_path), files=str(tmp_path / place)).album("train")
    assert album.names == [f"{colour}.png" for colour in COLOURS]
    assert album.texts[1] == ["A green square on grey .", "The square is green ."]
    for row, colour in enumerate(COLOURS.values()):
        assert album.pixels[row, :, 8, 6].tolist() == list(colour)  # cut to the middle 16 of 20


def test_grey_and_small(tmp_path: Path) -> None:
    album = files(write_squares(tmp_path), channels=1, size=4).album("test")
    assert album.pixels.shape == (3, 1, 4, 4)


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pictures = files(write_squares(tmp_path))
    place = tmp_path / "pictures" / "deep" / "blue.png"
    for content in (png("blue")[:60], b"no picture"):
        place.write_bytes(content)
        with pytest.raises(DataError, match=r"pictures: blue\.png cannot be read as a picture"):
            pictures.album("train")
    place.unlink()
    with pytest.raises(DataError, match=r"names 1 pictures that are not in .*blue\.png"):
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


def test_a_picture_of_the_users_is_brought_to_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.png"
    path.write_bytes(png("red", (40, 60)))
    assert files(write_squares(tmp_path)).open(path).shape == (3, 16, 16)
    assert idx_pictures(tmp_path).open(path).shape == (1, 8, 8)


def test_a_turned_photograph_is_set_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4), "black")
    image.paste("white", (0, 0, 8, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° to the right to see it
    image.save(tmp_path / "turned.png", exif=exif)
    pixels = decode((tmp_path / "turned.png").read_bytes(), "turned", 1, (8, 4))
    assert pixels[0, :, -1].min() == 255
    assert pixels[0, :, 0].max() == 0


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
        places = [
            (wide[:, 2 + y : 10 + y, 2 + x : 10 + x] == moved).all()
            for y in (-1, 0, 1)
            for x in (-1, 0, 1)
        ]
        assert any(places)


def test_a_canvas_holds_the_picture_whole_and_nothing_else() -> None:
    canvas = Canvas.Config(size=12).build()
    placed = canvas.settle(PICTURE, np.random.default_rng(1))
    assert int(placed.sum(dtype=int)) == int(PICTURE.sum(dtype=int))
    rows, columns = placed[0].any(axis=1).nonzero()[0], placed[0].any(axis=0).nonzero()[0]
    cut = placed[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert (cut == PICTURE).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="8×8 does not fit on a canvas of 6×6"):
        Canvas.Config(size=6).build().size((8, 8))
    with pytest.raises(ValueError, match=r"no part of 9×9.*raise task\.pictures\.size"):
        Crop.Config(size=9).build().size((8, 8))


def test_crops_are_mirrored_half_of_the_time() -> None:
    crop = Crop.Config(size=8).build()
    mirrored = [
        bool((crop.vary(PICTURE, np.random.default_rng(n)) == PICTURE[:, :, ::-1]).all())
        for n in range(40)
    ]
    assert 8 < sum(mirrored) < 32
