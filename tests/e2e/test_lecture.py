"""A lecture in the studio: stepped by keys, found by its address, legible from the back row."""

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import downloaded, require_page, served, until, wait

from foveate.studio.lectures import LectureFile, lectures, parsed, read
from screenshots import served as packaged
from slides import play
from small_runs import made

pytestmark = pytest.mark.slow
STEPS = next(each.steps for each in lectures().lectures if each.name == "romac")
SMALLEST = """() => Math.min(...[...document.querySelectorAll('.screen *')]
  .filter((e) => e.checkVisibility())
  .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((e) => parseFloat(getComputedStyle(e).fontSize) * e.currentCSSZoom * devicePixelRatio))"""
HOPS = next(k for k, step in enumerate(STEPS, 1) if step.title == "Several layers, several hops")
FETCHED = """command => performance.getEntriesByType('resource')
  .some(({ name }) => new URL(name).searchParams.get('command') === command)"""
PLACE = "text => document.querySelector('[data-testid=place]').innerText === text"
MOST_STAGES = 300  # of a walk
PHONES = [(360, 740, 1), (360, 740, 2), (360, 740, 3), (740, 360, 3)]
SCREENS = [(1280, 800, 1), (1920, 1080, 1), (1024, 768, 1), (960, 540, 2), *PHONES]


SHORT = """title = "Four steps"
[[steps]]
title = "A view that does not exist"
command = "foveate look headz runs/en-fr"
[[steps]]
title = "A run that is not here"
command = "foveate look heads runs/nowhere --text 'A dog.'"
[[steps]]
title = "A lookup"
command = "foveate demo lookup"
notes = "The last."
[[steps]]
title = "A run that no package has"
command = "foveate look attention runs/location --text 'She closes the old window.'"
"""
PAPER = """title = "On paper"
[[steps]]
title = "Cross-attention"
equation = "α_i = softmax_i score(q, k_i)"
command = "foveate look attention runs/en-fr --text 'She closes the old window.'"
[[steps]]
title = "Vanishing gradients"
command = "foveate demo vanishing"
[[steps]]
title = "Inside one attention"
command = "foveate look scene runs/en-fr --text 'She closes.' --query 1"
"""
CONTROLS = """() => [...document.querySelectorAll('button:not(.fv-key), input, select, kbd')]
  .filter((e) => e.checkVisibility()).map((e) => e.outerHTML.slice(0, 90))
  .filter((html) => !html.includes('data-testid="place"'))"""
CUT = """() => [...document.querySelectorAll('.stage')].filter((e) =>
  e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1).length"""
WHERE = """slide => {
  const a = slide.querySelector('.fv-scene-picture').getBoundingClientRect();
  const b = slide.getBoundingClientRect();
  return [(a.x - b.x) / b.width, (a.y - b.y) / b.height, a.width / b.width, a.height / b.height];
}"""
DRAWN = """() => {
  const all = [...document.querySelectorAll('.stage svg')].filter((e) => e.checkVisibility());
  const texts = all.flatMap((e) => [...e.querySelectorAll('text')]);
  const tall = (e) => e.getBoundingClientRect().height;
  const seen = texts.filter((e) => e.checkVisibility() && e.textContent.trim());
  return [Math.max(...all.map(tall)), Math.min(...seen.map(tall))];
}"""
PAGE = (960, 600)  # points: 1280 × 800 pixels


LONG = """title = "Much to say"
[[steps]]
title = "What a slide looks like that has a long title, a long equation and a caption"
equation = "a_l = W_v Σ_t α_{l,t} h_t: linear in h for a fixed α, which itself depends on h and x"
caption = "λ moves the input. Fixed α: a straight line; its own α: bent, as scores are products."
command = "foveate demo quadratic"
[[steps]]
title = "The same of a scene"
equation = "a_l = W_v Σ_t α_{l,t} h_t: linear in h for a fixed α, which itself depends on h and x"
command = "foveate demo rnn --w 1 --u 0.6"
"""


def pages(pdf: bytes) -> list[tuple[int, int]]:
    """Return the size of each page of a PDF file in points."""
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    return [(round(float(width)), round(float(height))) for width, height in boxes]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_page()
    folder = made(tmp_path_factory.mktemp("lecture"), ["transformer"], steps=60)["transformer"].path
    folder.rename(folder.parent / "en-fr")
    own = tmp_path_factory.mktemp("own")
    for name, text in {"short": SHORT, "paper": PAPER, "long": LONG}.items():
        (own / f"{name}.toml").write_text(text, encoding="utf-8")
    with served(folder.parent, own) as result:
        yield result


def test_a_lecture_is_stepped_through(visit: Callable[..., Any]) -> None:
    page = visit("#/inspect")
    page.keyboard.press("p")
    page.get_by_test_id("lecture-romac").click()
    assert page.locator("header").count() == 0  # nothing but the slide
    for number, step in enumerate(STEPS, 1):
        until(page, "hash => location.hash === hash", f"#/lecture/romac/{number}")
        until(page, "title => document.querySelector('h1').innerText === title", step.title)
        assert page.get_by_test_id("command").inner_text().split() == step.command.split()
        small = {name for name in step.runs if lectures().runs[name].packaged} - {"en-fr"}
        wait(page, "lecture")
        page.locator(".stage .fv").first.wait_for()
        assert page.get_by_test_id("packaged").count() == bool(small)
        if small:  # its sentence names the minutes
            said = page.get_by_test_id("packaged").inner_text()
            assert all(name in said for name in small) and " minute" in said
        if small or number == 2:  # the notes name the command, and what was corrected
            page.keyboard.press("n")
            said = page.get_by_label("speaker's notes").inner_text()
            assert all(f"--run runs/{name}" in said for name in small)
            assert number != 2 or step.slip in said
            page.keyboard.press("n")
            assert page.get_by_test_id("notes").count() == 0
        if step.title == "A query is a matrix product":
            until(page, "document.querySelector('.content').getBoundingClientRect().height > 300")
            assert page.evaluate(CUT) == 0
        for _ in range(MOST_STAGES if number < len(STEPS) else 0):  # a walk goes on by a stage
            page.keyboard.press("ArrowRight")
            if page.evaluate("location.hash") != f"#/lecture/romac/{number}":
                break
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


@pytest.mark.parametrize("lecture", lectures().lectures, ids=lambda lecture: lecture.name)
def test_no_text_of_a_slide_is_cut_or_touches_its_frame(
    browser, tmp_path, monkeypatch, lecture
) -> None:
    require_page()
    monkeypatch.chdir(tmp_path)
    size = {"width": 1024, "height": 768}  # the smallest screen of a projector
    page, crowded = browser.new_page(viewport=size), {}
    with packaged([]) as address:  # with the runs of the package
        for number, step in enumerate(lecture.steps, 1):
            row = {"lecture": lecture.name, "step": number, "title": step.title, "seen": {}}
            play(page, address, row, tmp_path, "")
            crowded[number] = row["seen"]["1024"]["crowded"]
    page.close()
    assert not {number: texts for number, texts in crowded.items() if texts}


def test_a_lecture_is_found_and_stepped_through_without_keys(visit: Callable[..., Any]) -> None:
    page = visit("#/demos")
    page.get_by_test_id("lectures").click()
    page.get_by_test_id("lecture-romac").click()
    page.get_by_test_id("step-on").click()
    until(page, "location.hash === '#/lecture/romac/2'")
    page.get_by_test_id("step-back").click()
    until(page, "location.hash === '#/lecture/romac/1'")
    page.get_by_test_id("place").click()
    page.get_by_test_id("leave").click()
    page.get_by_test_id("page-demos").wait_for()


def test_the_next_slide_is_there_and_a_walk_is_stepped_through(visit) -> None:
    page = visit(f"#/lecture/romac/{HOPS}")
    wait(page, "lecture")
    until(page, FETCHED, STEPS[HOPS].command)
    page.wait_for_load_state("networkidle")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".stage .fv", timeout=300)
    inside = "look rollout"
    number = next(k for k, step in enumerate(STEPS, 1) if inside in step.command)
    page.goto(page.url.partition("#")[0] + f"#/lecture/romac/{number}")
    scene = wait(page, "lecture").locator(".fv-scene-picture")
    scene.wait_for()
    chooser = wait(page, "lecture").get_by_label("camera stop")
    stops = chooser.locator("option").count()
    for stop in range(1, stops):
        page.keyboard.press("ArrowRight" if stop % 2 else "PageDown")
        assert chooser.input_value() == str(stop)
        stage = wait(page, "lecture").locator(".stage").bounding_box()
        box = scene.bounding_box()
        assert box["y"] + box["height"] <= stage["y"] + stage["height"]
    page.keyboard.press("ArrowRight")
    until(page, f"location.hash === '#/lecture/romac/{number + 1}'")


def test_a_step_that_fails_is_legible_and_the_lecture_goes_on(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})  # 422 stands on the console
    page.goto(address + "#/lecture/short/1")
    slide = wait(page, "lecture", "failed")
    assert "unknown view 'headz'; did you mean 'heads'?" in slide.get_by_role("alert").inner_text()
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('[role=alert]')?.innerText.includes('no run nowhere.')")
    assert page.evaluate(SMALLEST) >= 24
    page.keyboard.press("ArrowRight")
    wait(page, "lecture").locator(".fv").first.wait_for()
    page.goto(address + "#/lecture/nobody/3")
    page.get_by_role("alert").get_by_text("The lecture nobody does not exist").wait_for()
    page.close()


def test_a_run_that_no_package_has_is_named_with_its_command(visit: Callable[..., Any]) -> None:
    page = visit("#/lecture/short/4")
    wait(page, "lecture").locator(".stage .fv").first.wait_for()  # that which ships stands in
    said = page.get_by_test_id("packaged").inner_text()
    assert "was not found; this is runs/" in said and "Train runs/" in said and " minutes:" in said
    assert "foveate train" in said


def presenter(page: Any) -> Any:
    """The presenter's window of a slide."""
    with page.context.expect_page() as opened:
        page.keyboard.press("w")
    return opened.value


def test_the_presenter_moves_the_slides(visit: Callable[..., Any]) -> None:
    page = visit(f"#/lecture/romac/{HOPS}")
    wait(page, "lecture")
    page.keyboard.press("n")
    second = presenter(page)
    wait(second, "presenter", "seen")
    notes = " ".join(STEPS[HOPS - 1].notes.split()).replace("`", "")  # code has its own type
    assert second.get_by_test_id("notes").inner_text() == notes
    shown = wait(second, "now")
    assert shown.locator("h1").inner_text() == STEPS[HOPS - 1].title
    shown.locator(".fv").first.wait_for()
    following = wait(second, "next")
    assert following.locator("h1").inner_text() == STEPS[HOPS].title
    following.locator(".fv").first.wait_for()
    entry = """name => performance.getEntriesByType('resource').filter(
      (one) => new URL(one.name).searchParams.get('command') === name)[0]?.transferSize"""
    until(second, entry.replace("?.transferSize", "") + " !== undefined", STEPS[HOPS].command)
    assert second.evaluate(entry, STEPS[HOPS].command) == 0  # the first window has asked for it
    until(page, "!document.querySelector('[data-testid=notes]')")  # the slide alone
    second.keyboard.press("PageDown")
    until(page, f"location.hash === '#/lecture/romac/{HOPS + 1}'")
    until(second, PLACE, f"step {HOPS + 1} of {len(STEPS)}")
    page.keyboard.press("ArrowLeft")
    until(second, f"location.hash === '#/presenter/romac/{HOPS}'")
    second.reload()
    wait(second, "presenter", "seen")
    second.close(run_before_unload=True)
    page.get_by_test_id("line").get_by_text("The presenter's window is closed").wait_for()
    assert page.evaluate(SMALLEST) >= 24
    page.keyboard.press("ArrowRight")
    until(page, f"location.hash === '#/lecture/romac/{HOPS + 1}'")
    second = presenter(page)
    wait(second, "presenter", "seen")
    page.close()
    wait(second, "presenter", "silent")
    second.keyboard.press("ArrowRight")
    until(second, f"location.hash === '#/presenter/romac/{HOPS + 2}'")


def test_the_presenter_points_at_the_slide_and_shows_its_stage(visit: Callable[..., Any]) -> None:
    page = visit("#/lecture/paper/3", width=1024)
    wait(page, "lecture")
    page.keyboard.press("ArrowRight")
    page.get_by_test_id("stage").get_by_text("stage 2 of").wait_for()
    second = presenter(page)
    shown = wait(second, "now")
    second.get_by_test_id("at-stage").get_by_text("stage 2 of").wait_for()
    caption = page.locator(".stage .fv-scene-caption").inner_text()
    until(second, f"document.querySelector('.now .fv-scene-caption').innerText === {caption!r}")
    for each in (shown, wait(second, "next")):  # both are the slide, only smaller
        there = page.locator(".slide").evaluate(WHERE)
        assert each.evaluate(WHERE) == pytest.approx(there, abs=0.01)
    box = second.get_by_test_id("pointed").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1024 / 900, abs=0.02)
    second.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.6 * box["height"])
    dot = page.get_by_test_id("point")
    dot.wait_for()
    at = dot.bounding_box()
    assert at["x"] + at["width"] / 2 == pytest.approx(0.3 * 1024, abs=2)
    assert at["y"] + at["height"] / 2 == pytest.approx(0.6 * 900, abs=2)
    second.mouse.move(1, 1)
    dot.wait_for(state="detached")
    second.keyboard.press("ArrowRight")
    page.get_by_test_id("stage").get_by_text("stage 3 of").wait_for()
    second.evaluate("sessionStorage.setItem('foveate.began', Date.now() - 100_000)")
    second.reload()
    second.get_by_test_id("spent").get_by_text("01:4").wait_for()
    second.get_by_test_id("minutes").fill("2")
    second.get_by_text("ahead: 0").wait_for()
    second.get_by_test_id("reset").click()
    second.get_by_test_id("spent").get_by_text("00:0").wait_for()
    page.goto(page.url.partition("#")[0] + "#/demos")
    page.reload()
    wait(second, "presenter", "silent")
    second.keyboard.press("ArrowLeft")
    second.get_by_test_id("at-stage").get_by_text("stage 2 of").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_printed_lecture_has_one_slide_a_page(visit: Callable[..., Any], scheme: str) -> None:
    page = visit("#/lecture/paper/3", scheme=scheme)
    wait(page, "lecture")
    assert pages(page.pdf(prefer_css_page_size=True)) == [(960, 675)]  # of the window
    page.keyboard.press("s")
    until(page, "location.hash === '#/sheets/paper/3'")
    wait(page, "sheets")
    until(page, "document.title === 'Sheets · On paper'")
    assert pages(page.pdf(prefer_css_page_size=True)) == [PAGE] * 3
    upright, across = (
        re.sub(rb"\(D:[^)]*\)", b"", page.pdf(prefer_css_page_size=True, landscape=turned))
        for turned in (False, True)
    )
    assert upright == across  # whatever paper the printer has
    page.emulate_media(media="print")
    assert page.evaluate(CONTROLS) == []
    assert page.evaluate(CUT) == 0
    sheet = page.locator(".sheet").first
    assert sheet.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    assert sheet.evaluate("e => getComputedStyle(e).color") == "rgb(27, 29, 34)"
    page.emulate_media(media="null")
    page.evaluate("window.print = () => document.body.classList.add('printed')")
    page.get_by_test_id("pdf-2").click()
    until(page, "document.body.classList.contains('printed')")
    assert pages(page.pdf(prefer_css_page_size=True)) == [PAGE]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    until(page, "!document.querySelector('.away')")


def test_a_slide_is_saved_as_svg_and_png(visit: Callable[..., Any], tmp_path: Path) -> None:
    page = visit("#/sheets/paper/1", scheme="dark")
    wait(page, "sheets")
    for number, title in [(1, "Cross-attention"), (2, "Vanishing-gradients")]:
        path = downloaded(page.get_by_test_id(f"svg-{number}"), tmp_path)
        assert path.name == f"{number}-{title}.svg"
        root = ElementTree.parse(path).getroot()
        parts = [part for part in root.iter() if "text" in part.tag]
        texts = {"".join(part.itertext()).strip(): part for part in parts}
        heading = texts[title.replace("-", " ", number - 1)]
        assert float(heading.attrib["font-size"]) == 40
        assert not re.search("foveate|print", " ".join(texts))  # no command, no key
        assert root.attrib["width"] == "1320"  # the slide and a margin of 12
    picture = downloaded(page.get_by_test_id("png-3"), tmp_path).read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (3960, 2520)


def test_keys_are_shown_once(visit: Callable[..., Any]) -> None:
    page = visit("#/lecture/paper/1")
    wait(page, "lecture")
    assert page.get_by_test_id("keys").inner_text().split()[:2] == ["→", "next"]
    page.keyboard.press("ArrowRight")
    until(page, "document.title.startsWith('2 · Vanishing gradients · ')")
    assert page.get_by_test_id("keys").count() == 0
    page.reload()
    wait(page, "lecture")
    assert page.get_by_test_id("keys").count() == 0


@pytest.mark.parametrize("width", [1280, 1024])
def test_what_the_mouse_reads_covers_no_axis(visit: Callable[..., Any], width: int) -> None:
    page = visit("#/lecture/paper/2", width=width)
    slide = wait(page, "lecture")
    slide.locator(".fv-chart").hover()
    reading = slide.locator(".fv-reading").bounding_box()
    assert slide.locator(".fv-reading b").count() == 3
    texts = slide.locator(".fv-chart text").all()
    assert texts
    for text in texts:
        box = text.bounding_box()
        assert box is None or box["y"] + box["height"] <= reading["y"] + 2


def test_my_lecture_is_made_saved_and_opened_again(visit, tmp_path) -> None:
    page = visit(f"#/lecture/romac/{HOPS + 1}")
    wait(page, "lecture")
    page.keyboard.press("c")
    page.goto(page.url.partition("#")[0] + "#/edit")
    page.get_by_test_id("add").select_option(f"romac/{HOPS - 1}")
    page.get_by_test_id("add").select_option("/")
    page.get_by_test_id("title").fill("Retrieval")
    page.get_by_test_id("lecture-title").fill("An hour")
    page.get_by_test_id("up").click()
    page.get_by_test_id("throughout").fill("It's a dog.")
    page.keyboard.press("Enter")
    steps = page.get_by_test_id("steps")
    assert steps.locator("button").all_inner_texts()[1] == "2 · Retrieval"
    page.get_by_test_id("remove").click()
    page.get_by_test_id("restore").click()
    hour = downloaded(page.get_by_test_id("download"), tmp_path).rename(tmp_path / "hour.toml")
    lecture = read(LectureFile(name="hour", text=hour.read_text("utf-8")))
    assert lecture.title == "An hour"
    titles = [STEPS[HOPS].title, "Retrieval", STEPS[HOPS - 1].title]
    assert [step.title for step in lecture.steps] == titles
    for step in (lecture.steps[0], lecture.steps[2]):
        assert parsed(step.command)[2].text == "It's a dog."  # type: ignore[attr-defined]
    page.get_by_test_id("keep").click()
    page.get_by_test_id("line").get_by_text("an-hour.toml").wait_for()
    page.get_by_test_id("remove").click()
    page.get_by_test_id("open").set_input_files(hour)
    page.get_by_test_id("line").get_by_text("opened hour.toml").wait_for()
    assert steps.locator("button").count() == 3
    page.get_by_test_id("before").click()
    assert steps.locator("button").count() == 2
    page.get_by_test_id("before").click()
    assert steps.locator("button").count() == 3
    page.get_by_test_id("play").click()
    until(page, "location.hash === '#/lecture/mine/1'")
    wait(page, "lecture").locator(".fv").first.wait_for()
    page.goto(page.url.partition("#")[0] + "#/lecture")
    page.get_by_test_id("lecture-an-hour").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_lecture_is_one_file_without_requests(browser, address, tmp_path, scheme) -> None:
    page = browser.new_page()
    page.goto(address + "#/lecture")
    exported = downloaded(page.get_by_test_id("export-inouye"), tmp_path)
    said = page.get_by_test_id("exported").inner_text()
    steps = next(each.steps for each in lectures().lectures if each.name == "inouye")
    assert f"{len(steps)} steps" in said and " MB" in said
    context = browser.new_context(offline=True, color_scheme=scheme)
    file, wrong, requests = context.new_page(), [], []
    file.on("console", lambda message: wrong.append(message.text))
    file.on("pageerror", lambda error: wrong.append(str(error)))
    file.on("request", lambda request: requests.append(request.url))
    file.goto(exported.as_uri())
    for number, step in enumerate(steps, 1):
        until(file, "title => document.querySelector('.step h2').innerText === title", step.title)
        assert step.command in file.locator(".step code").inner_text()
        assert f"#{number}" == file.evaluate("location.hash")
        assert file.locator("main > .fv").count()
        missing = [name for name in step.runs if not lectures().runs[name].packaged]
        said = file.locator(".step").inner_text()
        assert all(f"runs/{name} was not found; this is runs/" in said for name in missing)
        file.keyboard.press("ArrowRight")
    file.get_by_label("contents").select_option("7")
    until(file, "title => document.querySelector('.step h2').innerText === title", steps[7].title)
    file.keyboard.press("PageUp")
    until(file, "location.hash === '#7'")
    assert not wrong and len(requests) == 1
    context.close()
    page.close()


@contextmanager
def slide(browser: Any, address: str, screen: tuple[int, int, int], scheme: Any) -> Iterator[Any]:
    """A page with a slide on a screen of a width, a height and a density of pixels."""
    view = {"width": screen[0], "height": screen[1]}
    context = browser.new_context(viewport=view, device_scale_factor=screen[2], color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    wait(page, "lecture")
    yield page
    context.close()


@pytest.mark.parametrize("screen", PHONES)
@pytest.mark.parametrize("step", [1, 2])
def test_long_texts_leave_room_for_the_drawing(browser, address, screen, step) -> None:
    width, height, _ = screen
    with slide(browser, f"{address}#/lecture/long/{step}", screen, None) as page:
        high, letters = page.evaluate(DRAWN)
        assert high > height / 4
        assert letters >= (10 if height > width else 7)
        page.get_by_test_id("step-on").scroll_into_view_if_needed()
        page.get_by_test_id("step-on").click()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_map_is_whole_and_legible(browser, address, screen, scheme) -> None:
    width, height, ratio = screen
    with slide(browser, f"{address}#/lecture/paper/1", screen, scheme) as page:
        cells = page.locator(".stage .fv-cells[tabindex]")
        cells.wait_for()
        box, stage = cells.bounding_box(), page.locator(".stage").bounding_box()
        assert box["height"] > height / 4
        assert box["y"] + box["height"] <= stage["y"] + stage["height"] + 1
        assert page.evaluate(SMALLEST) >= (12 * ratio if screen in PHONES else 24)
        for control in ("step-back", "place", "step-on"):
            at = page.get_by_test_id(control).bounding_box()
            assert at["x"] >= 0 and at["x"] + at["width"] <= width
            assert at["y"] + at["height"] <= height
        canvas = cells.locator("canvas").bounding_box()  # the last cell is where it is pointed at
        page.mouse.move(canvas["x"] + canvas["width"] - 4, canvas["y"] + canvas["height"] - 4)
        until(page, "document.querySelector('.fv-reading').innerText.includes('“</s>” ← “</s>”')")
