"""Words, bars and tables show what they are given, in every form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from foveate.look.charts import BarsView
from foveate.look.drawing import BarsDrawing, Choice, TableDrawing, Word, WordsDrawing
from foveate.look.sheets import LINE_WIDTH, TableView, WordsView
from foveate.look.view import View

ENDINGS = ("png", "svg", "pdf", "html", "json", "npz", "txt")
WORDS = WordsView(
    [
        Word(text="Two", value=0.9, alternatives=[Choice(text="Two", p=0.9)], note="0.4 bits"),
        Word(text="$x$", value=0.1, alternatives=[Choice(text="dogs", p=0.7)]),
    ],
    "p of each token", "Two $x$",
)  # fmt: skip
BARS = BarsView(
    ["a", "b\n"], {"one": np.array([1.0, 2.0]), "two": np.array([np.nan, 4.0])}, "sum", "Title",
    bands={"one": (np.array([0.5, 1.5]), np.array([1.5, 2.5]))}, at=1.0,
)  # fmt: skip
TABLE = TableView(["rank", "output"], [[1, "A cat."], [2, None], [10, "x" * 200]], "Best")


@pytest.mark.parametrize("view", [WORDS, BARS, TABLE], ids=["words", "bars", "table"])
def test_every_form(view: View, tmp_path: Path) -> None:
    for ending in ENDINGS:
        assert view.save(tmp_path / f"v.{ending}").stat().st_size > 20


def test_words_have_their_values_and_what_else_might_stand_there() -> None:
    arrays = WORDS.arrays()
    assert arrays["words"].tolist() == ["Two", "$x$"]
    assert arrays["values"].tolist() == [0.9, 0.1]
    assert arrays["alternatives"].tolist() == [["Two"], ["dogs"]]
    assert arrays["p"].tolist() == [[0.9], [0.7]]
    [drawing] = WORDS.drawings()
    assert isinstance(drawing, WordsDrawing) and drawing.words == list(WORDS.words)
    assert "Two   0.900  0.4 bits   Two 0.900" in WORDS.text()
    ax = WORDS.figure().axes[0]
    assert [t.get_text() for t in ax.texts if t.get_text() in ("Two", "$x$")] == ["Two", "$x$"]
    assert len([patch for patch in ax.patches if isinstance(patch, Rectangle)]) == 2


def test_a_long_text_goes_on_in_the_next_line() -> None:
    view = WordsView([Word(text="word", value=0.5)] * 60, "p")
    heights = {t.get_position()[1] for t in view.figure().axes[0].texts if t.get_text() == "word"}
    assert len(heights) == -(-60 // ((LINE_WIDTH + 1) // 5))


def test_signs_diverge_from_white_and_ink_is_legible() -> None:
    view = WordsView([], "", least=-1.0, most=1.0)
    fill, ink = view._colors(0.0)
    assert min(fill) > 0.9 and ink == "black"
    assert view._colors(1.0)[1] == view._colors(-1.0)[1] == "white"


def test_bars_are_the_numbers_and_their_intervals() -> None:
    ax = BARS.plot()
    heights = [bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)]
    np.testing.assert_array_equal(heights, [1, 2, np.nan, 4])
    [drawing] = BARS.drawings()
    assert isinstance(drawing, BarsDrawing)
    assert drawing.labels == ["a", "b⟨U+000A⟩"]
    assert [series.values for series in drawing.series] == [[1, 2], [None, 4]]
    assert drawing.series[0].high == [1.5, 2.5] and drawing.series[1].high == []
    assert BARS.arrays()["one, low"].tolist() == [0.5, 1.5]
    lines = BARS.text().splitlines()
    assert lines[2].split() == ["a", "1", "█" * 10]
    assert lines[-1].split() == ["b⟨U+000A⟩", "4", "█" * 40]


def test_a_table_puts_numbers_right_and_breaks_long_texts() -> None:
    lines = TABLE.text().splitlines()
    assert lines[:3] == ["Best", "rank  output", "   1  A cat."]
    assert lines[3] == "   2" and len(lines) == 8
    [drawing] = TABLE.drawings()
    assert isinstance(drawing, TableDrawing)
    assert drawing.rows[:2] == [[1, "A cat."], [2, None]]
    texts = [text.get_text() for text in TABLE.figure().texts]
    assert texts[0] == "Best" and "   1  A cat." in texts
