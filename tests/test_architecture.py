"""docs/development/architecture.md: the functions that run, in their order."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import walks

ROOT = Path(__file__).parent.parent
TABLE = tomllib.loads((ROOT / "tools" / "walks.toml").read_text("utf-8"))


def test_the_page_is_what_the_tool_writes() -> None:
    assert walks.PAGE.read_text("utf-8") == walks.page(), "write it anew: make architecture"


def test_every_phrase_is_of_a_step_and_every_step_is_a_function() -> None:
    steps = {step for walk in TABLE["walks"].values() for step in walk["steps"]}
    assert steps == TABLE["phrases"].keys()
    for step in sorted(steps):
        file, _, name = step.partition(":")
        body = ast.parse((walks.PACKAGE / file).read_text("utf-8")).body
        for part in name.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            result = [node for node in body if isinstance(node, kinds) and node.name == part]
            assert result, f"{step} does not exist; correct tools/walks.toml"
            body = result[-1].body


@pytest.mark.slow
def test_each_walk_runs_in_the_order_shown_and_within_its_files() -> None:
    for name, calls in walks.traced().items():
        walk = TABLE["walks"][name]
        places = [calls.index(step) for step in walk["steps"]]
        assert places == sorted(places), name
        files = {call.partition(":")[0] for call in calls}
        assert len(files) <= walk["files"], f"{name}: {len(files)} files run"
