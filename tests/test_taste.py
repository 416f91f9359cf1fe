"""Limits of size: a cap on the lines of all modules, functions that fit a screen, flat code."""

import ast
import re
from pathlib import Path

import pytest

import sizes

SOURCE = Path(__file__).parent.parent / "src" / "foveate"
FUNCTION, NESTING, ANY, CASTS = 60, 4, 158, 68

# Lines of src/foveate. The cap only falls: a change that needs more takes something out first.
LINES = 63_543
SPINE = 2_974  # of the files that docs/spine.md walks through; the bar of the house is 3,300

MODULES = sorted(SOURCE.rglob("*.py"))
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How deep blocks stand in blocks; ``elif`` is no deeper than its ``if``."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        elif_ = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        inner = isinstance(child, BLOCKS) and not elif_
        deepest = max(deepest, nesting(child, depth + inner))
    return deepest


def faults(text: str, name: str) -> list[str]:
    result = []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        place = f"{name}::{function.name}"
        length = function.end_lineno - function.lineno + 1
        if length > FUNCTION:
            result.append(f"{place}: {length} lines, at most {FUNCTION}")
        if nesting(function) > NESTING:
            result.append(f"{place}: {nesting(function)} blocks deep, at most {NESTING}")
    return result


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_taste_and_a_docstring_that_says_what_lives_here(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = faults(text, str(path.relative_to(SOURCE)))
    assert not result, "\n".join(result)
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{path} has no docstring"


def test_the_taste_test_can_fail() -> None:
    blocks = (f"{'    ' * i}if x{i}:\n" for i in range(1, 6))
    deep = "def f():\n" + "".join(blocks) + "    " * 6 + "pass"
    chain = "def f():\n    if a: pass\n" + "    elif a: pass\n" * 9
    for bad in (deep, "def f():\n" + "    pass\n" * 60):
        assert faults(bad, "x"), bad
    assert not faults(chain, "x")


def test_the_spine_names_what_is_there_and_stays_within_its_cap() -> None:
    page = (SOURCE.parent.parent / "docs" / "spine.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### \d+\. `(.+?)`.*?\n(.*?)(?=^##|\Z)", page, re.S | re.M)
    assert len(sections) == 12
    texts = {name: (SOURCE / name).read_text(encoding="utf-8") for name, _ in sections}
    assert sum(text.count("\n") for text in texts.values()) <= SPINE
    for name, section in sections:
        for word in re.findall(r"`([A-Z_]\w+(?:\.\w+)?|[a-z]+_\w+)(?:\(.*?\))?`", section):
            parts = word.split(".")
            known = "\n".join([texts[name], *(texts.values() if len(parts) == 1 else ())])
            assert all(part in known for part in parts), f"docs/spine.md: {word} in {name}"


def test_the_source_stays_within_its_caps() -> None:
    texts = sizes.texts_of(SOURCE)
    assert sum(sizes.packages(texts).values()) <= LINES
    assert sizes.uses_of_any(texts.values()) <= ANY
    assert sizes.casts_and_ignores(texts.values()) <= CASTS


def test_sizes_are_counted() -> None:
    text = 'from typing import Any\n"""A docstring."""\n# a comment\n\nx: Any = cast(Any, 1)\n'
    assert sizes.code_lines(text) == 2
    assert (sizes.uses_of_any([text]), sizes.casts_and_ignores([text])) == (2, 1)
    texts = {Path("a.py"): "x\n", Path("nn/a.py"): "x\n" * 2, Path("nn/b/c.py"): "x\n"}
    assert sizes.packages(texts) == {".": 1, "nn": 3}
    assert sizes.groups("A = 1\ndef f(): return A\ndef g(): return f()\nclass B: pass\nC = 2") == 2


# Files whose lines are no data of users, and why `splitlines` is right there.
OWN_LINES = {
    "measure/laws/check.py": "a drawing of ours",
    "measure/laws/trial.py": "a matrix as printed",
    "look/draw/drawings.py": "a caption of ours",
    "look/draw/sheets.py": "drawings of ours",
    "serve/keys.py": "bytes, which break at LF and CR only, of JSON that escapes these",
    "train/journal.py": "bytes of JSON lines, which escape CR",
    "kinds.py": "source text",
    "train/distributed.py": "an error message",
    "cli/folders.py": "an error message",
}


def test_data_are_split_at_line_feeds_alone() -> None:
    """`str.splitlines` also breaks at U+0085, U+2028, form feeds, …: use `foveate.files`."""
    calls = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    }
    assert calls == set(OWN_LINES)


def test_no_test_waits_for_ever_for_a_program() -> None:
    """A bare `subprocess.Popen` in a ``with`` does where an assertion fails; `running` does not."""
    tests = Path(__file__).parent
    bare = "with " + "subprocess.Popen("
    found = {p.name for p in tests.rglob("*.py") if bare in p.read_text(encoding="utf-8")}
    assert found == {"small_runs.py"}


def test_every_request_of_a_test_waits_longer_than_a_busy_machine_needs() -> None:
    """Without a timeout httpx waits five seconds, which a server on a busy machine may need."""
    verbs = re.compile(r"httpx\.(?:get|post|put|delete|request|stream|Client)$")
    bare = {
        f"{path.name}:{node.lineno}"
        for path in Path(__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and verbs.match(ast.unparse(node.func))
        if not {"timeout", "transport"} & {keyword.arg for keyword in node.keywords}
    }
    assert not bare


def test_only_characters_are_repeated_possessively() -> None:
    """Python before 3.11.5 matches ``(a|b)*+`` wrongly (its issue 106052): markup was destroyed."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    literals = {
        node.value
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert len(literals) > 5_000
    assert not list(filter(group.search, literals))
