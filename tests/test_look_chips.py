"""Words, bars and tables show what they are given, in every form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from foveate.draw.charts import BarsDrawing, bar_chart
from foveate.draw.drawings import Drawing
from foveate.draw.figures import LETTERS_A_LINE
from foveate.draw.texts import Choice, TableDrawing, Word, WordsDrawing, fill_and_ink

ENDINGS = ("png", "svg", "pdf", "html", "json", "npz", "txt")
WORDS = WordsDrawing(
    title="Two $x$", legend="p of each token", words=[
        Word(text="Two", value=0.9, alternatives=[Choice(text="Two", p=0.9)], note="0.4 bits"),
        Word(text="$x$", value=0.1, alternatives=[Choice(text="dogs", p=0.7)]),
    ],
)  # fmt: skip
BARS = bar_chart(
    ["a", "b\n"], {"one": np.array([1.0, 2.0]), "two": np.array([np.nan, 4.0])}, "sum", "Title",
    bands={"one": (np.array([0.5, 1.5]), np.array([1.5, 2.5]))}, at=1.0,
)  # fmt: skip
TABLE = TableDrawing(
    title="Best", columns=["rank", "output"], rows=[[1, "A cat."], [2, None], [10, "x" * 200]]
)


@pytest.mark.parametrize("view", [WORDS, BARS, TABLE], ids=["words", "bars", "table"])
def test_every_form(view: Drawing, tmp_path: Path) -> None:
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
    view = WordsDrawing(words=[Word(text="word", value=0.5)] * 60, legend="p")
    heights = {t.get_position()[1] for t in view.figure().axes[0].texts if t.get_text() == "word"}
    assert len(heights) == -(-60 // ((LETTERS_A_LINE + 1) // 5))


def test_signs_diverge_from_white_and_ink_is_legible() -> None:
    view = WordsDrawing(words=[], least=-1.0, most=1.0)
    fill, ink = fill_and_ink(view, 0.0)
    assert min(fill) > 0.9 and ink == "black"
    assert fill_and_ink(view, 1.0)[1] == fill_and_ink(view, -1.0)[1] == "white"


def test_bars_are_the_numbers_and_their_intervals() -> None:
    ax = BARS.plot()
    heights = [bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)]
    np.testing.assert_array_equal(heights, [1, 2, np.nan, 4])
    [drawing] = BARS.drawings()
    assert isinstance(drawing, BarsDrawing)
    written = drawing.model_dump()
    assert written["labels"] == ["a", "b⟨U+000A⟩"]
    first, second = written["series"]
    assert (first["values"], second["values"]) == ([1, 2], [None, 4])
    assert (first["high"], second["high"]) == ([1.5, 2.5], [])
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
