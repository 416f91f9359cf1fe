"""Every shipped config is a test case: it parses, and comes back from TOML as it was."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from foveate.config import parse_tree, read
from foveate.kinds import load_kinds
from foveate.run import RunConfig

CONFIGS = Path(__file__).parent.parent / "configs"
FILES = sorted(CONFIGS.rglob("*.toml"))

if not FILES:
    pytest.skip(f"no configs in {CONFIGS}", allow_module_level=True)


load_kinds()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_config_parses_and_comes_back(path: Path) -> None:
    config = read(RunConfig, path)
    assert parse_tree(RunConfig, tomllib.loads(config.toml())) == config


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_config_says_in_a_comment_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("#")
