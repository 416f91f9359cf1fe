"""A published folder in the studio: every page says what was opened, whole at every width."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import require_page, served, wait

from foveate.cli.options import as_run
from piece_models import TEXT, published

pytest.importorskip("transformers")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = ("ask", "inspect", "train", "evaluate", "model")
WIDTHS = (360, 1280, 1920)
ASKED = f"run=opus-mt-en-fr&text={TEXT[0].replace(' ', '%20')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    require_page()
    place = tmp_path_factory.mktemp("models") / "opus-mt-en-fr"
    place.mkdir()
    return published(place)


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with served(as_run(folder)) as result:
            yield result


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_says_what_was_opened_and_fits(visit, folder: Path, name, width) -> None:
    page = visit(f"#/{name}?run=opus-mt-en-fr", width)
    said = page.get_by_test_id("opened").inner_text()
    assert said == f"Marian, English → French, opened from {folder.resolve()}"
    page.wait_for_load_state("networkidle")
    assert "/opened/" not in page.locator("body").inner_text()  # where its run is cached
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_a_folder_lacks_comes_with_the_command_for_that_folder(visit, folder: Path) -> None:
    for name, card, verb in (("train", "no-log", "import"), ("evaluate", "no-data", "evaluate")):
        page = visit(f"#/{name}?run=opus-mt-en-fr")
        command = page.get_by_test_id(card).get_by_test_id("command").inner_text()
        assert command.startswith(f"foveate {verb} {folder.resolve()} ")
        assert "translation" in page.get_by_test_id("facts").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_model_is_drawn_on_a_sentence_that_is_typed(visit: Callable[..., Any], width) -> None:
    page = visit("#/model?run=opus-mt-en-fr", width)
    card = page.get_by_test_id("no-text")
    card.get_by_test_id("source").fill(TEXT[0])
    assert card.is_visible()
    card.get_by_test_id("ask").click()
    wait(page, "view-scene")
    picture = page.locator(".fv-scene-picture")
    frame, words = picture.bounding_box(), picture.locator(".fv-word:not(.fv-off)")
    shown = [word for word in words.all() if within(word.bounding_box(), frame)]
    texts = [word.text_content() for word in shown]
    assert not [text for text in texts if "…" in text]
    assert {"a", "</s>", "<pad>"} <= {*texts}  # of both parts; Marian begins with padding
    heights = page.evaluate(
        "[...document.querySelectorAll('.fv-scene-picture .fv-word:not(.fv-off) text')]"
        ".map((text) => text.getBoundingClientRect().height)"
    )
    assert min(heights) > 9
    assert "The source is read at once" in page.locator(".fv-scene-caption").inner_text()
    window = picture.locator("xpath=..")
    assert window.evaluate("(view) => view.scrollWidth <= view.clientWidth + 8")


def within(box: dict[str, float], frame: dict[str, float]) -> bool:
    """Return whether the middle of a box is in a frame."""
    x, y = (box[a] + box[b] / 2 - frame[a] for a, b in (("x", "width"), ("y", "height")))
    return 0 <= x <= frame["width"] and 0 <= y <= frame["height"]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_token_of_a_beam_has_its_probability(visit: Callable[..., Any], width) -> None:
    page = visit(f"#/ask?{ASKED}", width)
    wait(page, "answer")
    beam = page.get_by_test_id("beam")
    texts = beam.locator(".fv-node").evaluate_all(
        "(nodes) => nodes.map((node) => [...node.querySelectorAll('text')]"
        ".map((text) => text.textContent).join(' '))"
    )
    assert len(texts) > 10
    assert not [text for text in texts if text.split()[-1] != "≈0" and "." not in text.split()[-1]]
    box = beam.locator(".fv-lanes")
    more = box.evaluate("(view) => view.scrollWidth > view.clientWidth + 8")
    assert more == ("scroll for all" in beam.inner_text())
    assert more == ("fv-more" in box.get_attribute("class").split())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_key_of_greedy_search_has_the_colour_of_its_boxes(visit, scheme: str) -> None:
    page = visit(f"#/ask?{ASKED}", 1280, scheme)
    wait(page, "answer")
    inks = (
        page.get_by_test_id("beam")
        .locator(".fv-lanes")
        .evaluate(
            """(view) => {
          const svg = view.querySelector("svg"), made = (tag) =>
            document.createElementNS("http://www.w3.org/2000/svg", tag);
          const node = made("g"), rect = made("rect"), path = made("path");
          node.setAttribute("class", "fv-node fv-greedy");
          path.setAttribute("class", "fv-edge-line fv-greedy");
          node.append(rect), svg.append(node, path);
          const mark = view.parentElement.appendChild(document.createElement("mark"));
          const [a, b] = [rect, path].map((each) => getComputedStyle(each).stroke);
          return [a, b, getComputedStyle(mark).color];
        }"""
        )
    )
    assert len({*inks}) == 1, inks


def test_merged_tokens_are_counted_beside_the_map(visit: Callable[..., Any]) -> None:
    page = visit(f"#/ask?{ASKED}")
    wait(page, "answer")
    said = wait(page, "view-attention").inner_text()
    [(many, few)] = re.findall(r"tokens are merged into words: (\d+) into (\d+)", said)
    assert int(many) > int(few) == len(TEXT[0].split()) + 1  # and </s>
