"""Every kind of drawing in one page: it is seen, linked, said in a table, saved, and harmless."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.look.draw import page as pages
from foveate.look.draw.charts import BarsDrawing, BarSeries, Curve, LinesDrawing, Mark
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.lanes import LanesDrawing, Node
from foveate.look.draw.maps import AttentionDrawing, Block
from foveate.look.draw.parts import Numbers
from foveate.look.draw.pictures import Overlay, PictureDrawing
from foveate.look.draw.scene import SceneDrawing, SceneEdge, SceneNode, SceneStop
from foveate.look.draw.sheets import SheetDrawing
from foveate.look.draw.texts import Choice, TableDrawing, Word, WordsDrawing

pytestmark = pytest.mark.browser

Visit = Callable[..., Any]
SOURCE = ["the", "cat", "</script><img src=x onerror=alert(1)>"]
TARGET = ["le", "chat", "مرحبا", "a\nb"]
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 4)).astype(np.float32)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAYAAABytg0kAAAAFElEQVR42mNk"
    "YPhfz0AEYBxVSF+FAP8CBAGYnRFvAAAAAElFTkSuQmCC"
)


def beam() -> list[list[Node]]:
    def node(step: int, rank: int) -> Node:
        return Node(
            id=2 * step + rank, parent=2 * step - 2 if step else None,
            text=" " * bool(step) + TARGET[step] if rank == 0 else "x",
            log_p=-step - rank, score=-1 - rank,
            state="pruned" if rank else "done" if step == 3 else "live",
        )  # fmt: skip

    return [[node(step, rank) for rank in range(2)] for step in range(4)]


def drawings() -> list[Drawing]:
    block = Block(
        name="decoder.cross_attention", row_means="producing", rows=TARGET, columns=SOURCE,
        layers=[Numbers.weights(heads) for heads in WEIGHTS],
        kinds=[["diagonal", "sink"], ["broad", "sink"]],
    )  # fmt: skip
    both = [Choice(text="le", p=0.6), Choice(text="un", p=0.4)]
    words = [Word(text=w, value=0.3 * k, alternatives=both) for k, w in enumerate(TARGET)]
    axes, marks = {"up": "loss", "across": "step", "log": "y"}, [Mark(x=2, label="kept")]
    band = Curve(name="b", y=[4, 3, 2], low=[3, 2, 1], high=[5, 4, 3])
    curves = [Curve(name="a", y=[3, None, 1]), band]
    bars = BarSeries(name="coverage", values=[1, 0.5, 1.5])
    sheet = np.array([[-1, 0.5], [np.nan, 2]])
    overlays = [Overlay(title=w, weights=Numbers.weights(np.eye(2) * 0.25)) for w in TARGET]
    nodes = [
        SceneNode(name="encoder", label="2 ×", form="group", box=(20, 20, 600, 300)),
        SceneNode(name="norm", label=SOURCE[2], box=(90, 90, 300, 60), detail=["x − μ"]),
    ]
    edges = [SceneEdge(name="norm weight", points=[(90, 90), (700, 400)], weight=0.25)]
    norm = SceneStop(name="norm", caption="The norm.", box=(80, 60, 310, 140), lit=["norm"])
    stops = [SceneStop(name="whole", caption="All."), norm]
    rows = [["b", 1.5], ["a", 10], ["c", None]]
    return [
        AttentionDrawing(title="attention", blocks=[block], form="heads"),
        AttentionDrawing(title="links", blocks=[block], form="links"),
        WordsDrawing(title="words", told="p", words=words),
        LanesDrawing(title="lanes", steps=beam(), best=[0, 2, 4, 6]),
        LinesDrawing(title="lines", x=[1, 2, 3], curves=curves, **axes, marks=marks),
        BarsDrawing(title="bars", labels=SOURCE, series=[bars]),
        SheetDrawing(title="sheet", values=Numbers.exact(sheet), least=-1, most=2),
        PictureDrawing(title="picture", image=PIXEL, width=2, height=2, overlays=overlays),
        SceneDrawing(title="scene", nodes=nodes, edges=edges, panels=[], stops=stops),
        TableDrawing(title="table", columns=["text", "BLEU"], rows=rows),
    ]


KINDS = [drawing.title for drawing in drawings()]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("drawings") / "all.html"
    path.write_text(pages.chapters({"": drawings()}, "All kinds"), "utf-8")
    return path.as_uri()


def part(page: Any, title: str) -> Any:
    return page.locator("section.fv", has=page.get_by_role("heading", name=title, exact=True))


@pytest.mark.parametrize("width", [360, 768, 2560])
def test_all_kinds_fit_the_page(open_url: Visit, address: str, width: int) -> None:
    page = open_url(address, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("section.fv").count() == len(KINDS)
    assert page.locator("h1").inner_text() == "All kinds"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_and_axe_finds_nothing_grave(
    open_url, contrasts, axe, address, scheme
) -> None:
    page, themes = open_url(address, scheme=scheme), []
    for _ in range(2):
        themes.append(page.evaluate("document.documentElement.dataset.theme"))
        result = contrasts(page)
        assert len(result) > 150
        # what is written on cells and beams has its own ground, no background of an element
        plain = [entry for entry in result if not entry[1].startswith("text ")]
        assert not [entry for entry in plain if entry[0] < 4.5]
        page.click(".theme")
    assert themes[0] == scheme != themes[1]
    for _ in themes:
        assert not [fault for fault in axe(page) if fault[1] in ("serious", "critical")]
        page.click(".theme")


def test_the_loupe_fits_a_phone(open_url: Visit, tmp_path: Path) -> None:
    words = [f"word{k}" for k in range(80)]
    maps = [Numbers.weights(np.eye(80, dtype=np.float32)[None])]
    block = Block(name="cross", row_means="producing", rows=words, columns=words, layers=maps)
    path = tmp_path / "large.html"
    drawing = AttentionDrawing(title="large", blocks=[block])
    path.write_text(pages.chapters({"": [drawing]}, ""), "utf-8")
    page = open_url(path.as_uri(), 360)
    assert page.locator(".fv-heads").is_hidden()  # one layer of one head leaves nothing to pick
    inside = page.locator(".fv-loupe:visible > .fv-scroll")
    wide, seen, free = inside.evaluate(
        "e => [e.scrollWidth, e.clientWidth, e.parentElement.clientWidth - 16]"
    )
    assert wide <= seen  # nothing to scroll, which the keyboard could not do
    assert inside.locator(".fv-cells").bounding_box()["width"] > 0.9 * free


def test_a_word_lights_in_all_drawings_that_have_it(open_url: Visit, address: str) -> None:
    page = open_url(address)
    part(page, "words").locator(".fv-word").nth(1).hover()
    for title in ("attention", "links"):
        assert "“chat”" in part(page, title).locator(".fv-reading").inner_text()
    assert part(page, "lanes").locator(".fv-node.fv-chosen").text_content().startswith("chat")
    assert part(page, "picture").locator("[aria-pressed=true]").inner_text() == "chat"
    part(page, "bars").locator(".fv-chart g").nth(1).hover()  # a word of the source: a column
    assert part(page, "links").locator(".fv-joined .fv-chosen").text_content() == "cat"
    page.get_by_role("button", name="layer 0, head 1: sink").first.click()
    for title in ("attention", "links"):
        assert "layer 0, head 1" in part(page, title).locator(".fv-others").first.inner_text()


def test_kinds_of_heads_can_be_told_apart(open_url: Visit, address: str) -> None:
    page = open_url(address)
    grid = part(page, "attention").locator(".fv-heads-grid canvas")
    before = grid.evaluate("e => e.toDataURL()")
    part(page, "attention").get_by_label("sink: 2 heads").check()
    assert grid.evaluate("e => e.toDataURL()") != before


KEYS = {
    "attention": (".fv-cells", "ArrowDown", ".fv-reading"),
    "links": (".fv-joined", "ArrowDown", ".fv-reading"),
    "words": (".fv-text-line", "ArrowRight", ".fv-others"),
    "lanes": (".fv-lanes", "ArrowLeft", ".fv-reading"),
    "lines": (".fv-chart", "ArrowLeft", ".fv-reading"),
    "bars": (".fv-chart", "ArrowRight", ".fv-reading"),
    "sheet": (".fv-cells[role]", "ArrowLeft", ".fv-reading"),
}


@pytest.mark.parametrize("title", KEYS)
def test_the_keyboard_moves_in_each(open_url: Visit, address: str, title: str) -> None:
    page = open_url(address)
    place, key, says = KEYS[title]
    says_what = part(page, title).locator(says).first
    before = says_what.inner_text()
    part(page, title).locator(place).first.focus()
    page.keyboard.press(key)
    assert says_what.inner_text() != before


TABLES = {
    "attention": "le", "words": "le 0.6, un 0.4", "lanes": "le chat مرحبا a⟨U+000A⟩b",
    "lines": "1 3 4 3 5", "bars": "cat 0.5", "sheet": "0 −1 0.5",
    "picture": "row 0, column 0: 0.25", "scene": "x − μ", "table": "b 1.5",
}  # fmt: skip


@pytest.mark.parametrize("title", TABLES)
def test_the_table_says_the_same(open_url: Visit, address: str, title: str) -> None:
    page = open_url(address)
    twin = part(page, title).locator(".fv-twin")
    twin.locator("summary").click()
    twin.locator("table").wait_for()
    rows = [re.sub(r"\s+", " ", row) for row in twin.locator("tr").all_inner_texts()]
    assert any(TABLES[title] in row for row in rows), rows


@pytest.mark.parametrize("title", KINDS)
def test_each_is_saved_in_every_form(open_url: Visit, address: str, tmp_path, title: str) -> None:
    page = open_url(address)
    saved: dict[str, Path] = {}
    for form in ("PNG", "SVG", "JSON", "HTML"):
        with page.expect_download() as download:
            part(page, title).get_by_role("button", name=form, exact=True).click()
        assert download.value.suggested_filename == f"{title}.{form.lower()}"
        saved[form] = tmp_path / f"{title}.{form.lower()}"
        download.value.save_as(saved[form])
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG") and saved["PNG"].stat().st_size > 1000
    drawn = saved["SVG"].read_text("utf-8")
    assert drawn.startswith("<svg") and f">{title}</text>" in drawn
    assert "<img" not in drawn and "class=" not in drawn
    listed = json.loads(saved["JSON"].read_text("utf-8"))
    if title == "attention":  # of the last layer
        np.testing.assert_allclose(listed["weights"], WEIGHTS[1].mean(0), atol=2e-5)
    alone = open_url(saved["HTML"].as_uri())
    assert alone.locator("section.fv").count() == 1
    assert part(alone, title).count() == 1


def test_lines_can_be_hidden_and_tables_put_in_order(open_url: Visit, address: str) -> None:
    page = open_url(address)
    lines = part(page, "lines")
    assert lines.locator("svg.fv-plot .fv-curve").count() == 2
    lines.get_by_role("button", name="a", exact=True).click()
    assert lines.locator("svg.fv-plot .fv-curve").count() == 1
    table = part(page, "table")
    table.get_by_role("button", name="BLEU").click()
    assert table.locator("tbody tr td:first-child").all_inner_texts() == ["a", "b", "c"]
    table.get_by_role("button", name="BLEU").click()
    assert table.locator("tbody tr td:first-child").all_inner_texts() == ["b", "a", "c"]


def test_hostile_words_are_shown_and_do_nothing(open_url: Visit, address: str) -> None:
    page = open_url(address)
    assert page.locator("img[onerror]").count() == 0
    assert part(page, "bars").get_by_text("</script><img").count() == 1
    assert part(page, "words").locator(".fv-word").all_inner_texts() == [*TARGET[:3], "a⟨U+000A⟩b"]
