"""Drawing over pictures: what is drawn is what was looked at, in every form."""

import re
from pathlib import Path

import numpy as np
import pytest

from foveate.errors import UserError
from foveate.look.draw import over_picture
from foveate.look.draw.colors import EVEN, OVERLAYS, enlarged, tinted
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.pictures import picture_drawing
from foveate.look.records import AttentionRecord
from tolerances import ROW, close


def test_without_weight_there_is_the_picture_and_under_all_of_it_no_grey() -> None:
    grey = np.linspace(0, 1, 12).reshape(3, 4)
    np.testing.assert_array_equal(tinted(grey, np.zeros((3, 4))), np.stack([grey] * 3, axis=-1))
    black, white = tinted(np.array([0.0, 1.0]), np.ones(2))
    assert (white > black).all()
    for colour in (black, white):
        assert colour[0] - colour[2] > 0.5  # orange: red and blue are told apart by every eye
    grid = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(enlarged(grid, 4, 9)[::2, ::3], grid)
    assert enlarged(grid, 4, 9).shape == (4, 9)
    assert enlarged(grid, 5, 7).shape == (5, 7)  # a grid that does not divide the picture


def test_a_broad_look_is_pale_and_a_narrow_one_is_not() -> None:
    opacity, even = OVERLAYS["row"].levels, np.full((4, 5), 1 / 20)
    close(opacity(even), 1 / EVEN)
    narrow = even * 0.5
    narrow[1, 2] += 0.5
    result = opacity(narrow)
    assert result[1, 2] == 1
    close(result / result[1, 2], narrow / narrow[1, 2])  # follows the weight
    for small in (np.zeros((2, 2)), np.array([[0.2, 0.1]])):  # never more than 1
        np.testing.assert_array_equal(opacity(small), small)
    np.testing.assert_array_equal(OVERLAYS["absolute"].levels(even), even)


@pytest.mark.parametrize("scale", OVERLAYS)
def test_what_is_drawn_is_the_tint_of_the_weights(scale: str) -> None:
    weights = np.array([[[0.7, 0.1, 0.2, 0.0]], [[0.7, 0.1, 0.2, 0.0]]], np.float32)
    places = {"": ["0,0", "0,1", "1,0", "1,1"]}
    record = AttentionRecord({"cross_attention": weights}, {"": ["dog"]}, places, title="x")
    view = over_picture(record, np.full((1, 4, 4), 128, np.uint8), scale=scale)
    plain, panel, legend = view.figure().axes
    drawn = np.asarray(panel.images[0].get_array())
    opacity = OVERLAYS[scale].levels(np.array([[0.7, 0.1], [0.2, 0.0]]))
    close(drawn, tinted(np.full((4, 4), 128 / 255), enlarged(opacity, 4, 4)), terms=ROW)
    assert np.asarray(plain.images[0].get_array()).shape == (4, 4, 3)
    assert [text.get_text() for text in panel.texts] == ["most 70%", ""]
    assert legend.get_ylabel() == OVERLAYS[scale].caption


CELLS = [f"{row},{column}" for row in range(2) for column in range(3)]
PIXELS = np.arange(3 * 8 * 12, dtype=np.uint8).reshape(3, 8, 12)


def captions() -> AttentionRecord:
    weights = np.array([[[0.1, 0.2, 0.3, 0.4, 0, 0], [0, 0, 0, 0, 0, 1]]], np.float32)
    own = np.eye(2, dtype=np.float32)[None]
    return AttentionRecord(
        {"decoder.cross_attention": weights, "decoder.self_attention": own},
        {"": ["A", "$x$"]},
        {"decoder.cross_attention": CELLS, "decoder.self_attention": ["<s>", "A"]},
        title="x.png → A $x$",
    )


def patches(special: bool) -> AttentionRecord:
    labels = ["[class]", *CELLS] if special else CELLS
    size = len(labels)
    weights = np.stack([np.eye(size), np.full((size, size), 1 / size)]).astype(np.float32)
    maps = {f"encoder.layers.{n}.self_attention": weights for n in range(2)}
    return AttentionRecord(maps, {"": labels}, {"": labels}, title="x.png → 3")


PATH = picture_drawing(PIXELS, "x.png → 3", np.array([[6, 4], [9, 2]], np.float32), (4, 8))


def test_a_panel_for_each_word() -> None:
    view = over_picture(captions(), PIXELS)
    assert [overlay.title for overlay in view.overlays] == ["A", "$x$"]
    grids = view.arrays()["weights"]
    close(grids[0], [[0.1, 0.2, 0.3], [0.4, 0, 0]], terms=ROW)
    assert grids[1, 1, 2] == 1
    assert "A      1,0  40%" in view.text()


def test_a_panel_for_each_layer_of_what_the_class_token_saw() -> None:
    view = over_picture(patches(special=True), PIXELS, head=1)
    assert [overlay.title for overlay in view.overlays] == ["layer 0", "layer 1"]
    assert view.arrays()["weights"].shape == (2, 2, 3)
    close(view.arrays()["weights"], 1 / 7, terms=ROW)
    assert view.overlays[0].note == "[class] 14%"
    assert "seen by [class] · head 1" in view.text()
    view = over_picture(patches(special=False), PIXELS, head=0)  # the mean of all
    close(view.arrays()["weights"], 1 / 6, terms=ROW)


def test_a_path_names_its_places_and_words_are_none() -> None:
    assert "      2    9.0    2.0" in PATH.text()
    with pytest.raises(ValueError, match="its columns are not positions"):
        over_picture(captions(), PIXELS, block="self_attention")
    with pytest.raises(UserError, match="no block 'other'"):
        over_picture(captions(), PIXELS, block="other")


@pytest.mark.parametrize(
    "view",
    [over_picture(captions(), PIXELS), over_picture(patches(True), PIXELS[:1]), PATH],
    ids=["captions", "patches", "path"],
)
def test_pages_and_vectors_hold_the_picture(view: Drawing, tmp_path: Path) -> None:
    assert "x.png → " in view.save(tmp_path / "x.svg").read_text("utf-8")
    page = view.save(tmp_path / "x.html").read_text("utf-8")
    assert "data:image/png" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?http""", page), "the page needs no network"
