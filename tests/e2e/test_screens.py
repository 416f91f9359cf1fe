"""Demos and comparisons in the studio: forms, addresses, the way from a comparison to Inspect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import require_page, served, until, visitor, wait

from foveate.look.draw.charts import line_chart
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.demos import DEMOS
from foveate.measure.comparison import Comparison
from small_runs import made

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_page()
    folder = tmp_path_factory.mktemp("screens")
    runs = made(folder, ["rnn", "transformer"], steps=30)["rnn"].path.parent
    table = TableDrawing(title="Quality", columns=["model", "BLEU"], rows=[["rnn", 1.0]])
    lines = line_chart(np.arange(3.0), {"rnn": np.arange(3.0)}, title="Speed")
    chapters = {"Quality": [table], "Cost": [lines]}
    Comparison(["rnn", "transformer"], {"budget": "30 steps"}, chapters).save(folder / "both.html")
    with served(runs) as result:
        yield result


def test_a_demo_is_chosen_changed_and_found_again_by_its_address(visit) -> None:
    page = visit("#/demos")
    page.get_by_test_id("demo-beam").click()
    wait(page, "demo")
    page.get_by_test_id("field-tables").check()
    until(page, "location.hash.includes('demo.tables=true')")
    page.get_by_test_id("demo-noam").click()
    until(page, "!location.hash.includes('tables')")
    page.get_by_test_id("field-pairs").fill("64:100")
    page.get_by_test_id("field-steps").fill("300")
    page.get_by_test_id("field-steps").press("Tab")
    command = "foveate demo noam --pairs 64:100 --steps 300"
    until(page, "c => document.querySelector('[data-testid=command]').innerText === c", command)
    wait(page, "demo")
    page.wait_for_timeout(300)  # until the address says it
    again = visit(page.url[page.url.index("#") :], width=360)
    wait(again, "demo")
    assert again.get_by_test_id("command").inner_text() == command
    assert "d = 64, warmup 100" in again.get_by_test_id("drawing-demo").inner_text()


def drag(element: Any, *places: tuple[float, float]) -> None:
    """Press the mouse at a first share of an element's width and height; release it at a second."""
    box, mouse = element.bounding_box(), element.page.mouse
    for (x, y), then in zip(places, (mouse.down, mouse.up), strict=True):
        mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)
        then()


def test_a_demo_is_dragged_without_a_request_and_shows_the_numbers_of_python(visit) -> None:
    page = visit("#/demos?demo=local")
    wait(page, "demo")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    slider = page.locator("input[data-option=window]")
    drag(slider, (0.3, 0.5), (0.8, 0.5))
    slider.press("ArrowRight")
    value = float(slider.get_attribute("aria-valuetext"))
    assert value > 8
    until(page, "location.hash.includes('demo.window=')")
    title = DEMOS["local"].draw({"window": value}).title
    until(page, "title => document.body.textContent.includes(title)", title)
    command = f"foveate demo local --window {value:g}"
    assert page.get_by_test_id("command").inner_text() == command
    page.get_by_role("button", name="reset").click()
    until(page, "!location.hash.includes('window')")
    assert not [url for url in asked if "/api/" in url]
    page.goto(page.url.split("#")[0] + "#/demos?demo=scores")
    until(page, "document.querySelectorAll('.fv-plane .fv-cells').length >= 6")
    drag(page.locator(".fv-plane .fv-cells").first, (0.5, 0.5), (0.75, 0.25))
    options = (page.locator(f"input[data-option={name}]") for name in "xy")
    x, y = (option.get_attribute("aria-valuetext") for option in options)
    assert 1 < float(x) < 2 and 1 < float(y) < 2
    until(page, "query => document.body.innerText.includes(query)", f"query ({x}, {y})")


def test_a_comparison_is_read_by_chapters_and_leads_to_one_sentence(visit) -> None:
    page = visit("#/compare")
    wait(page, "comparison")
    shown = page.get_by_test_id("drawing-comparison")
    assert shown.count() == 2 and "30 steps" in shown.first.inner_text()  # terms, quality
    page.get_by_test_id("chapter-2").click()
    until(page, "location.hash.includes('chapter=Cost')")
    until(page, "document.querySelectorAll('[data-testid=drawing-comparison]').length === 1")
    page.go_back()
    until(page, "document.querySelectorAll('[data-testid=drawing-comparison]').length === 2")
    page.get_by_test_id("beside-transformer").click()
    growing = wait(page, "view-growing")
    texts = growing.get_by_test_id("drawing-growing").inner_text()
    assert "source" in texts and "reference" in texts and texts.count(" right") == 2  # of runs
    wait(page, "view-attention")


def test_without_a_comparison_the_one_that_ships_is_drawn(browser: Any, tmp_path: Path) -> None:
    run = made(tmp_path, ["rnn"], steps=4)["rnn"].path
    with served(run) as address, visitor(browser, address) as open_page:
        page = open_page("#/compare")
        wait(page, "comparison", "idle")
        assert "lineage" in page.get_by_test_id("makes").inner_text()
        until(page, "document.querySelector('[data-testid=drawing-comparison] svg')")


def test_a_method_is_chosen_in_inspect(visit: Callable[..., Any]) -> None:
    page = visit("#/inspect?run=transformer&text=the+dog+runs")
    wait(page, "view-attention")
    page.get_by_test_id("pick-relevance").check()
    view = wait(page, "view-relevance")
    before = view.locator(".fv-reading").first.inner_text()
    view.get_by_test_id("field-method").select_option("occlusion")
    until(page, "location.hash.includes('relevance.method=occlusion')")
    reading = "document.querySelector('[data-testid=view-relevance] .fv-reading').innerText"
    until(page, f"before => {reading} !== before", before)
