"""Drawings: a browser and a notebook get the numbers of their arrays, as JSON of a kind."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from numpy.typing import NDArray

from foveate.look.draw.charts import Curve, LinesDrawing, PanelGrid, line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import picture_bytes
from foveate.look.draw.kinds import AnyDrawing
from foveate.look.draw.maps import AttentionDrawing, attention, heads
from foveate.look.draw.parts import Numbers
from foveate.look.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.look.draw.sheets import SheetDrawing, SheetGrid, sheet
from foveate.look.draw.texts import Choice, TableDrawing, Word
from foveate.look.records import AttentionRecord
from tolerances import close

# ---- Drawings: numbers come back as they went in, and JSON says every drawing whole
ANY = pydantic.TypeAdapter(AnyDrawing)
TYPES = {"u16": np.dtype("<u2"), "f32": np.dtype("<f4")}


def read(numbers: Numbers) -> np.ndarray:
    coded = base64.b64decode(numbers.model_dump()["data"])
    raw = np.frombuffer(coded, TYPES[numbers.codec])
    return raw.reshape(numbers.shape)


def test_weights_are_within_a_step_and_only_zero_is_zero() -> None:
    weights = np.random.default_rng(1).dirichlet(np.full(50, 0.1), (2, 9)).astype(np.float32)
    weights[:, :, 3] = 0
    weights[0, 0, 4] = 1e-9
    steps = read(Numbers.weights(weights))
    assert np.abs(steps / 65535 - weights).max() <= 1 / 65535
    assert ((steps == 0) == (weights == 0)).all()


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20))
def test_any_weight_is_within_a_step(weights: list[float]) -> None:
    exact = np.float32(weights)
    steps = read(Numbers.weights(exact))
    assert np.abs(steps / 65535 - exact).max() <= 1 / 65535
    assert ((steps == 0) == (exact == 0)).all()


def test_nothing_hides_in_a_text() -> None:
    word = Word(text="a\nb\u200b", note="\u202e", alternatives=[Choice(text="", p=1)])
    written = word.model_dump()
    assert (written["text"], written["note"]) == ("a⟨U+000A⟩b⟨U+200B⟩", "⟨U+202E⟩")
    assert written["alternatives"][0]["text"] == "(empty)"
    assert Word(text="\ud800").model_dump()["text"] == "⟨U+D800⟩"  # half a letter is in no JSON
    assert Drawing(title="").model_dump()["title"] == ""


def test_other_numbers_are_exact_and_blanks_stay_blank() -> None:
    values = np.array([[1.5, np.nan], [-3e7, 0.1]], np.float32)
    np.testing.assert_array_equal(read(Numbers.exact(values)), values)


def test_a_drawing_comes_back_from_its_json() -> None:
    sheet = SheetDrawing(values=Numbers.exact(np.eye(2)), least=0.0, most=1.0, scale_label="a … b")
    lines = LinesDrawing(x=[1.0, 2.0], curves=[Curve(name="loss", y=[0.5, np.nan])])
    assert lines.model_dump()["curves"][0]["y"] == [0.5, None]
    for drawing in (sheet, lines):
        text = drawing.model_dump_json(by_alias=True)
        assert ANY.validate_json(text).model_dump_json(by_alias=True) == text


def test_an_unknown_kind_is_refused() -> None:
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
MAPS = {"decoder.cross_attention": WEIGHTS}
RECORD = AttentionRecord(MAPS, {"": ["A", "b\n"]}, {"": CELLS}, "x.png")
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
    "attention": attention(RECORD, head=0),
    "heads": heads(RECORD),
}


def unpacked(numbers: Numbers) -> NDArray[np.float64]:
    """As the browser reads them."""
    kind = {"u16": "<u2", "f32": "<f4"}[numbers.codec]
    values = np.frombuffer(numbers.bytes(), kind).reshape(numbers.shape)
    return values / (65535.0 if numbers.codec == "u16" else 1.0)


@pytest.mark.parametrize("name", VIEWS)
def test_drawings_are_json_of_a_kind(name: str) -> None:
    for drawing in VIEWS[name].drawings():
        text = drawing.model_dump_json(by_alias=True)
        assert json.loads(text)["kind"] == drawing.kind  # type: ignore[attr-defined]
        again = pydantic.TypeAdapter(AnyDrawing).validate_json(text)
        assert again.model_dump_json(by_alias=True) == text


def test_lines_have_their_numbers_bands_and_marks() -> None:
    [drawing] = CURVES.drawings()
    assert isinstance(drawing, LinesDrawing)
    assert drawing.x.tolist() == [1, 2, 4] and drawing.labels == ["one", "two", "four"]
    first, second = drawing.model_dump()["curves"]
    assert (first["y"], second["y"]) == ([1, 4, 16], [1, None, 3])
    assert (first["low"], first["high"], second["low"]) == ([1, 2, 4], [1, 8, 64], [])
    assert [(mark.x, mark.label) for mark in drawing.marks] == [(2, "here")]
    assert len(CURVES.figure().axes[0].collections) == 1  # the band


def test_panels_stand_side_by_side() -> None:
    view = PanelGrid(panels=[CURVES, CURVES, CURVES])
    assert len(view.drawings()) == 3
    assert [len(ax.lines) for ax in view.figure().axes] == [3, 3, 3, 0]  # the mark is a line too
    assert [ax.axison for ax in view.figure().axes] == [True, True, True, False]


def test_a_sheet_has_its_numbers_and_ends() -> None:
    [drawing] = SHEETS.drawings()
    assert isinstance(drawing, SheetDrawing)
    np.testing.assert_array_equal(unpacked(drawing.values), SHEETS.sheets[0].values.array)
    assert (drawing.least, drawing.most) == (-4, 4)
    assert (drawing.title, drawing.caption, drawing.rows) == ("T · one", "C", ["r", "s"])


def test_a_picture_has_its_pixels_and_what_lies_over_them() -> None:
    [drawing] = VIEWS["picture"].drawings()
    assert isinstance(drawing, PictureDrawing)
    assert (drawing.width, drawing.height) == (12, 8)
    png = base64.b64decode(drawing.model_dump()["pixels"].removeprefix("data:image/png;base64,"))
    shown = np.rint(imread(io.BytesIO(png))[..., :3] * 255)
    np.testing.assert_array_equal(shown.transpose(2, 0, 1), PIXELS)
    grids = np.stack([unpacked(overlay.weights) for overlay in drawing.overlays])
    close(grids, VIEWS["picture"].arrays()["weights"])
    assert [overlay["title"] for overlay in drawing.model_dump()["overlays"]] == ["A", "b⟨U+000A⟩"]
    [drawing] = PATH.drawings()
    assert isinstance(drawing, PictureDrawing)
    assert drawing.path == [(6, 4), (9, 2)] and drawing.sides == [4, 8]


def test_attention_has_its_weights_and_what_is_shown_first() -> None:
    [drawing] = VIEWS["attention"].drawings()
    assert isinstance(drawing, AttentionDrawing)
    [block] = drawing.blocks
    close(unpacked(block.layers[0]), WEIGHTS)
    assert (block.row_means, block.model_dump()["rows"]) == ("producing", ["A", "b⟨U+000A⟩"])
    assert (drawing.block, drawing.head, drawing.form) == ("decoder.cross_attention", 0, "matrix")
    [drawing] = VIEWS["heads"].drawings()
    assert isinstance(drawing, AttentionDrawing) and drawing.form == "heads"


@pytest.mark.parametrize(("caption", "taller"), [("short", False), ("long " * 60, True)])
def test_a_caption_wider_than_the_figure_is_wrapped(caption: str, taller: bool) -> None:
    view = SheetGrid(sheets=SHEETS.sheets, title="T", caption=caption)
    pixels = imread(io.BytesIO(picture_bytes(view.figure(), "png")))
    width, height = 200 * view.figure().get_size_inches()
    assert pixels.shape[1] == pytest.approx(width, abs=1)
    assert (pixels.shape[0] > height + 1) == taller
    assert np.all(pixels[:, :8] == pixels[0, 0])  # nothing touches the edge
    assert np.all(pixels[:, -8:] == pixels[0, 0])
