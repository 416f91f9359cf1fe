"""Drawings: every form has the numbers of their arrays; what lies over a picture is the tint."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from numpy.typing import NDArray

from foveate.errors import UserError
from foveate.look.draw.charts import PanelGrid, line_chart
from foveate.look.draw.colors import EVEN, OVERLAYS, enlarged, tinted
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import picture_bytes
from foveate.look.draw.kinds import AnyDrawing
from foveate.look.draw.maps import attention, heads
from foveate.look.draw.parts import Numbers
from foveate.look.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.look.draw.sheets import SheetGrid, sheet
from foveate.look.draw.texts import Choice, TableDrawing, Word
from foveate.look.records import AttentionRecord
from test_draw_charts import BARS, TABLE, WORDS
from tolerances import ROW, close

ANY = pydantic.TypeAdapter(AnyDrawing)
TYPES = {"u16": np.dtype("<u2"), "f32": np.dtype("<f4")}


def read(numbers: Numbers) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(numbers.model_dump()["data"]), TYPES[numbers.codec])
    return raw.reshape(numbers.shape)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20))
def test_any_weight_is_within_a_step_and_other_numbers_are_exact(weights: list[float]) -> None:
    exact = np.float32(weights)
    steps = read(Numbers.weights(exact))
    assert np.abs(steps / 65535 - exact).max() <= 1 / 65535
    assert ((steps == 0) == (exact == 0)).all()
    values = np.array([[1.5, np.nan], [-3e7, 0.1]], np.float32)
    np.testing.assert_array_equal(read(Numbers.exact(values)), values)


def test_nothing_hides_in_a_text() -> None:
    word = Word(text="a\nb\u200b", note="\u202e", alternatives=[Choice(text="", p=1)])
    written = word.model_dump()
    assert (written["text"], written["note"]) == ("a⟨U+000A⟩b⟨U+200B⟩", "⟨U+202E⟩")
    assert written["alternatives"][0]["text"] == "(empty)"
    assert Word(text="\ud800").model_dump()["text"] == "⟨U+D800⟩"  # half a letter is in no JSON
    assert Drawing(title="").model_dump()["title"] == ""
    with pytest.raises(pydantic.ValidationError, match="kind"):
        ANY.validate_python({"kind": "sculpture"})


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    """JSON has no NaN and no infinity: files have null and texts, a page says what is not drawn."""
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    lines = line_chart(np.arange(4.0), {"loss": values})
    text = lines.save(tmp_path / "a.json").read_text("utf-8")
    assert "NaN" not in text and json.loads(text)["loss"] == [None, "Infinity", "-Infinity", 1.0]
    assert lines.drawings()[0].notes == ["infinite, not drawn: loss: 2"]
    table = TableDrawing(columns=list("abcd"), rows=[values.tolist()])
    assert json.loads(table.model_dump_json())["rows"] == [["NaN", "∞", "−∞", 1.0]]
    blank = sheet("blank", np.full((1, 1), np.nan))
    assert (blank.least, blank.most) == (0, 0)


# ---- What a view gives to a browser are the numbers of its arrays, and JSON of one of the kinds
PIXELS = np.arange(3 * 8 * 12, dtype=np.uint8).reshape(3, 8, 12)
CELLS = [f"{row},{column}" for row in range(2) for column in range(3)]
WEIGHTS = np.array([[[0.1, 0.2, 0.3, 0.4, 0, 0], [0, 0, 0, 0, 0.25, 0.75]]], np.float32)
RECORD = AttentionRecord(
    {"decoder.cross_attention": WEIGHTS, "decoder.self_attention": WEIGHTS[:, :, 4:]},
    {"": ["A", "b\n"]}, {"cross_attention": CELLS, "self_attention": ["<s>", "A"]}, "x.png → $x$",
)  # fmt: skip


def patches(labels: list[str]) -> AttentionRecord:
    size = len(labels)
    weights = np.stack([np.eye(size), np.full((size, size), 1 / size)]).astype(np.float32)
    maps = {f"encoder.layers.{n}.self_attention": weights for n in range(2)}
    return AttentionRecord(maps, {"": labels}, {"": labels}, title="x.png → 3")


X = np.array([1.0, 2.0, 4.0])
CURVES = line_chart(
    X, {"a": X**2, "b": np.array([1, np.nan, 3])}, "step", "y", bands={"a": (X, X**3)},
    labels=("one", "two", "four"), marks={"here": 2.0},
)  # fmt: skip
SHEET = sheet("one", np.array([[0, np.nan], [2, -4.0]]), rows=["r", "s"])
SHEETS = SheetGrid(sheets=[SHEET], title="T", caption="C")
PATH = picture_drawing(PIXELS, "x.png → 3", np.array([[6, 4], [9, 2]], np.float32), (4, 8))
VIEWS: dict[str, Drawing] = {
    "curves": CURVES,
    "panels": PanelGrid(panels=[CURVES, CURVES]),
    "sheets": SHEETS,
    "path": PATH,
    "picture": over_picture(RECORD, PIXELS),
    "patches": over_picture(patches(["[class]", *CELLS]), PIXELS[:1], head=1),
    "attention": attention(RECORD, head=0),
    "heads": heads(RECORD),
    "words": WORDS,
    "bars": BARS,
    "table": TABLE,
}


def unpacked(numbers: Numbers) -> NDArray[np.float64]:
    return read(numbers) / (65535.0 if numbers.codec == "u16" else 1.0)


@pytest.mark.parametrize("name", VIEWS)
def test_drawings_are_json_of_a_kind_and_have_every_form(name: str, tmp_path: Path) -> None:
    for drawing in VIEWS[name].drawings():
        text = drawing.model_dump_json(by_alias=True)
        assert json.loads(text)["kind"] == drawing.kind
        assert ANY.validate_json(text).model_dump_json(by_alias=True) == text
    for ending in ("png", "svg", "pdf", "html", "json", "npz", "txt"):
        assert VIEWS[name].save(tmp_path / f"v.{ending}").stat().st_size > 20
    again = VIEWS[name].save(tmp_path / "again.svg").read_bytes()
    assert again == (tmp_path / "v.svg").read_bytes()
    page = (tmp_path / "v.html").read_text("utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?http""", page), "the page needs no network"
    if isinstance(VIEWS[name], PictureDrawing):
        assert "data:image/png" in page and b"x.png \xe2\x86\x92 " in again


def test_lines_have_their_numbers_bands_and_marks() -> None:
    [drawing] = CURVES.drawings()
    assert drawing.x.tolist() == [1, 2, 4] and drawing.labels == ["one", "two", "four"]
    first, second = drawing.model_dump()["curves"]
    assert (first["y"], second["y"]) == ([1, 4, 16], [1, None, 3])
    assert (first["low"], first["high"], second["low"]) == ([1, 2, 4], [1, 8, 64], [])
    assert [(mark.x, mark.label) for mark in drawing.marks] == [(2, "here")]
    assert len(CURVES.figure().axes[0].collections) == 1  # the band
    view = PanelGrid(panels=[CURVES] * 3)
    assert len(view.drawings()) == 3
    assert [len(ax.lines) for ax in view.figure().axes] == [3, 3, 3, 0]  # the mark is a line too
    assert [ax.axison for ax in view.figure().axes] == [True, True, True, False]


def test_a_sheet_has_its_numbers_and_ends() -> None:
    [drawing] = SHEETS.drawings()
    np.testing.assert_array_equal(unpacked(drawing.values), SHEETS.sheets[0].values.array)
    assert (drawing.least, drawing.most) == (-4, 4)
    assert (drawing.title, drawing.caption, drawing.rows) == ("T · one", "C", ["r", "s"])


def test_a_picture_has_its_pixels_and_what_lies_over_them() -> None:
    [drawing] = VIEWS["picture"].drawings()
    assert (drawing.width, drawing.height) == (12, 8)
    png = base64.b64decode(drawing.model_dump()["pixels"].removeprefix("data:image/png;base64,"))
    shown = np.rint(imread(io.BytesIO(png))[..., :3] * 255)
    np.testing.assert_array_equal(shown.transpose(2, 0, 1), PIXELS)
    grids = np.stack([unpacked(overlay.weights) for overlay in drawing.overlays])
    close(grids, VIEWS["picture"].arrays()["weights"])
    assert [overlay["title"] for overlay in drawing.model_dump()["overlays"]] == ["A", "b⟨U+000A⟩"]
    [drawing] = PATH.drawings()
    assert drawing.path == [(6, 4), (9, 2)] and drawing.sides == [4, 8]


def test_attention_has_its_weights_and_what_is_shown_first() -> None:
    [drawing] = VIEWS["attention"].drawings()
    block, _ = drawing.blocks
    close(unpacked(block.layers[0]), WEIGHTS)
    assert (block.row_means, block.model_dump()["rows"]) == ("producing", ["A", "b⟨U+000A⟩"])
    assert (drawing.block, drawing.head, drawing.form) == ("decoder.cross_attention", 0, "matrix")
    [drawing] = VIEWS["heads"].drawings()
    assert drawing.form == "heads"


@pytest.mark.parametrize(("caption", "taller"), [("short", False), ("long " * 60, True)])
def test_a_caption_wider_than_the_figure_is_wrapped(caption: str, taller: bool) -> None:
    view = SheetGrid(sheets=SHEETS.sheets, title="T", caption=caption)
    pixels = imread(io.BytesIO(picture_bytes(view.figure(), "png")))
    width, height = 200 * view.figure().get_size_inches()
    assert pixels.shape[1] == pytest.approx(width, abs=1)
    assert (pixels.shape[0] > height + 1) == taller
    for edge in (pixels[:, :8], pixels[:, -8:]):  # nothing touches it
        assert np.all(edge == pixels[0, 0])


# ---- Over pictures: what is drawn is what was looked at
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


def test_a_panel_for_each_word_or_for_each_layer_of_what_the_class_token_saw() -> None:
    assert "A     1,0  40%" in VIEWS["picture"].text()
    view: Any = VIEWS["patches"]
    assert [overlay.title for overlay in view.overlays] == ["layer 0", "layer 1"]
    assert view.arrays()["weights"].shape == (2, 2, 3)
    close(view.arrays()["weights"], 1 / 7, terms=ROW)
    assert view.overlays[0].note == "[class] 14%"
    assert "seen by [class] · head 1" in view.text()
    view = over_picture(patches(CELLS), PIXELS, head=0)  # the mean of all
    close(view.arrays()["weights"], 1 / 6, terms=ROW)


def test_a_path_names_its_places_and_words_are_none() -> None:
    assert "      2    9.0    2.0" in PATH.text()
    with pytest.raises(ValueError, match="its columns are not positions"):
        over_picture(RECORD, PIXELS, block="self_attention")
    with pytest.raises(UserError, match="no block 'other'"):
        over_picture(RECORD, PIXELS, block="other")
