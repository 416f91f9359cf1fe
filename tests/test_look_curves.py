"""Lines and sheets show the numbers that they are given; schedules and encodings are theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from foveate.draw.analyses import positions, schedule
from foveate.draw.charts import line_chart
from foveate.draw.sheets import SheetGrid, sheet
from foveate.nn.positions import ALiBi, NoPosition, Rotary, Sinusoidal
from foveate.train.optim import Noam
from tolerances import ROW, close, rounding

ENDINGS = ("png", "svg", "pdf", "html", "json", "npz", "txt")


def test_lines_are_the_numbers_and_differ_without_colour(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 4.0])
    view = line_chart(x, {"a $x": x, "b": x**2}, "step", "rate", "Title", "xy")
    ax = view.plot()
    for line, expected in zip(ax.lines, (x, x**2), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), expected)
    assert len({line.get_linestyle() for line in ax.lines}) == 2
    assert len({line.get_color() for line in ax.lines}) == 2
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a $x", "b"]
    for ending in ENDINGS:
        assert view.save(tmp_path / f"c.{ending}").stat().st_size > 50
    assert "Title · rate" in view.text()
    assert view.text().splitlines()[-1].split() == ["4", "4", "16"]


def test_the_same_numbers_make_the_same_file(tmp_path: Path) -> None:
    x = np.arange(3.0)
    first, second = (
        line_chart(x, {"a": x}).save(tmp_path / f"{name}.svg").read_bytes() for name in "ab"
    )
    assert first == second


def test_sheets_leave_out_what_has_no_value(tmp_path: Path) -> None:
    values = np.array([[0.0, 1.0], [np.nan, 2.0]])
    view = SheetGrid(sheets=[sheet("one", values, rows=["r", "s"]), sheet("two", -values)])
    mesh = view.figure().axes[0].collections[0]
    np.testing.assert_array_equal(np.ma.getmaskarray(mesh.get_array()), np.isnan(values))
    assert mesh.get_clim() == (0.0, 2.0)
    lines = view.text().splitlines()
    assert lines[0].startswith("one (0 … 2")
    assert lines[1:3] == ["r ·▒", "s  █"]
    for ending in ENDINGS:
        assert view.save(tmp_path / f"s.{ending}").stat().st_size > 50


def test_colours_diverge_from_0_where_signs_differ() -> None:
    diverging = sheet("", np.array([[-1.0, 3.0]]))
    assert (diverging.least, diverging.most) == (-3.0, 3.0)
    rising = sheet("", np.array([[1.0, 3.0]]))
    assert (rising.least, rising.most) == (1.0, 3.0)


def test_a_text_of_wide_sheets_takes_every_kth_cell() -> None:
    view = SheetGrid(sheets=[sheet("wide", np.zeros((2, 400)))])
    assert max(map(len, view.text(width=80).splitlines()[1:])) <= 80


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


def test_what_tells_no_places_apart_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match='"none" tells no two places apart'):
        positions(NoPosition(NoPosition.Config(), 16, 2))


def test_a_schedule_is_drawn_at_its_steps() -> None:
    noam = Noam(Noam.Config(hidden_size=512, warmup_steps=4000), 1.0)
    view = schedule({"512:4000": noam.rate}, 20_000)
    assert (view.x[0], view.x[-1]) == (1, 20_000)
    rates = view.arrays()["512:4000"]
    np.testing.assert_allclose(rates, [noam.rate(int(step)) for step in view.x], rtol=1e-12)
    assert abs(view.x[rates.argmax()] - 4000) < 60
    with pytest.raises(ValueError, match="begins with step 1"):
        schedule({"a": noam.rate}, 0)
