"""The pages of history name code, pictures and configs that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "history").glob("*.md"))


def names_of(module: Path) -> set[str]:
    """What a module defines at the top, and the methods of its classes as Class.method."""
    result = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            result.add(node.name)
        if isinstance(node, ast.ClassDef):
            result |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return result


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", page.read_text("utf-8"))
    assert named, "a page says where its code lives: `models/….py::Class`"
    for path, name in named:
        places = [ROOT / "src" / "foveate" / path, ROOT / path]
        file = next((place for place in places if place.is_file()), None)
        assert file is not None, path
        assert not name or name in names_of(file), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_configs_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    for link in links:
        assert (page.parent / link).is_file(), link
    for config in re.findall(r"configs/[\w/.-]+\.toml", text):
        assert (ROOT / config).is_file(), config


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_pictures_that_exist(page: Path) -> None:
    shown = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8"))
    assert shown, "a page shows its idea: python tools/pictures.py draws it"
    for messages, link in shown:
        assert len(messages) > 20, f"{link}: say what is seen, for those who do not see it"
        assert (page.parent / link).is_file(), link


def names_drawn() -> set[str]:
    """The keys of every ``DRAWN`` in tools/history: what the command can draw."""
    result: set[str] = set()
    for file in (ROOT / "tools" / "history").glob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            named = isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "DRAWN"
            if named and isinstance(node.value, ast.Dict):
                result |= {k.value for k in node.value.keys if isinstance(k, ast.Constant)}
    return result


def test_every_picture_is_on_a_page_small_and_drawn_by_code() -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    drawn = names_drawn()
    for picture in sorted((ROOT / "docs" / "history" / "pictures").iterdir()):
        assert picture.stem in drawn, f"{picture.name}: no code draws it"
        assert f"pictures/{picture.name}" in pages, f"{picture.name} is on no page"
        assert picture.stat().st_size < 150_000, picture.name
        assert "<text" in picture.read_text("utf-8"), f"{picture.name}: text as text"
