"""The widget of a notebook has the drawings, their numbers as bytes, and what is chosen."""

import json
import sys

import numpy as np
import pytest

from foveate.look.draw.maps import attention
from foveate.look.draw.page import _live, widget
from foveate.look.draw.parts import Numbers
from foveate.look.draw.sheets import SheetDrawing
from foveate.look.records import AttentionRecord
from tolerances import close

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3)).astype(np.float32)
RECORD = AttentionRecord({"decoder.cross_attention": WEIGHTS}, {}, {}, title="a <b>")


@pytest.fixture(autouse=True)
def _widgets() -> None:
    pytest.importorskip("anywidget", reason="no anywidget here: pip install '.[widget]'")
    try:
        _live()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_numbers_go_beside_the_drawings_as_bytes() -> None:
    made = attention(RECORD).widget()
    [drawing] = json.loads(made.drawings)
    [numbers] = drawing["blocks"][0]["layers"]
    assert (drawing["title"], numbers["data"], numbers["url"]) == ("a <b>", "", "array:0")
    steps = np.frombuffer(made.arrays[0], "<u2").reshape(numbers["shape"])
    close(steps / 65535, WEIGHTS)
    heard: list[object] = []
    made.observe(lambda change: heard.append(change["new"]), "selection")
    made.selection = {"layer": 0, "row": 1}  # what is chosen is a trait
    assert heard == [{"layer": 0, "row": 1}]


def test_arrays_are_counted_over_all_drawings() -> None:
    arrays = (np.full((1, 1), k) for k in range(3))
    sheets = [SheetDrawing(values=Numbers.exact(each), least=0, most=2) for each in arrays]
    made = widget(sheets)
    urls = [drawing["values"]["url"] for drawing in json.loads(made.drawings)]
    assert urls == ["array:0", "array:1", "array:2"]
    assert [np.frombuffer(a, "<f4")[0] for a in made.arrays] == [0, 1, 2]
    assert sheets[2].values.data  # what was given is as it was


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    _live.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[widget\]'"):
        attention(RECORD).widget()
    _live.cache_clear()
