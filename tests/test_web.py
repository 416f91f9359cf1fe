"""What tools write for the browser is fresh: types, colours, and the script of the pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hatch_build
import pytest
import python_tables

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
SCRIPT = ROOT / "src" / "foveate" / "draw" / "embed.js"
MOST_PACKED = 40_000  # bytes


WRITTEN = {"schema": "core/types.ts", "palette": "core/palette.ts", "api": "studio/api.ts"}


@pytest.mark.parametrize(("part", "file"), WRITTEN.items())
def test_what_typescript_has_of_python_is_fresh(part: str, file: str) -> None:
    written = (WEB / "src" / file).read_text("utf-8")
    output = re.search(r"do not edit\. Of (\w+)\.", written)
    assert output is not None
    fresh = python_tables.stamp(getattr(python_tables, part)())
    assert output[1] == fresh, f"web/src/{file} is stale: run `npm run types` in web/"


@pytest.mark.slow
def test_the_script_of_the_pages_is_fresh(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules").is_dir():
        pytest.skip("no Node or no web/node_modules here: `make web` makes them")
    subprocess.run(
        [node, "scripts/build.mjs", "embed"],
        cwd=WEB, env={**os.environ, "OUT": str(tmp_path)}, check=True, timeout=300,
    )  # fmt: skip
    built = (tmp_path / "embed.js").read_text("utf-8")
    assert built == SCRIPT.read_text("utf-8"), "embed.js is stale: run `npm run build` in web/"


def test_the_script_of_the_pages_is_small_and_ends_no_element() -> None:
    import gzip

    text = SCRIPT.read_text("utf-8")
    assert len(gzip.compress(text.encode())) <= MOST_PACKED
    assert "</script" not in text.lower() and "<!--" not in text


def test_a_wheel_without_what_the_browser_runs_is_not_made(tmp_path: Path, monkeypatch) -> None:
    hook: Any = hatch_build.BuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"widget\.js.* no npm to build with"):
        hook.initialize("standard", {})
    hook.initialize("editable", {})
    for name in hatch_build.BUILT:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("built")
    hook.initialize("standard", {})
