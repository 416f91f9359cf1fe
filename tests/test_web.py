"""What tools write for the browser is fresh: types, colours, and the script of the pages."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
import python_tables

from foveate.look.draw.parts import Numbers

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
SCRIPT = ROOT / "src" / "foveate" / "look" / "draw" / "embed.js"
MOST_PACKED = 46_100  # bytes, as web/scripts/sizes.mjs has it


WRITTEN = {"schema": "core/types.ts", "palette": "core/palette.ts", "api": "studio/api.ts"}


@pytest.mark.parametrize(("part", "file"), WRITTEN.items())
def test_what_typescript_has_of_python_is_fresh(part: str, file: str) -> None:
    written = (WEB / "src" / file).read_text("utf-8")
    output = re.search(r"do not edit\. Of (\w+)\.", written)
    assert output is not None
    fresh = python_tables.stamp(getattr(python_tables, part)())
    assert output[1] == fresh, f"web/src/{file} is stale: run `npm run types` in web/"


def test_numbers_of_demos_that_the_browser_is_held_to_are_fresh() -> None:
    stored = json.loads((WEB / "test" / "demos.json").read_text("utf-8"))
    fresh = json.loads(json.dumps(python_tables.demos()))
    assert alike(stored, fresh), "web/test/demos.json is stale: run `npm run types` in web/"
    stored[0]["drawing"]["sliders"][0]["value"] += 1
    assert not alike(stored, fresh)


def alike(a: Any, b: Any) -> bool:
    """Whether two pieces of JSON say the same; numbers may differ by rounding."""
    if isinstance(a, dict) and "codec" in a:
        return np.allclose(Numbers(**a).array, Numbers(**b).array, atol=1e-4, equal_nan=True)
    if isinstance(a, float):
        return abs(a - b) < 1e-4
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(alike, a, b)) if isinstance(a, list) else bool(a == b)


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


FAILS = "#!/bin/sh\nexit 3\n"


@pytest.mark.parametrize(("npm", "reason"), [("", "is not installed"), (FAILS, "failed with exit")])
def test_a_wheel_without_web_files_warns(tmp_path, monkeypatch, capsys, npm, reason) -> None:
    """But not one for a platform, which others install."""
    hook: Any = hatch_build.BuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    (tmp_path / "web").mkdir()
    if npm:
        (tmp_path / "npm").write_text(npm)
        (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FOVEATE_WHEEL", raising=False)
    hook.initialize("standard", {})
    warning = "".join(capsys.readouterr())
    assert warning.count(reason) == 1 and "Node 20.19" in warning
    assert all(what in warning for what in hatch_build.BUILT.values())
    monkeypatch.setenv("FOVEATE_WHEEL", next(iter(hatch_build.PLATFORMS)))
    with pytest.raises(RuntimeError, match=reason):
        hook.initialize("standard", {})
    monkeypatch.delenv("FOVEATE_WHEEL")
    for name in hatch_build.BUILT:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("built")
    hook.initialize("standard", {})
    assert not "".join(capsys.readouterr())
