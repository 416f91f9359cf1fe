"""Imports point one way, and nothing heavy or undeclared slips in."""

import ast
import sys
from pathlib import Path

import pytest

import house
import sizes

SOURCE = Path(__file__).parent.parent / "src" / "foveate"

# From the bottom up; a module may import what stands on a lower line, or its own package.
LAYERS = [
    {"errors", "files"}, {"system"}, {"config"}, {"nn", "data"}, {"models"},
    {"decode", "look"}, {"tasks"}, {"look.draw"}, {"train"}, {"kinds"}, {"engine"}, {"run"},
    {"align", "documents"}, {"look.views"}, {"exchange", "measure"}, {"serve"},
    {"studio"}, {"cli"}, {"__init__", "__main__"},
]  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# A reason for each import that would otherwise be against the direction.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("cli", "__init__"): "says the version",
    ("studio", "__init__"): "says the version",
    ("exchange", "__init__"): "says the version",
    ("look", "look.draw"): "names it",
}
# Imports to a floor above in the picture of the house, and why.
ABOVE = {
    (".", "cli"): "`python -m foveate`",
    (".", "run"): "the public surface, at first use",
    (".", "look"): "the public surface, at first use",
    ("engine", "look"): "an answer holds the record of its attention, and can be drawn",
    ("run", "look"): "an answer holds the record of its attention, and can be drawn",
}
# What stands on top of the layers and may use its siblings.
FREE_SIBLINGS = {"run"}

BASICS = {"torch", "numpy", "pydantic"}
NAMED = {  # other packages, and the only places that may import them
    "safetensors": {"train", "nn", "run", "models", "exchange", "engine", "pack"},
    "filelock": {"files", "train"},
    "tokenizers": {"data", "exchange"},
    "tomlkit": {"config"},
    "PIL": {"data"},
    "sacrebleu": {"tasks", "run"},
    "typer": {"cli"},
    "rapidfuzz": {"tasks", "documents"},
    "rich": {"cli", "data", "train", "look.draw", "run"},
    "matplotlib": {"look.draw"},
    "anywidget": {"look.draw"},
    "traitlets": {"look.draw"},
    "tensorboard": {"train"},
    "selectolax": {"documents"},
    "docx": {"data", "documents"},  # for types alone: tests read and write with it
    "lxml": {"data", "documents"},
    "pypdf": {"documents"},
    "fastapi": {"serve", "studio"},
    "starlette": {"serve", "studio"},
    "uvicorn": {"serve", "studio"},
    "prometheus_client": {"serve"},
    "py3langid": {"data"},
    "ctranslate2": {"exchange"},
    "onnx": {"exchange"},
    "onnxruntime": {"exchange"},
    "sentencepiece": {"exchange"},
    "transformers": {"exchange"},
    "ray": {"cli"},
    "pyarrow": {"cli"},
    "jaxtyping": {"nn", "models", "decode", "engine", "tasks"},
}

MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """``nn`` for nn/scores.py, ``look.draw`` for look/draw/maps.py, ``config`` for config.py."""
    return part_of_name(".".join(("foveate", *path.relative_to(SOURCE).with_suffix("").parts)))


def part_of_name(name: str) -> str:
    """The part that the dotted name of a module or of something in it belongs to."""
    names = name.split(".")[1:]
    longest = next((n for n in (2, 1) if ".".join(names[:n]) in LEVEL), 0)
    return ".".join(names[:longest]) or "__init__"


def imports(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of every import of a module, type-checking ones included."""
    result = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            result += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name, not dots"
            if node.module == "foveate":
                result += [(node.lineno, f"foveate.{alias.name}") for alias in node.names]
            else:
                result.append((node.lineno, node.module or ""))
    return result


def wrong_direction(part: str, imported: str) -> str | None:
    """Why ``part`` may not import ``foveate.imported``, or nothing."""
    other = part_of_name(imported)
    if part == other or (part, other) in EXCEPTIONS or part in LAYERS[-1]:
        return None
    if LEVEL[other] > LEVEL[part]:
        return f"{part} stands below {other}"
    if LEVEL[other] == LEVEL[part] and part not in FREE_SIBLINGS:
        return f"{part} and {other} are siblings"
    if part == "train" and other == "tasks" and imported not in ("foveate.tasks.base",):
        return "train knows tasks.base only"
    if part == "train" and other == "look.draw":
        return "train does not draw"
    if part in ("decode", "look", "look.draw") and other == "models":
        return f"{part} never imports models"
    return None


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_direction(path: Path) -> None:
    part = part_of(path)
    assert part != "__init__" or path.stem == part, f"give {path} its place in LAYERS"
    wrong = [
        f"{path}:{line}: imports {name}: {why}"
        for line, name in imports(path)
        if name.split(".")[0] == "foveate" and (why := wrong_direction(part, name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_other_packages_stay_in_their_places(path: Path) -> None:
    part = part_of(path)
    for line, name in imports(path):
        package = name.split(".")[0]
        if package in sys.stdlib_module_names or package in BASICS or package == "foveate":
            continue
        assert package in NAMED, f"{path}:{line}: {package} is no dependency of foveate"
        assert part in NAMED[package], f"{path}:{line}: {package} is not imported in {part}"


def test_the_direction_test_can_fail() -> None:
    assert wrong_direction("nn", "foveate.models.encoder_decoder")
    assert wrong_direction("data", "foveate.nn.context")
    assert wrong_direction("train", "foveate.tasks.translation")
    assert wrong_direction("train", "foveate.look.draw.maps")
    assert wrong_direction("look", "foveate.models.encoder_decoder")
    assert wrong_direction("models", "foveate.nn.context") is None
    assert wrong_direction("train", "foveate.tasks.base") is None


def test_the_picture_of_the_house_shows_every_package_on_its_floor() -> None:
    floors = [set(names) for names in house.FLOORS.values()]
    assert set().union(*floors) == sizes.packages(sizes.texts_of(SOURCE)).keys()
    for path in MODULES:
        part = path.relative_to(SOURCE).parts[0] if path.parent != SOURCE else "."
        level = next(level for level, floor in enumerate(floors) if part in floor)
        for line, name in imports(path):
            other = part_of_name(name).split(".")[0]
            above = set().union(*floors[:level])
            allowed = (part, other) in ABOVE
            assert other not in above or allowed, f"{path}:{line}: {other} is a floor above {part}"
    picture = house.PICTURE.read_text("utf-8")
    assert all(name in picture for floor in floors for name in floor - {"."})


def test_contributing_prints_the_direction() -> None:
    text = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for layer in LAYERS[:-1]:
        assert all(name in text for name in layer), layer


# Modules that import each other, lazily or for types, and why they still do.
CIRCLES: dict[frozenset[str], str] = {}


def test_no_circles() -> None:
    assert sizes.circles(sizes.imported_modules(sizes.texts_of(SOURCE))) == set(CIRCLES)
    assert sizes.circles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == {frozenset("ab")}
