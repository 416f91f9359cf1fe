"""Drawings: numbers come back as they went in, and JSON says every drawing whole."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.draw.charts import Curve, LinesDrawing, line_chart
from foveate.draw.drawings import Drawing
from foveate.draw.kinds import AnyDrawing
from foveate.draw.parts import Numbers
from foveate.draw.sheets import SheetDrawing, sheet
from foveate.draw.texts import Choice, TableDrawing, Word

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
