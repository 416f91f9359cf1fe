"""Figures choose fonts that have their glyphs, and nothing that is written overlaps."""

import io
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text

from foveate.look.draw import layout
from foveate.look.draw.charts import bar_chart, line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import attention, heads, links
from foveate.look.draw.sheets import SheetGrid, sheet
from foveate.look.records import AttentionRecord

SENTENCE = ["▁", "日本", "の犬", "が", "走る", "。", "</s>"]
LONG = "a caption that is far longer than the figure is wide " * 4


@pytest.fixture
def few_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = [font for font in fontManager.ttflist if font.name.startswith(("DejaVu", "STIX"))]
    monkeypatch.setattr(fontManager, "ttflist", saved)
    monkeypatch.setattr(layout, "_warned", set())


def record(rows: list[str], columns: list[str], place: str = "") -> AttentionRecord:
    weights = np.random.default_rng(0).dirichlet(np.ones(len(columns)), (2, 2, len(rows)))
    name = f"decoder{place}.layers.{{}}.cross_attention"
    maps = {name.format(n): w.astype(np.float32) for n, w in enumerate(weights)}
    return AttentionRecord(maps, {"": rows}, {"": columns})


def test_an_installed_font_stands_in_for_missing_glyphs(few_fonts: None) -> None:
    figure = attention(record(["The", "dog"], ["Ⓐ", "Ⓑ"])).figure()  # in STIX alone
    layout.fit(figure)
    families = {t.get_text(): t.get_fontfamily() for t in figure.findobj(Text)}  # type: ignore[attr-defined]
    assert families["Ⓐ"][-1] == "STIXGeneral" and "STIXGeneral" not in families["dog"]
    figure.savefig(io.BytesIO())  # a glyph that is missing would be a warning, which is an error


def test_scripts_without_a_font_are_named_once(few_fonts: None, tmp_path: Path, capsys) -> None:
    view = attention(record(["The", "dog"], SENTENCE))
    svg = view.save(tmp_path / "map.svg").read_text("utf-8")
    assert "日本" in svg and not capsys.readouterr().err
    for _ in range(2):
        view.save(tmp_path / "map.png")
    assert capsys.readouterr().err == (
        "warning: no installed font has the glyphs of Han, kana (such as 。 が): PNG and PDF show "
        "boxes; write SVG or HTML, or install a font, such as fonts-noto-cjk\n"
    )
    attention(record(["ไทย"], ["a"])).save(tmp_path / "map.png")
    assert "glyphs of Thai (such as ท)" in (err := capsys.readouterr().err)
    assert "fonts-noto-core" in err


SHEET = sheet("日本" * 30, np.eye(3), SENTENCE[:3], across=LONG)
VIEWS: dict[str, Drawing] = {
    "small": attention(record(["a"], ["x"])),
    "square": attention(record(["a", "b", "c"], ["x", "y", "z"], ".a_long_name")),
    "tall": attention(record([*"abcdefghijkl"], ["x", "y"], ".a_long_name" * 3)),
    "wide": attention(record(["one"], ["a long word", *map(str, range(30))]), scale="absolute"),
    "unsegmented": attention(record(SENTENCE, SENTENCE * 2)),
    "links": links(attention(record(["a"], SENTENCE, ".a_long_name" * 2))),
    "heads": heads(record(SENTENCE, SENTENCE)),
    "bars": bar_chart(SENTENCE, {"p": np.ones(7)}, "probability", LONG, LONG),
    "curves": line_chart(np.arange(3.0), {"a": np.ones(3)}, "step", "loss", caption=LONG),
    "sheets": SheetGrid(sheets=[SHEET] * 2, title=LONG, caption=LONG),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_nothing_that_is_written_overlaps(name: str) -> None:
    figure = VIEWS[name].figure()
    layout.fit(figure, warn=False)
    assert overlaps(figure) == []


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    figure.draw_without_rendering()
    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    ticks = {t.label1 for axis in axes for t in axis.get_major_ticks()}
    drawn = {t.label1 for axis in axes for t in axis._update_ticks()}  # those within the limits
    texts = [t for t in set(figure.findobj(Text)) - (ticks - drawn) if t.get_visible()]
    texts = [t for t in texts if t.get_text().strip()]
    boxes = [(t.get_text(), t.get_window_extent(), t.get_rotation()) for t in texts]  # type: ignore[attr-defined]
    bars = [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]
    boxes += [("colour bar", ax.get_window_extent(), 0.0) for ax in bars]
    result = []
    for (item, first, turned), (other, second, also) in combinations(boxes, 2):
        slanted = turned == also == 50  # labels side by side, whose upright boxes overlap
        apart = first.padded(-0.5).overlaps(second.padded(-0.5))
        if apart and not slanted:
            result.append((item, other))
    return result
