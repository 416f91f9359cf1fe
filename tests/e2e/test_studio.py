"""The studio's page in a browser, before a real server over small trained runs of every family."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pages import downloaded, require_page, served, until, wait, words

from foveate.look.stages import attention_stages, capture_stages
from foveate.run import Run
from small_runs import CONFIGS, config_file, made, running, train, write_data

PAGES = ("ask", "inspect", "train", "evaluate", "model", "compare", "demos")
SENTENCE = "the+dog+runs"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    require_page()
    return made(tmp_path_factory.mktemp("page"), list(CONFIGS), steps=60)


@pytest.fixture(scope="module")
def address(runs: dict[str, Run]) -> Iterator[str]:
    with served(runs["rnn"].path.parent) as result:
        yield result


def test_a_run_without_a_log_and_data_says_so(visit, runs, tmp_path) -> None:
    folder = shutil.copytree(runs["rnn"].path, tmp_path / "bare")
    (folder / "log.jsonl").unlink()
    config = folder / "config.toml"
    text = re.sub(r'(?m)^(source|target) = ".*"', r'\1 = "{split}.gone"', config.read_text("utf-8"))
    config.write_text(text, "utf-8")
    with served(tmp_path) as at:
        page = visit("#/train?run=bare", at=at)
        assert "no training log" in page.get_by_test_id("no-log").inner_text()
        assert not page.get_by_role("checkbox").count() and not page.get_by_role("radio").count()
        page = visit("#/evaluate?run=bare", at=at)
        command = page.get_by_test_id("command").inner_text()
        assert command == f"foveate evaluate {folder} --data FILE"
        assert not page.get_by_test_id("evaluate").count()


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_a_sentence_is_answered_forced_and_kept_in_the_address(visit, runs, name) -> None:
    page = visit(f"#/ask?run={name}")
    page.get_by_test_id("source").fill("the dog runs")
    page.get_by_test_id("source").press("Enter")
    wait(page, "answer")
    [output] = runs[name].translate(["the dog runs"])
    assert words(page) == [*str(output).split(), "</s>"]
    page.get_by_test_id("alternatives").click()
    other = page.get_by_test_id("output").locator(".place").first.locator(".other").nth(1)
    messages = other.locator("bdi").inner_text()
    other.click()
    wait(page, "answer")
    assert words(page)[0] == messages != str(output).split()[0]
    assert "prefix=" in page.url
    again = visit(page.url[page.url.index("#") :])
    wait(again, "answer")
    assert words(again) == words(page)
    page.get_by_test_id("unforce").click()
    until(page, "!location.hash.includes('prefix')")
    wait(page, "answer")
    assert words(page) == [*str(output).split(), "</s>"]
    page.go_back()
    until(page, "location.hash.includes('prefix')")
    wait(page, "answer")
    assert words(page)[0] == messages


def test_beams_are_lanes_and_each_output_can_be_read(visit: Callable[..., Any]) -> None:
    page = visit(f"#/ask?run=transformer&text={SENTENCE}&search.kind=beam&search.beam_size=4")
    wait(page, "answer")
    outputs = page.get_by_test_id("hypotheses").locator("li")
    assert outputs.count() == 4
    lanes = page.get_by_test_id("drawing-lanes")
    assert lanes.locator(".fv-node.fv-best").count() == len(words(page))
    above = lanes.bounding_box()["y"]  # a search that was changed is seen before the map
    assert above < page.get_by_test_id("hypotheses").bounding_box()["y"]
    first = words(page)
    outputs.nth(1).locator("button").click()
    assert words(page) != first
    page.get_by_test_id("search-beam_size").fill("2")
    page.get_by_test_id("search-beam_size").press("Tab")
    until(page, "document.querySelectorAll('[data-testid=hypotheses] li').length === 2")


@pytest.fixture(scope="module")
def slow_writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A language model that writes 2,000 tokens in many seconds, so that a page sees it at work."""
    folder = tmp_path_factory.mktemp("slow")
    large = re.sub(r"(embedding|hidden)_size = 16", r"\1_size = 768", CONFIGS["language"])
    write_data(folder)
    train(config_file(folder, large + "num_layers = 4\n", 1), folder=folder / "runs" / "language")
    with served(folder / "runs") as result:
        yield result


def test_tokens_stream_and_stop(visit: Callable[..., Any], slow_writer: str) -> None:
    """Escape is pressed in the page at the sixth word: from here, it may come too late."""
    page = visit("#/ask?run=language&search.max_extra=2000", at=slow_writer)
    page.get_by_test_id("source").fill("the dog")
    page.evaluate(
        """() => new MutationObserver((_, observer) => {
            if (document.querySelectorAll("[data-testid=output] .word").length < 6) return;
            observer.disconnect();
            window.statusAtSix = document.querySelector("[data-testid=answer]").dataset.status;
            const escape = new KeyboardEvent("keydown", { key: "Escape", bubbles: true });
            document.body.dispatchEvent(escape);
        }).observe(document.body, { childList: true, subtree: true })"""
    )
    page.get_by_test_id("ask").click()
    output = page.get_by_test_id("output").locator(".word")
    wait(page, "answer", "stopped")
    assert page.evaluate("window.statusAtSix") == "working"
    count = output.count()
    page.wait_for_timeout(300)
    assert output.count() == count < 2000
    page.get_by_test_id("source").fill("a cat")
    page.get_by_test_id("search-max_extra").fill("8")
    page.get_by_test_id("search-max_extra").press("Tab")
    wait(page, "answer")
    assert output.count() <= 8


@pytest.mark.parametrize(
    "place", [f"classifier&text={SENTENCE}", "vit&picture=1", "forecaster&channel=season"]
)
def test_every_family_answers(visit, place) -> None:
    page, series = visit(f"#/ask?run={place}"), place.startswith("forecaster")
    if series:
        page.get_by_test_id("ask").click()
    wait(page, "answer")
    drawing = page.get_by_test_id("drawing-lines" if series else "drawing-labels")
    assert drawing.locator("svg").count()


def test_heads_are_picked_in_the_picture_and_silenced(visit: Callable[..., Any]) -> None:
    page = visit(f"#/inspect?run=transformer&text={SENTENCE}&block=decoder.cross_attention")
    view = wait(page, "view-attention")
    view.locator(".fv-heads-grid button[aria-label^='layer 0, head 1']").click()
    until(page, "location.hash.includes('layer=0') && location.hash.includes('head=1')")
    reading = view.locator(".fv-reading").inner_text()
    page.keyboard.press("s")
    wait(page, "answered-transformer").get_by_test_id("changed").wait_for()
    assert "silence=decoder.cross_attention%3A0%3A1" in page.url
    wait(page, "view-attention")
    reading_of = "document.querySelector('[data-testid=view-attention] .fv-reading')"
    until(page, f"old => {reading_of}.innerText !== old", reading)
    assert page.get_by_test_id("changed").inner_text().strip()
    again = visit(page.url[page.url.index("#") :])
    wait(again, "view-attention")
    assert again.get_by_test_id("silenced").locator("li").count() == 1


def test_what_is_chosen_lights_in_all(visit: Callable[..., Any]) -> None:
    shown = "block=decoder.cross_attention&view=attention&view=heads"
    page = visit(f"#/inspect?run=transformer&text={SENTENCE}&{shown}")
    wait(page, "view-attention")
    wait(page, "view-heads")
    wait(page, "answered-transformer")
    page.get_by_test_id("output").locator(".word").nth(1).hover()
    for name in ("view-attention", "view-heads"):
        reading = page.get_by_test_id(name).locator(".fv-reading").first.inner_text()
        assert f"“{words(page)[1]}”" in reading
    until(page, "location.hash.includes('row=1')")


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_a_walk_from_a_map_opens_the_scene_at_its_row(visit, runs, name) -> None:
    page = visit(f"#/inspect?run={name}&text={SENTENCE}&view=attention&block=cross_attention")
    attention = wait(page, "view-attention")
    attention.locator(".fv-sentences [data-side=row] .fv-word").nth(1).dblclick()
    scene = wait(page, "view-scene")
    assert scene.get_by_label("camera stop").input_value() != "0"
    stops = scene.get_by_label("camera stop").locator("option").all_inner_texts()
    numbers = next(stop for stop in stops if stop.endswith(" numbers c"))
    scene.get_by_label("camera stop").select_option(label=numbers)
    scene.get_by_text("Table", exact=True).click()
    scene.locator(".fv-twin table").wait_for()
    rows = [row.inner_text().split("\t") for row in scene.locator(".fv-twin tbody tr").all()]
    forced, modules = runs[name].forced("the dog runs"), runs[name].model.named_modules()
    module = [part for where, part in modules if where.endswith("cross_attention")][-1]
    with torch.inference_mode(), capture_stages(module) as calls:
        forced.run()
    head = int(re.search(r"scene\.head=(\d+)", page.url)[1])
    stages = {stage.name: stage for stage in attention_stages(module, calls, head, forced.row)}
    shown = next(row[1] for row in rows if row[0].endswith("c own")).replace("−", "-").split()
    numbers = [float(part) for part in shown if part != "⋯"]  # as many as there is room for
    right = stages["context"].values[1][: len(numbers)]
    assert numbers and numbers == pytest.approx(right.tolist(), abs=0.006)


def test_a_walk_of_a_mean_is_that_of_the_head_with_most_weight(visit, runs) -> None:
    shown = "view=attention&block=cross_attention&head=mean"
    page = visit(f"#/inspect?run=transformer&text={SENTENCE}&{shown}")
    view = wait(page, "view-attention")
    view.locator(".fv-sentences [data-side=row] .fv-word").nth(1).dblclick()
    walk = wait(page, "view-scene")
    head = int(re.search(r"scene\.head=(\d+)", page.url)[1])
    record = runs["transformer"].explain("the dog runs")
    weights = [w for name, w in record.maps.items() if name.endswith("cross_attention")][-1]
    row = weights.mean(axis=0)[1]
    assert head == weights[:, 1, row.argmax()].argmax()
    assert f"Head {head} has the largest weight" in walk.inner_text()
    until(page, "scrollY > 0")


def test_runs_stand_side_by_side(visit: Callable[..., Any]) -> None:
    page = visit(f"#/inspect?run=transformer&text={SENTENCE}&view=attention&view=curves")
    wait(page, "view-curves")
    page.get_by_test_id("compare-add").select_option("rnn")
    wait(page, "answered-rnn")
    shown = "[data-testid=view-attention][data-status=done]"
    until(page, f"document.querySelectorAll('{shown}').length === 2")
    wait(page, "view-curves")
    keys = page.get_by_test_id("view-curves").locator(".fv-keys-row .fv-key").all_inner_texts()
    assert all(any(name in key for key in keys) for name in ("transformer", "rnn"))
    assert page.url.count("run=") == 2


def test_a_drawing_is_saved_as_a_page_that_needs_no_studio(visit, browser, tmp_path) -> None:
    """Other forms are saved as on every page (test_drawings.py)."""
    view = wait(visit(f"#/inspect?run=rnn&text={SENTENCE}&view=attention"), "view-attention")
    path = downloaded(view.get_by_role("button", name="HTML", exact=True), tmp_path)
    assert path.suffix == ".html"
    alone = browser.new_context(offline=True).new_page()
    alone.goto(path.as_uri())
    alone.wait_for_selector(".fv-cells canvas")
    alone.context.close()


def test_a_running_training_is_watched(visit, runs, tmp_path) -> None:
    text = (runs["rnn"].path.parent.parent / "rnn.toml").read_text("utf-8")
    (tmp_path / "live.toml").write_text(text.replace("max_steps = 60", "max_steps = 100000"))
    command = [sys.executable, "-m", "foveate", "train", str(tmp_path / "live.toml"),
               "--run", str(tmp_path / "live")]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(command, env=env, **silent) as training:
        log = tmp_path / "live" / "log.jsonl"
        while not (log.is_file() and '"train"' in log.read_text("utf-8")):
            assert training.poll() is None
            time.sleep(0.1)
        with served(tmp_path) as at:
            page = visit("#/train?run=live", at=at)
            page.get_by_test_id("live").wait_for()
            loss = page.get_by_test_id("drawing-loss").locator(".fv-reading")
            loss.wait_for()
            first = step_of(loss.inner_text())
            end = time.monotonic() + 30
            while step_of(loss.inner_text()) <= first + 20:  # nothing is touched meanwhile
                assert time.monotonic() < end
                page.wait_for_timeout(100)
            page.get_by_test_id("samples").locator("tbody tr").first.wait_for()
            page.close()


def step_of(reading: str) -> int:
    return int(reading.split("·")[0].removeprefix("step").strip().replace(",", ""))


def test_examples_are_scored_sorted_and_opened(visit, runs) -> None:
    page = visit("#/evaluate?run=transformer")
    page.get_by_test_id("evaluate").click()
    wait(page, "evaluation")
    rows = page.get_by_test_id("row")
    scores = [float(text) for text in rows.locator("[role=cell]:first-child").all_inner_texts()]
    assert scores == sorted(scores) and len(scores) == 7
    page.get_by_test_id("rows").focus()
    page.keyboard.press("ArrowDown")
    source = page.get_by_test_id("chosen-row").locator("p").first.inner_text()
    page.keyboard.press("Enter")
    wait(page, "view-attention")
    assert page.get_by_test_id("source").input_value() == source


def test_a_model_is_read(visit: Callable[..., Any], runs: dict[str, Run]) -> None:
    page = visit("#/model?run=transformer")
    view = wait(page, "view-scene")
    count = sum(p.numel() for p in runs["transformer"].model.parameters())
    assert f"{count:,}" in page.get_by_test_id("facts").inner_text()
    picture, caption = view.locator(".fv-scene-picture"), view.locator(".fv-scene-caption")
    stops = view.get_by_label("camera stop").locator("option").all_inner_texts()
    assert any("cross-attention" in stop for stop in stops)
    picture.focus()
    seen = {caption.inner_text()}
    for number in range(1, len(stops)):  # without a mouse
        page.keyboard.press("ArrowRight")
        assert view.get_by_label("camera stop").input_value() == str(number)
        seen.add(caption.inner_text())
    assert len(seen) > len(stops) / 2


def test_a_box_says_what_it_computes_on_a_phone(visit: Callable[..., Any]) -> None:
    page = visit("#/model?run=rnn", 360)
    view = wait(page, "view-scene")
    boxes = view.locator(".fv-node.fv-box:not(.fv-off)")
    before = view.locator(".fv-scene-caption").inner_text()
    boxes.first.dispatch_event("click")
    assert view.locator(".fv-scene-caption").inner_text() != before
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_map_stands_beside_the_sentence_and_a_click_opens_alternatives(visit) -> None:
    page = visit(f"#/ask?run=transformer&text={SENTENCE}")
    wait(page, "answer")
    cells = wait(page, "view-attention").locator(".fv-cells[tabindex]").bounding_box()
    assert cells["y"] + cells["height"] <= 800
    assert page.get_by_test_id("rivals").count() == 0
    page.get_by_test_id("output").locator(".word").nth(1).click()
    rivals = page.get_by_test_id("rivals")
    assert f"“{words(page)[1]}”" in rivals.inner_text()
    box = rivals.bounding_box()
    assert box["x"] > cells["x"] and box["y"] < cells["y"] + cells["height"]  # beside the map


def test_arrows_move_on_a_map_that_has_no_focus(visit: Callable[..., Any]) -> None:
    page = visit(f"#/inspect?run=transformer&text={SENTENCE}&view=attention")
    wait(page, "view-attention")
    page.evaluate("document.activeElement.blur()")
    for key in [*["ArrowUp"] * 9, "ArrowDown"]:  # from the strongest weight, wherever it is
        page.keyboard.press(key)
    until(page, "location.hash.includes('row=1')")


def test_the_first_screens_begin_with_what_matters(visit: Callable[..., Any]) -> None:
    page = visit("#/train?run=transformer")
    page.get_by_test_id("drawing-loss").wait_for()
    assert page.get_by_test_id("charts").locator(".fv").count() == 2
    page.get_by_test_id("more-charts").locator("summary").first.click()
    page.get_by_test_id("more-charts").locator(".fv-plot").nth(1).wait_for()
    assert page.get_by_test_id("more-charts").locator(".fv-plot").count() > 1
    page = visit("#/evaluate?run=transformer")
    wait(page, "evaluation")
    worst = page.get_by_test_id("row").first.locator("[role=cell]").nth(2).inner_text()
    shown = page.get_by_test_id("chosen-row").inner_text()
    assert "the worst" in shown and worst in shown
    page = visit("#/model?run=transformer")
    picture = wait(page, "view-scene").locator(".fv-scene-picture")
    assert picture.locator(".fv-edge-line:not(.fv-off)").count() > 4


def test_the_main_path_needs_no_mouse(visit: Callable[..., Any]) -> None:
    page = visit("#/ask?run=transformer")
    page.keyboard.press("/")
    page.keyboard.type("the dog runs")
    page.keyboard.press("Enter")
    wait(page, "answer")
    page.keyboard.press("Escape")  # leaves the field
    first = words(page)
    page.locator('[data-testid="output"] .word[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.at") == "1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('prefix')")
    wait(page, "answer")
    assert words(page)[1] != first[1]
    page.keyboard.press("2")
    view = wait(page, "view-attention")
    for keys, expected in (("]", "layer=1"), ("[", "layer=0"), (".", "head=0")):
        page.keyboard.press(keys)
        until(page, "wanted => location.hash.includes(wanted)", expected)
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.innerText") == "PNG"
    view.locator("summary").filter(has_text="Table").focus()
    page.keyboard.press("Enter")
    view.locator(".fv-twin table").wait_for()  # filled once it is open
    page.keyboard.press("?")
    page.get_by_test_id("help-dialog").wait_for()
    page.keyboard.press("Escape")
    for key, name in zip("34567", PAGES[2:], strict=True):
        page.keyboard.press(key)
        page.get_by_test_id(f"page-{name}").wait_for()


HOSTILE = (
    "</script><img src=x onerror=alert(1)> \u202eabc\u202c e\u200bf "
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u0631\u062d\u0628\u0627"
)


@pytest.mark.parametrize("name", ["transformer", "language"])
def test_hostile_text_is_only_text(visit: Callable[..., Any], name: str) -> None:
    page = visit(f"#/ask?run={name}&search.max_extra=10")
    page.get_by_test_id("source").fill(HOSTILE)
    page.get_by_test_id("ask").click()
    wait(page, "answer")
    page.keyboard.press("Escape")
    page.get_by_test_id("tab-inspect").click()
    page.wait_for_selector('[data-testid^="view-"][data-status="done"]')
    assert page.locator("img[src=x]").count() == 0


SETTLED = {  # what a page shows once it is whole
    "ask": "answer", "inspect": "view-curves", "evaluate": "evaluation", "model": "view-scene",
    "demos": "demo",
}  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_stands_in_the_way_of_anyone(visit, axe, name, scheme) -> None:
    extra = {"inspect": "&run=rnn&view=attention&view=curves", "evaluate": "&split=test"}
    page = visit(f"#/{name}?run=transformer&text={SENTENCE}{extra.get(name, '')}", scheme=scheme)
    if name in SETTLED:
        wait(page, SETTLED[name])
    else:
        page.get_by_test_id("drawing-loss" if name == "train" else "makes").wait_for()
    page.wait_for_timeout(300)
    for width in (360, 2560, 360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    faults = axe(page)
    assert not [f for f in faults if f[1] in ("serious", "critical") or f[0] == "heading-order"]
