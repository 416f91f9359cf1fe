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
    found = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return found


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
