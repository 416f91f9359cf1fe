"""A lecture in the studio: stepped by keys, found by its address, legible from the back row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="no uvicorn here: pip install '.[studio]'")
pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")
from pages import require_page, served, until, visitor, wait

from foveate.server.lectures import lectures
from small_runs import made

pytestmark = pytest.mark.slow
STEPS = next(each.steps for each in lectures().lectures if each.name == "romac")
SMALLEST = """() => Math.min(...[...document.querySelectorAll('.screen *')]
  .filter((e) => e.checkVisibility())
  .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((e) => parseFloat(getComputedStyle(e).fontSize) * e.currentCSSZoom * devicePixelRatio))"""
SCREENS = [(1280, 800, 1), (1920, 1080, 1), (960, 540, 2)]  # the last: 1920 × 1080 at 200 %


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_page()
    folder = made(tmp_path_factory.mktemp("lecture"), ["transformer"], steps=60)["transformer"].path
    folder.rename(folder.parent / "en-fr")
    with served(folder.parent) as result:
        yield result


@pytest.fixture
def open_url(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    with visitor(browser, address) as open_page:
        yield open_page


def test_a_lecture_is_stepped_through(open_url: Callable[..., Any]) -> None:
    page = open_url("#/inspect")
    page.keyboard.press("p")
    page.get_by_test_id("lecture-romac").click()
    assert page.locator("header").count() == 0  # nothing but the slide
    for number, step in enumerate(STEPS, 1):
        until(page, "hash => location.hash === hash", f"#/lecture/romac/{number}")
        until(page, "title => document.querySelector('h1').innerText === title", step.title)
        assert page.get_by_test_id("command").inner_text().split() == step.command.split()
        small = {name for name in step.runs if lectures().runs[name].packaged} - {"en-fr"}
        if set(step.runs) <= {"en-fr", *small}:
            wait(page, "lecture")
            page.locator(".stage .fv").first.wait_for()
            for _ in range(page.locator(".stage .fv-later").count()):
                page.keyboard.press("ArrowRight")
        else:
            wait(page, "lecture", "failed")
            assert "foveate train" in page.get_by_test_id("makes").inner_text()
        assert page.get_by_test_id("packaged").count() == bool(small)
        if small:  # its sentence names the command and the minutes
            said = page.get_by_test_id("packaged").inner_text()
            assert all(f"--run runs/{name}" in said for name in small) and " minutes " in said
        page.keyboard.press("ArrowRight")
    last = len(STEPS)
    page.keyboard.press("ArrowLeft")
    until(page, f"location.hash === '#/lecture/romac/{last - 1}'")
    page.go_back()
    until(page, f"location.hash === '#/lecture/romac/{last}'")
    page.keyboard.press("p")
    page.get_by_test_id("page-inspect").wait_for()
    page.keyboard.press("p")
    until(page, f"location.hash === '#/lecture/romac/{last}'")
    page.keyboard.press("Escape")
    page.get_by_test_id("page-inspect").wait_for()


def test_the_next_slide_is_there_and_a_walk_is_stepped_through(open_url) -> None:
    page = open_url("#/lecture/romac/16")
    wait(page, "lecture")
    until(
        page, "performance.getEntriesByName(location.origin + '/api/v1/lectures/romac/17').length"
    )
    page.wait_for_load_state("networkidle")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".stage .fv", timeout=300)
    number = next(k for k, step in enumerate(STEPS, 1) if "look steps runs/en-fr" in step.command)
    page.goto(page.url.partition("#")[0] + f"#/lecture/romac/{number}")
    walk = wait(page, "lecture")
    walk.locator(".fv-step").first.wait_for()
    later = walk.locator(".fv-later").count()
    assert later == walk.locator(".fv-step").count() - 1
    page.keyboard.press("ArrowRight")
    assert walk.locator(".fv-later").count() == later - 1
    for _ in range(later):
        page.keyboard.press("PageDown")
        if "weights" in walk.locator(".fv-step.fv-now figcaption").all_inner_texts():
            table, stage = (
                walk.locator(".fv-steps.fv-scroll"),
                walk.locator(".stage").bounding_box(),
            )
            box = table.bounding_box()
            assert box["y"] + box["height"] <= stage["y"] + stage["height"]  # from keys to weights
            assert table.evaluate("e => e.scrollWidth <= e.clientWidth")
    until(page, f"location.hash === '#/lecture/romac/{number + 1}'")


def test_a_run_that_no_package_has_is_named_with_its_command(open_url: Callable[..., Any]) -> None:
    page = open_url("#/lecture/lerner/5")
    wait(page, "lecture", "failed")
    assert "foveate train" in page.get_by_test_id("makes").inner_text()


def test_notes_are_shown_on_demand_with_what_was_corrected(open_url: Callable[..., Any]) -> None:
    page = open_url("#/lecture/romac/2")
    wait(page, "lecture")
    assert page.get_by_test_id("notes").count() == 0
    page.keyboard.press("n")
    assert STEPS[1].slip in page.get_by_test_id("notes").inner_text()
    page.keyboard.press("n")
    assert page.get_by_test_id("notes").count() == 0


@pytest.mark.parametrize(("width", "height", "ratio"), SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_map_is_whole_and_legible(browser, address, width, height, ratio, scheme) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=ratio, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(address + "#/lecture/romac/19")
    wait(page, "lecture")
    cells = page.locator(".stage .fv-cells[tabindex]")
    cells.wait_for()
    box, stage = cells.bounding_box(), page.locator(".stage").bounding_box()
    assert box["height"] > height / 4
    assert box["y"] + box["height"] <= stage["y"] + stage["height"] + 1
    assert page.evaluate(SMALLEST) >= 24
    canvas = cells.locator("canvas").bounding_box()  # the last cell is where it is pointed at
    page.mouse.move(canvas["x"] + canvas["width"] - 4, canvas["y"] + canvas["height"] - 4)
    until(page, "document.querySelector('.fv-reading').innerText.includes('« </s> »: </s>')")
    context.close()
