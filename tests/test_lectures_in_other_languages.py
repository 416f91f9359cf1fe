"""Lectures and drawings in other languages: their words are those of the English ones of today."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")

from foveate.studio.lectures import Lecture, lectures

ROOT = Path(__file__).parent.parent
LANGUAGES = ROOT / "web" / "src" / "studio" / "languages"
OTHERS = ("studio", "drawings")  # files of a language that are no lecture
TOLD = [path for path in sorted(LANGUAGES.glob("*/*.json")) if path.stem not in OTHERS]
SOURCES = [
    *(ROOT / "src" / "foveate").rglob("*.py"),
    *(ROOT / "src" / "foveate").rglob("*.toml"),
    *(ROOT / "web" / "src").glob("*/*.ts"),
]


def unbroken(text: str) -> str:
    return " ".join(text.split())


def texts(lecture: Lecture) -> tuple[set[str], set[str]]:
    """Return the texts that a translation needs, and those that it may have: equations."""
    parts = [lecture.title, lecture.after, lecture.about]
    for step in lecture.steps:
        parts += [step.title, step.caption, step.notes, step.slip]
    equations = {unbroken(step.equation) for step in lecture.steps}
    return {unbroken(text) for text in parts if text}, equations


@pytest.mark.parametrize("path", TOLD, ids=lambda path: f"{path.stem}.{path.parent.name}")
def test_a_translation_has_the_texts_of_the_lecture_of_today(path: Path) -> None:
    words = json.loads(path.read_text("utf-8"))
    needed, equations = texts(next(each for each in lectures().lectures if each.name == path.stem))
    assert not needed - words.keys(), f"to be translated in {path}"
    assert not words.keys() - needed - equations, f"no longer in {path.stem}.toml: take out"
    code = re.compile(r"`[^`]+`")
    for english, other in words.items():
        assert code.findall(english) == code.findall(other), english
        assert english in equations or english.count("_") == other.count("_"), english


@pytest.mark.parametrize("path", sorted(LANGUAGES.glob("*/drawings.json")), ids=str)
def test_words_of_drawings_are_in_the_sources(path: Path) -> None:
    source = "\n".join(file.read_text("utf-8") for file in SOURCES).casefold()
    used = json.loads(path.read_text("utf-8"))
    words = {word: text for text in used for word in re.findall(r"[^\W\d_]{4,}", text.casefold())}
    assert not {word: text for word, text in words.items() if word not in source}
