"""Romac's lecture in French: its slides, the words of the studio around it, and what is chosen."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import require_page, served, until, wait

from foveate.config import PACKAGED
from foveate.studio.lectures import lectures

pytestmark = pytest.mark.slow
WORDS = Path(__file__).parents[2] / "web" / "src" / "studio" / "languages" / "fr" / "romac.json"
FRENCH: dict[str, str] = json.loads(WORDS.read_text("utf-8"))
TITLE = "title => document.querySelector('h1')?.innerText === title"
LANGUAGE = "code => document.documentElement.lang === code"
SEEN = "() => document.querySelector('.stage').textContent"
FIRST = [  # of each slide: its English title, and a word of its drawing
    ("Sequential data", "valeur suivante"),
    ("A forecast", "prévision"),
    ("The recurrent cell", "étape"),
    ("The output at each step", "étape"),
    ("Stacked layers", "étape"),
    ("A head for regression", "Sans sigmoïde"),
    ("Feeding predictions back in", "erreur quadratique"),
]


TEXTS = """() => [...document.querySelectorAll('.stage :is(text, p, th, td, figcaption, span)')]
  .map((each) => each.textContent.trim())"""
ENGLISH = re.compile(r"\b(is|are|every|not|from|with|recurrent|masked|pass|word|finished|above)\b")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    require_page()
    with served(PACKAGED) as result:
        yield result


def test_the_first_slides_are_in_french(visit: Callable[..., Any]) -> None:
    page = visit("#/lecture/romac.fr/1")
    for number, (english, drawn) in enumerate(FIRST, 1):
        until(page, TITLE, FRENCH[english])
        wait(page, "lecture")
        assert drawn in page.evaluate(SEEN).replace("\u00a0", " ")
        if number < len(FIRST):
            while page.evaluate("location.hash") == f"#/lecture/romac.fr/{number}":
                page.keyboard.press("ArrowRight")
    assert page.evaluate(LANGUAGE, "fr")
    assert page.locator("h1").get_attribute("lang") == "fr"
    page.keyboard.press("n")
    notes = page.get_by_label("notes de l'orateur")
    assert notes.locator("[lang=fr]").inner_text().startswith("À l'inférence")
    page.keyboard.press("?")
    assert page.get_by_test_id("help-dialog").locator("h2").first.inner_text() == "Touches"
    page.keyboard.press("Escape")
    page.keyboard.press("p")  # out of the lecture, the language is that of the browser
    until(page, LANGUAGE, "en")


def test_no_drawing_of_a_slide_is_in_english(visit: Callable[..., Any]) -> None:
    """Words of the models' sentences, which are English, stand alone."""
    page = visit("#/lecture/romac.fr/1")
    [lecture] = (each for each in lectures().lectures if each.name == "romac")
    for number, step in enumerate(lecture.steps, 1):
        page.evaluate(f"location.hash = '#/lecture/romac.fr/{number}'")
        until(page, TITLE, FRENCH[step.title])
        wait(page, "lecture")
        texts = [text for text in page.evaluate(TEXTS) if " " in text or text.endswith(":")]
        assert not list(filter(ENGLISH.search, texts)), number


def test_the_language_is_that_of_the_browser_or_chosen_by_hand(browser: Any, address: str) -> None:
    context = browser.new_context(locale="fr-FR")
    page = context.new_page()
    page.goto(f"{address}#/lecture")
    page.get_by_test_id("lecture-romac").wait_for()
    assert page.locator("h1").inner_text() == "Cours"
    assert page.get_by_test_id("copy-romac").inner_text() == "Modifier une copie"
    page.get_by_test_id("lecture-romac").click()
    until(page, TITLE, "Sequential data")
    assert page.locator("h1").get_attribute("lang") == "en"
    page.get_by_test_id("place").click()
    page.get_by_test_id("language").select_option("en")
    until(page, LANGUAGE, "en")
    page.reload()
    page.get_by_test_id("lecture-romac.fr").click()
    until(page, TITLE, FRENCH["Sequential data"])
    assert page.evaluate(LANGUAGE, "en")
    context.close()


def test_a_step_that_has_changed_is_in_english_and_says_so(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()

    def changed(route: Any) -> None:
        answer = route.fetch()
        tree = answer.json()
        for lecture in tree["lectures"]:
            lecture["steps"][1] |= {"title": "Another title", "notes": "Other words."}
        route.fulfill(response=answer, json=tree)

    page.route("**/api/v1/lectures", changed)
    page.goto(f"{address}#/lecture/romac.fr/2")
    until(page, TITLE, "Another title")
    assert "elle est en anglais" in page.get_by_test_id("line").inner_text()
    page.keyboard.press("ArrowLeft")
    until(page, TITLE, FRENCH["Sequential data"])
    assert not page.get_by_test_id("line").count()
    context.close()
