"""Published pages in Chromium, from a disk: answers are those of Python, nothing is requested."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foveate.engine.packed
from foveate.config import PACKAGED
from foveate.studio.publish import PublishedFile, assemble, asset, publish

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "packed" / "v1"
SOURCES = ["the dog runs", "a cat sleeps", "the man reads", "a girl"]
ASK = """async ([run, question]) => {
  const events = [];
  for await (const event of foveate.events(run, question, new AbortController().signal))
    events.push(event);
  return events;
}"""
Visit = Callable[..., Any]
BUILT = ROOT / "src" / "foveate" / "look" / "draw" / "publish.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="no zig: make wheels"),
    pytest.mark.skipif(not BUILT.is_file(), reason="make web builds the page"),
]


def stored(*names: str) -> list[PublishedFile]:
    return [PublishedFile(STORED / f"{name}.safetensors", name, SOURCES) for name in names]


def loaded(name: str) -> Any:
    """A packed model in Python."""
    return foveate.engine.packed.load(STORED / f"{name}.safetensors", threads=1)


def address(folder: Path, files: list[PublishedFile], single: bool) -> str:
    publish(files, folder / "page.html" if single else folder, "models", single)
    return (folder / ("page.html" if single else "index.html")).as_uri()


def asked(page: Any, run: str, **question: Any) -> dict[str, Any]:
    *_, done = page.evaluate(ASK, [run, question])
    return dict(done)


@pytest.mark.parametrize("single", [True, False])
def test_a_page_answers_as_python_does(open_url: Visit, tmp_path: Path, single: bool) -> None:
    """A model of each task; all families and maps are in tests/test_web_engine.py."""
    names = ["transformer_pre", "classifier", "decoder_only"]
    page = open_url(address(tmp_path, stored(*names), single))
    translator, classifier, writer = map(loaded, names)
    translated = translator.translate(SOURCES, beam_size=4, length_penalty=0.6)
    for line, right, labels in zip(SOURCES, translated, classifier.classify(SOURCES), strict=True):
        done = asked(page, "transformer_pre", text=line, search={"beamSize": 4})
        assert done["hypotheses"][0]["text"] == str(right)
        own = {odds["label"]: odds["p"] for odds in asked(page, "classifier", text=line)["labels"]}
        assert own == pytest.approx(dict(labels.probabilities), abs=1e-5)
    [continuation] = writer.generate(["the dog"], 9, seed=3, temperature=0.8)
    search = {"seed": 3, "temperature": 0.8, "maxExtra": 9}
    own = asked(page, "decoder_only", text="the dog", search=search)
    assert own["hypotheses"][0]["text"] == continuation.text


def test_a_word_is_forced_a_head_silenced_and_a_text_cut(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True))
    answer = page.locator("[data-testid=transformer_pre]")
    before = page.locator(".output").inner_text()
    page.locator(".word").nth(1).click()
    page.locator("section[aria-label^=alternatives] li button").first.click()
    page.get_by_text("undo what was forced").wait_for()
    assert page.locator(".word.forced").count() == 1
    assert page.locator(".output").inner_text() != before
    page.get_by_role("button", name="Silence all heads of decoder cross-attention").click()
    page.get_by_text("with all heads:").wait_for()
    map_below = answer.locator("section[aria-label=attention] [data-kind=attention]")
    map_below.wait_for()
    assert "Silenced" in map_below.inner_text()
    page.get_by_label("Source").fill("a dog")
    page.get_by_text("of the text before").wait_for()  # until it is translated, too
    page.get_by_label("Source").press("Enter")
    [whole] = loaded("transformer_pre").translate(["a dog"], beam_size=1)
    page.get_by_text(f"with all heads: {whole}").wait_for()
    page.get_by_label("Source").fill("a dog " * 200)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.get_by_text("The text is too long for this model").wait_for()


def test_a_head_is_looked_at_step_by_step(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True))
    button = page.get_by_role("button", name="Step by step")
    button.click()
    walk = page.get_by_test_id("walk")
    walk.locator("[data-kind=scene]").wait_for()
    above, below = button.bounding_box(), walk.bounding_box()
    assert below["y"] - above["y"] - above["height"] < 40  # right below its button
    assert "head 0" in walk.inner_text() and "Computed by the engine" in walk.inner_text()
    cells = page.locator("section[aria-label=attention] .fv-cells[role=application]")
    cells.focus()
    cells.press(".")  # another head, whose stages are shown then
    walk.locator(".fv-title", has_text="head 1").wait_for()
    look = {"view": "scene", "block": "encoder.self_attention", "layer": 0, "head": 1}
    asked_for = "look => foveate.look('transformer_pre', look)"
    drawing = page.evaluate(asked_for, look | {"text": "a dog"})
    assert drawing["panels"][0]["rows"] == ["a", "dog", "</s>"]


def test_a_narrow_window_has_the_sums_as_a_table(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True), width=360)
    page.get_by_role("button", name="Step by step").click()
    walk = page.get_by_test_id("walk")
    rows = walk.locator("tbody tr")
    rows.first.wait_for()
    assert rows.locator("th").all_inner_texts() == ["the", "dog", "runs", "</s>"]
    weights = [float(text) for text in rows.locator("td:last-child").all_inner_texts()]
    assert sum(weights) == pytest.approx(1, abs=0.03)
    assert not walk.locator("svg").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_yellow_is_a_weight_and_nothing_else(open_url: Visit, tmp_path: Path, scheme: str) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True), scheme=scheme)
    page.locator("[data-status=done]").wait_for()
    style = "(e, name) => getComputedStyle(e).getPropertyValue(name)"
    inks = [
        page.locator(place).first.evaluate(style, name)
        for place, name in (
            (".fv-links path", "stroke"), (".fv-line .fv-chosen", "box-shadow"),
            (".fv-cells .fv-band", "stroke"), (".word.chosen", "border-top-color"),
        )
    ]  # fmt: skip
    for ink in inks:
        red, _, blue = re.search(r"rgb\((\d+), (\d+), (\d+)\)", ink).groups()
        assert int(blue) > int(red), ink


def test_a_saved_picture_is_not_cut_where_words_go_beyond_it(open_url, tmp_path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True))
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    saved = download.value.path().read_text("utf-8")
    inner = re.findall(r"<svg [^>]*>", saved)[1:]
    assert inner and all('overflow="visible"' in each for each in inner)


def test_too_long_a_text_is_refused_and_the_next_one_answered(open_url, tmp_path) -> None:
    page = open_url(address(tmp_path, stored("decoder_only"), single=True))
    for count, answer in (
        (20_000, page.get_by_text("120,000 characters; this page reads 100,000 at once")),
        (1100, page.get_by_text(" tokens; this page reads 2,000 at once")),
        (1, page.locator("[data-status=done]")),
    ):
        page.locator("textarea").fill("a dog " * count)
        page.locator("button.primary").click()
        answer.wait_for()


def test_without_simd_the_scalar_engine_answers(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.add_init_script("WebAssembly.validate = () => false")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url.rpartition("/")[2]))
    page.goto(address(tmp_path, stored("transformer_post"), single=False))
    page.locator("[data-status=done]").wait_for()
    [own] = asked(page, "transformer_post", text=SOURCES[1], search={"beamSize": 1})["hypotheses"]
    assert own["text"] == str(loaded("transformer_post").translate(SOURCES[1:2], beam_size=1)[0])
    assert "engine-scalar.js" in requests and "engine-wasm.js" not in requests
    assert "WebAssembly without SIMD" in page.inner_text("footer")
    page.close()


def test_a_file_that_is_missing_is_named(browser: Any, tmp_path: Path) -> None:
    place = address(tmp_path, stored("classifier"), single=False)
    (tmp_path / "files" / "model-0.js").unlink()
    page = browser.new_page()
    page.goto(place)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "files/model-0.js is missing beside this page"
    page.close()


@pytest.mark.parametrize(("width", "least"), [(360, 12), (1024, 14), (1280, 14), (1920, 14)])
def test_the_first_screen_shows_where_a_word_looks(open_url, tmp_path, width, least) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True), width=width)
    page.locator("[data-status=done]").wait_for()
    seen = page.locator(".fv-sentences").bounding_box()
    assert seen["y"] + seen["height"] < 800
    small = page.locator("main").evaluate(
        """(main, least) => [...main.querySelectorAll('*')]
        .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.data?.trim()))
        .filter((e) => parseFloat(getComputedStyle(e).fontSize) < least)
        .map((e) => e.textContent)""",
        least,
    )
    assert small == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (1920, "light")])
def test_axe_finds_nothing(open_url: Visit, axe: Any, tmp_path: Path, width, scheme) -> None:
    files = stored("transformer_pre", "guided", "classifier")
    page = open_url(address(tmp_path, files, single=False), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for tab in ("Translate", "Classify"):
        page.get_by_role("button", name=tab).first.click()
        page.locator("[data-status=done]").first.wait_for()
        page.wait_for_timeout(300)
        assert axe(page) == [], tab


def test_the_policy_names_the_script_and_nothing_else() -> None:
    page = assemble({"title": "</script><b>"}, {"model-0": "AAAA"})
    assert "<b>" not in page.replace(asset("publish.js"), "")
    assert "http://" not in page.replace(asset("publish.js"), "")
    assert "script-src 'sha256-" in page and "'self'" not in page and "unsafe-inline" not in page


def test_a_run_that_ships_is_published_with_examples(call: Any, tmp_path: Path) -> None:
    done = call("publish", PACKAGED / "lm", "--out", tmp_path / "site", "--title", "letters")
    assert done.code == 0, done.err
    files = sorted(path.name for path in (tmp_path / "site" / "files").iterdir())
    assert files == ["engine-scalar.js", "engine-wasm.js", "model-0.js"]
    assert '"examples": ["' in (tmp_path / "site" / "index.html").read_text("utf-8")
