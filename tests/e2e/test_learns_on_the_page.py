"""A page that trains, in Chromium, from a disk: it learns, tries a text, and races."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from foveate.config import PACKAGED
from foveate.studio.publish import PublishedFile, publish

ROOT = Path(__file__).parents[2]
Visit = Callable[..., Any]
MAP = ".fv-learn-maps .fv-cells[role=application]"
BUILT = ROOT / "src" / "foveate" / "look" / "draw" / "publish.train.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not BUILT.is_file(), reason="make web builds the page"),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with a training and no model."""
    file = tmp_path_factory.mktemp("learn") / "learn.html"
    assert publish([], file, train=True) < 3_000_000
    return file.as_uri()


def film(page: Any, steps: int) -> list[list[Any]]:
    """The frames of the first model after so many steps: step, loss, weight on the right."""
    reached = f"() => foveateLearn().every(run => run.step >= {steps})"
    page.wait_for_function(reached, timeout=120_000)
    frames = page.evaluate("foveateLearn()[0].frames.map(f => [f.step, f.loss, f.right])")
    return [frame for frame in frames if frame[0] <= steps]


def state(page: Any) -> Any:
    """What the address says of the training."""
    return json.loads(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('learn')"))


def test_the_loss_falls_and_the_same_seed_is_the_same_film(open_url: Visit, alone: str) -> None:
    frames = film(open_url(alone), 500)
    assert frames[1][1] > 3 and frames[-1][1] < 0.5
    assert frames[0][2] < 0.3 and frames[-1][2] > 0.5
    assert film(open_url(alone), 500)[1:] == frames[1:]


def test_a_word_is_tried_at_any_step(open_url: Visit, alone: str) -> None:
    page = open_url(alone)
    film(page, 400)
    page.get_by_test_id("train").click()
    page.get_by_test_id("own").fill("stop")
    page.get_by_text("right is pots").or_(page.get_by_text("✓ right")).wait_for()
    page.get_by_test_id("learn-scrub").press("Home")
    page.get_by_text("untrained").wait_for()
    assert "stop" in page.evaluate("decodeURIComponent(location.hash)")
    page.get_by_test_id("own").fill("no blanks")
    page.get_by_text("Write a word of 2 to 12 letters from a to z.").wait_for()


def test_two_models_race_and_a_link_keeps_their_settings(open_url: Visit, alone: str) -> None:
    page = open_url(alone)
    page.get_by_test_id("race").click()
    film(page, 100)
    assert page.locator(".fv-learn-lane").count() == 2
    assert state(page)["runs"] == [{}, {"positions": False}]
    page.get_by_test_id("masked-1").uncheck()
    again = open_url(page.url)
    assert again.get_by_test_id("masked-0").is_checked()
    assert not again.get_by_test_id("masked-1").is_checked()


def learning(alone: str, *runs: dict[str, Any]) -> str:
    """The address of trainings with settings."""
    return f"{alone}#learn={quote(json.dumps({'runs': runs}))}"


def test_a_month_is_right_at_any_of_its_letters(open_url: Visit, alone: str) -> None:
    page = open_url(learning(alone, {"task": "dates"}))
    film(page, 20)
    letters = [(row, column) for row in (5, 6) for column in (3, 4, 5, 6)]  # 14 July 1989
    right = [(0, 8), (1, 9), (2, 10), (3, 11), (8, 0), (9, 1), *letters]
    assert page.locator(".fv-dot").count() == len(right)
    page.get_by_test_id("train").click()
    frame = page.evaluate("(({heads, rows, columns, right, weights}) =>"
        " [heads, rows, columns, right, [...weights]])(foveateLearn()[0].frames[3])")  # fmt: skip
    weights = np.reshape(frame[4], frame[:3]).mean(0)
    linked = {row for row, _ in right}
    share = sum(weights[row, column] for row, column in right) / len(linked)
    assert frame[3] == pytest.approx(share, abs=1e-6)


def test_a_finished_training_is_read_at_the_step_that_is_shown(open_url: Visit, alone: str) -> None:
    page = open_url(learning(alone, {"positions": False}))
    film(page, 1500)
    page.get_by_text("done: step 1,500").wait_for()
    verdict = page.get_by_text("Without positions, a model does not see the order")
    assert verdict.is_visible()
    for _ in range(30):
        page.get_by_test_id("learn-scrub").press("ArrowLeft")
    [(step, loss, _)] = page.evaluate(
        "foveateLearn()[0].frames.slice(-31, -30).map(f => [f.step, f.loss, f.right])"
    )
    assert page.locator(".fv-learn-when").inner_text() == f"step {step}"
    said = page.locator(".fv-learn-chart output").inner_text()
    assert said.startswith(f"step {step} · loss ")
    assert float(said.split()[-1]) == pytest.approx(loss, rel=1e-3)
    assert f"loss {loss:.2f}" in page.get_by_test_id("status-0").inner_text()
    assert not verdict.is_visible()


def test_the_maps_of_a_race_are_near_each_other_on_a_phone(open_url: Visit, alone: str) -> None:
    page = open_url(learning(alone, {}, {"positions": False}), width=360)
    film(page, 10)
    page.get_by_test_id("train").click()
    first, second = (grid.bounding_box() for grid in page.locator(MAP).all())
    assert second["y"] - first["y"] - first["height"] < 300


def test_with_reduced_motion_the_first_screen_has_a_map(open_url: Visit, alone: str) -> None:
    page = open_url(alone, width=1024, reduced_motion="reduce")
    page.get_by_text("of attention on the right letter").wait_for(timeout=1500)
    grid = page.locator(MAP).bounding_box()
    assert grid["y"] + grid["height"] < 800
    assert page.get_by_test_id("output-0").bounding_box()["y"] < grid["y"]


def test_settings_that_do_not_exist_are_left_out(open_url: Visit, alone: str) -> None:
    bad = {"runs": [{"heads": 7, "rate": "x", "task": "rm", "scaled": False}], "text": 3}
    page = open_url(f"{alone}#learn={quote(json.dumps(bad))}")
    film(page, 10)
    assert state(page) == {"runs": [{"scaled": False}]}


def test_without_simd_it_says_so(browser: Any, alone: str) -> None:
    page = browser.new_page()
    page.add_init_script("WebAssembly.validate = () => false")
    page.goto(alone)
    page.get_by_role("alert").wait_for()
    assert "no WebAssembly with SIMD, which training needs" in page.inner_text("main")
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (1920, "dark")])
def test_axe_finds_nothing(open_url: Visit, axe: Any, alone: str, width: int, scheme: str) -> None:
    for task in ("reverse", "dates", "adjectives"):
        both = [{"task": task}, {"task": task, "model": "recurrent"}]
        address = f"{alone}#learn={quote(json.dumps({'runs': both}))}"
        page = open_url(address, width=width, scheme=scheme)
        film(page, 20)
        page.get_by_test_id("train").click()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe(page) == []


def test_cards_invite_to_an_answer(open_url: Visit, axe: Any, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="no zig: make wheels")
    file = ROOT / "tests" / "packed" / "v1" / "transformer_pre.safetensors"
    publish([PublishedFile(file, "small", ["the dog runs"])], tmp_path / "a.html", train=True)
    page = open_url((tmp_path / "a.html").as_uri())
    page.locator("[data-status=done]").wait_for()
    page.get_by_test_id("card-silence").click()
    page.get_by_test_id("told").get_by_text("is silenced: its weights are all 0").wait_for()
    page.get_by_text("with all heads:").wait_for()
    assert axe(page) == []
    link = page.url
    assert "card=silence" in link
    page.get_by_test_id("card-force").click()
    page.get_by_text("undo what was forced").wait_for()
    assert not page.get_by_text("with all heads:").count()  # each card begins with all heads
    page.get_by_test_id("card-adjectives").click()
    page.get_by_test_id("told").get_by_text("No two words are crossed").or_(
        page.get_by_text("heads of cross-attention do")
    ).wait_for()
    page.get_by_text("dog").first.click()  # the example
    page.locator("[data-status=done]").wait_for()
    page.get_by_test_id("card-wrong").click()
    page.get_by_test_id("told").get_by_text("in an order that training never showed").wait_for()
    assert page.locator("textarea").input_value() == "runs dog the"
    assert not page.get_by_text("undo what was forced").count()
    page.get_by_test_id("card-learn").click()
    film(page, 10)
    again = open_url(link)
    again.get_by_text("with all heads:").wait_for()


LOOKED = """() => ['.told', '.word.chosen', '.word.changed', '.fv-heads-grid [aria-pressed=true]']
  .map((each) => [...document.querySelectorAll(each)].map((e) => e.title || e.innerText))
  .concat([document.querySelectorAll('.fv-outline').length])"""


def test_what_a_card_did_is_marked_framed_and_linked(
    call: Any, open_url: Visit, tmp_path: Path
) -> None:
    pytest.importorskip("ziglang", reason="no zig: make wheels")
    file = tmp_path / "page.html"
    done = call("publish", PACKAGED / "en-fr", "--train", "--single", file)
    assert done.code == 0, done.err
    page = open_url(file.as_uri(), width=1024)
    page.locator("[data-status=done]").wait_for()
    cells = page.locator("section[aria-label=attention] .fv-cells[role=application]")
    box = cells.bounding_box()  # the first screen has the sentences and most of the map
    assert box["y"] + 0.7 * box["height"] < 800
    page.get_by_test_id("card-silence").click()
    page.get_by_text("What it changed is marked").wait_for()
    page.wait_for_timeout(700)  # the address follows
    [told], [word], changed, [head], frames = seen = page.evaluate(LOOKED)
    assert word == changed[0] and not frames
    number, layer = re.match(r"Head (\d) of layer (\d)", told).groups()
    assert head.startswith(f"layer {layer}, head {number}")
    assert open_again(open_url, page, told) == seen
    page.get_by_test_id("card-adjectives").click()
    page.get_by_text("the framed cells").wait_for()
    for name in ("layer 0, head 2", "layer 1, mean"):  # the frames are of words, not of a head
        page.get_by_role("button", name=name).click()
        assert page.locator(".fv-outline").count() == 2
    page.get_by_role("radio", name="encoder self-attention").check()
    assert page.locator(".fv-outline").count() == 0
    assert "reads" in page.locator(".fv-sentences").inner_text()
    page.get_by_role("radio", name="decoder cross-attention").check()
    page.locator("[data-side=row] .fv-word").nth(3).hover()
    page.wait_for_timeout(700)
    [told], *_ = seen = page.evaluate(LOOKED)
    assert open_again(open_url, page, told) == seen
    page.get_by_role("button", name="Translate", exact=True).nth(1).click()
    page.get_by_test_id("told").wait_for(state="detached")
    assert page.locator(".fv-outline").count() == 0


def open_again(open_url: Visit, page: Any, told: str) -> Any:
    """What a reader sees who opens the address of a page."""
    again = open_url(page.url)
    again.get_by_text(told).wait_for()
    again.wait_for_timeout(300)
    return again.evaluate(LOOKED)
