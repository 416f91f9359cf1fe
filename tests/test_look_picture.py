"""Drawing over pictures: what is drawn is what was looked at, in every form."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from foveate.draw.drawings import Drawing
from foveate.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.errors import UserError
from foveate.inspect.records import AttentionRecord
from tolerances import ROW, close

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
    maps = {
        f"encoder.layers.{n}.self_attention": np.stack(
            [
                np.eye(len(labels), dtype=np.float32),
                np.full((len(labels),) * 2, 1 / len(labels), np.float32),
            ]
        )
        for n in range(2)
    }
    return AttentionRecord(maps, {"": labels}, {"": labels}, title="x.png → 3")


def path() -> PictureDrawing:
    places = np.array([[6, 4], [9, 2]], np.float32)
    return picture_drawing(PIXELS, "x.png → 3", places, (4, 8))


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


def test_without_a_class_token_the_mean_of_all() -> None:
    view = over_picture(patches(special=False), PIXELS, head=0)
    close(view.arrays()["weights"], 1 / 6, terms=ROW)


def test_words_are_no_places() -> None:
    with pytest.raises(ValueError, match="no places of a picture"):
        over_picture(captions(), PIXELS, block="self_attention")
    with pytest.raises(UserError, match="no block 'other'"):
        over_picture(captions(), PIXELS, block="other")


@pytest.mark.parametrize(
    ("view", "endings"),
    [
        (over_picture(captions(), PIXELS), ["pdf", "html", "json", "npz", "txt", "svg"]),
        (over_picture(patches(True), PIXELS[:1]), ["svg"]),
        (path(), ["html", "svg"]),
    ],
    ids=["captions", "patches", "path"],
)
def test_every_form_is_written(view: Drawing, endings: list[str], tmp_path: Path) -> None:
    for ending in endings:
        assert view.save(tmp_path / f"x.{ending}").stat().st_size > 50
    assert "x.png → " in (tmp_path / "x.svg").read_text(encoding="utf-8")
    if "html" in endings:
        page = (tmp_path / "x.html").read_text(encoding="utf-8")
        assert "data:image/png" in page
        assert not re.search(r"""(src|href)\s*=\s*["']?http""", page), "the page needs no network"


def test_a_path_names_its_places() -> None:
    assert "      2    9.0    2.0" in path().text()
