"""Words, bars, tables, lines, sheets and lanes show the numbers they are given, in every form."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from rich.cells import cell_len

from foveate.look.draw.analyses import positions
from foveate.look.draw.charts import bar_chart, line_chart
from foveate.look.draw.lanes import Node, lanes
from foveate.look.draw.sheets import SheetGrid, sheet
from foveate.look.draw.texts import Choice, TableDrawing, Word, WordsDrawing, fill_and_ink
from foveate.look.views.demos import find
from foveate.nn.more_positions import ALiBi
from foveate.nn.positions import NoPosition, Rotary, Sinusoidal
from foveate.train.optim import Noam
from tolerances import ROW, close, rounding


def test_lines_are_the_numbers_and_differ_without_colour() -> None:
    x = np.array([1.0, 2.0, 4.0])
    view = line_chart(x, {"a $x": x, "b": x**2}, "step", "rate", "Title", "xy")
    ax = view.figure().axes[0]
    for line, expected in zip(ax.lines, (x, x**2), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), expected)
    assert len({line.get_linestyle() for line in ax.lines}) == 2
    assert len({line.get_color() for line in ax.lines}) == 2
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a $x", "b"]
    assert "Title · rate" in view.text()
    assert view.text().splitlines()[-1].split() == ["4", "4", "16"]


def test_sheets_leave_out_what_has_no_value_and_diverge_from_0_where_signs_differ() -> None:
    values = np.array([[0.0, 1.0], [np.nan, 2.0]])
    view = SheetGrid(sheets=[sheet("one", values, rows=["r", "s"]), sheet("two", -values)])
    mesh = view.figure().axes[0].collections[0]
    np.testing.assert_array_equal(np.ma.getmaskarray(mesh.get_array()), np.isnan(values))
    assert mesh.get_clim() == (0.0, 2.0)
    lines = view.text().splitlines()
    assert lines[0].startswith("one (0 … 2") and lines[1:3] == ["r ·▒", "s  █"]
    wide = SheetGrid(sheets=[sheet("wide", np.zeros((2, 400)))])
    assert max(map(len, wide.text(width=80).splitlines()[1:])) <= 80  # every kth cell
    diverging, rising = sheet("", np.array([[-1.0, 3.0]])), sheet("", np.array([[1.0, 3.0]]))
    assert (diverging.least, diverging.most, rising.least, rising.most) == (-3, 3, 1, 3)


def test_an_encoding_is_drawn_by_the_doors_that_it_opens() -> None:
    waves = Sinusoidal(Sinusoidal.Config(), 16, 2)
    vectors, products = positions(waves, 8, 16, 2).sheets
    encoded = waves.encode(torch.arange(8), 16).numpy()
    close(vectors.values.array, encoded, terms=ROW)
    close(products.values.array, encoded @ encoded.T / np.abs(encoded @ encoded.T).max(), terms=ROW)
    heads = positions(ALiBi(ALiBi.Config(), 16, 2), 8, 16, 2).sheets
    assert [sheet.title for sheet in heads] == ["head 0 adds to score", "head 1 adds to score"]
    assert heads[0].values.array[7, 0] == pytest.approx(-7 * 2**-4)
    turned, related = positions(Rotary(Rotary.Config(), 16, 2), 8, 16, 2).sheets
    assert turned.values.shape == (8, 8)  # places by the size of a head
    for k in range(8):  # the product depends on the distance alone
        assert np.ptp(np.diagonal(related.values.array, k)) < rounding()
    with pytest.raises(ValueError, match='"none" does not distinguish positions'):
        positions(NoPosition(NoPosition.Config(), 16, 2))


def test_a_schedule_is_drawn_at_its_steps() -> None:
    noam = Noam(Noam.Config(hidden_size=512, warmup_steps=4000), 1.0)
    view = find("noam").draw({"pairs": ["512:4000"], "steps": 20_000})
    assert (view.x[0], view.x[-1]) == (1, 20_000)
    rates = view.arrays()["d = 512, warmup 4000: highest\xa00.00070"]
    np.testing.assert_allclose(rates, [noam.rate(int(step)) for step in view.x], rtol=1e-12)
    assert abs(view.x[rates.argmax()] - 4000) < 60


# ------------------------------ Words, bars and tables show what they are given, in every form
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
ROWS = [[1, "A cat."], [2, None], [10, "x" * 200]]
TABLE = TableDrawing(title="Best", columns=["rank", "output"], rows=ROWS)


def test_words_have_their_values_and_what_else_might_stand_there() -> None:
    arrays = {name: array.tolist() for name, array in WORDS.arrays().items()}
    assert (arrays["words"], arrays["values"]) == (["Two", "$x$"], [0.9, 0.1])
    assert (arrays["alternatives"], arrays["p"]) == ([["Two"], ["dogs"]], [[0.9], [0.7]])
    assert "Two   0.900  0.4 bits   Two 0.900" in WORDS.text()
    ax = WORDS.figure().axes[0]
    assert [t.get_text() for t in ax.texts if t.get_text() in ("Two", "$x$")] == ["Two", "$x$"]
    assert len([patch for patch in ax.patches if isinstance(patch, Rectangle)]) == 2
    signed = WordsDrawing(words=[], least=-1.0, most=1.0)
    (fill, ink), *ends = (fill_and_ink(signed, value) for value in (0.0, 1.0, -1.0))
    assert min(fill) > 0.9 and [ink, *(end[1] for end in ends)] == ["black", "white", "white"]


def test_bars_are_the_numbers_and_their_intervals() -> None:
    ax = BARS.figure().axes[0]
    heights = [bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)]
    np.testing.assert_array_equal(heights, [1, 2, np.nan, 4])
    written = BARS.drawings()[0].model_dump()
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
    texts = [text.get_text() for text in TABLE.figure().axes[0].texts]
    assert texts[0] == "Best" and "   1  A cat." in texts
    wide = TableDrawing(columns=["text", "n"], rows=[["語" * 50, 1.0], ["a", 2.0]])
    widths = [cell_len(line) for line in wide.text().splitlines()]
    assert widths[0] == widths[-1] == max(widths) == 67  # a long cell stays in its column


# ---- A beam as lanes: the nodes that were given, in every form of the picture
def node(number: int, parent: int | None, text: str, score: float, state: str = "live") -> Node:
    values = {"id": number, "parent": parent, "text": text, "log_p": 2 * score, "score": score}
    return Node.model_validate(values | {"state": state})


STEPS = [
    [node(0, None, "Un", -0.1), node(1, None, "Une", -2.0), node(2, None, "$x$", -3.0, "pruned")],
    [node(3, 0, " chat", -0.5), node(4, 1, "\u202e</b>", -2.5, "pruned")],
    [node(5, 3, "</s>", -0.6, "done")],
]


def test_lanes_have_the_numbers_given_and_every_form_marks_the_answer(tmp_path: Path) -> None:
    view = lanes(STEPS, [0, 3, 5], "Un chat")
    arrays = view.arrays()
    assert arrays["step"].tolist() == [0, 0, 0, 1, 1, 2]
    assert arrays["parent"].tolist() == [-1, -1, -1, 0, 1, 3]
    close(arrays["log_p"], 2 * arrays["score"])
    assert (view.steps, view.best) == (STEPS, [0, 3, 5])
    assert view.text(width=100).splitlines()[1:4] == [
        "  1  [Un] -0.10  Une -2.00  $x$ -3.00×",
        "  2  [chat] -0.50  ⟨U+202E⟩</b> -2.50×",
        "  3  [</s>] -0.60■",
    ]
    assert all(len(line) <= 30 for line in lanes(STEPS).text(width=30).splitlines()[:3])
    ax = view.figure().axes[0]
    ends = {tuple(zip(*map(list, line.get_data()), strict=True)) for line in ax.lines}
    assert ends == {((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0))}
    assert len(ax.texts) == 6 and any("$x$" in text.get_text() for text in ax.texts)
    svg = view.save(tmp_path / "b.svg").read_text("utf-8")
    assert "chat" in svg and "\u202e" not in svg


def test_greedy_search_is_drawn_to_its_end_beside_the_beam_that_dropped_it() -> None:
    greedy = [STEPS[0][0], node(1, 0, " chien", -0.4), node(2, 1, "</s>", -3.0, "done")]
    view = lanes(STEPS, [0, 3, 5], greedy=greedy)
    own = [[each for each in step if each.id in view.greedy] for step in view.steps]
    assert [[each.text for each in step] for step in own] == [["Un"], [" chien"], ["</s>"]]
    assert [step[0].parent for step in own] == [None, *view.greedy[:-1]] == [None, 0, 7]
    assert [step[:-1] for step in view.steps[1:]] == STEPS[1:]
    assert lanes(STEPS, [0, 3, 5], greedy=STEPS[0][:1]).steps == STEPS
