"""What tools write for the browser and the site is fresh and whole, and links lead somewhere."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
import python_tables
import site_links
import site_sources

from foveate.cli import VERBS
from foveate.config import kinds
from foveate.kinds import described
from foveate.look.draw.parts import Numbers
from foveate.run import RunConfig

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
SCRIPT = ROOT / "src" / "foveate" / "look" / "draw" / "embed.js"
MOST_PACKED = 46_100  # bytes, as web/scripts/sizes.mjs has it
WRITTEN = {"schema": "core/types.ts", "palette": "core/palette.ts", "api": "studio/api.ts"}


@pytest.mark.parametrize(("part", "file"), WRITTEN.items())
def test_what_typescript_has_of_python_is_fresh(part: str, file: str) -> None:
    fresh = python_tables.stamp(getattr(python_tables, part)())
    written = re.search(r"do not edit\. Of (\w+)\.", (WEB / "src" / file).read_text("utf-8"))
    assert written and written[1] == fresh, f"web/src/{file} is stale: run `npm run types` in web/"


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
    command, environment = [node, "scripts/build.mjs", "embed"], os.environ | {"OUT": str(tmp_path)}
    subprocess.run(command, cwd=WEB, env=environment, check=True, timeout=300)
    built = (tmp_path / "embed.js").read_text("utf-8")
    assert built == SCRIPT.read_text("utf-8"), "embed.js is stale: run `npm run build` in web/"


def test_the_script_of_the_pages_is_small_and_ends_no_element() -> None:
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


# ---- The site: references come from the program, its index has every page, links are checked
def test_every_command_and_option_has_its_line() -> None:
    pages = site_sources.command_pages()
    assert pages.keys() == {"commands/index", *(f"commands/{verb}" for verb in VERBS)}
    assert "\n| `--beam-size " in pages["commands/translate"]
    assert "\n## foveate look attention\n" in pages["commands/look"]
    assert all(f"({verb}.md)" in pages["commands/index"] for verb in VERBS)


def test_every_kind_and_field_has_its_line() -> None:
    pages = site_sources.config_pages()
    assert kinds().keys() <= {name.removeprefix("configs/") for name in pages}
    for kind in described(None, RunConfig):
        page = pages[f"configs/{kind.family}"]
        assert f"\n## {kind.name}\n" in page
        assert all(f"| `{field}` |" in page for field in kind.fields)


def test_the_index_of_the_docs_names_every_page(tmp_path: Path) -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text("utf-8")
    named = {(docs / link).resolve() for link in re.findall(r"\]\(([\w/.-]+\.md)\)", index)}
    folders = ("guide", "reference", "development")
    assert {path.resolve() for each in folders for path in (docs / each).glob("*.md")} <= named
    for part in ("lectures", "history"):
        (tmp_path / "docs" / part).mkdir(parents=True)
        (tmp_path / "docs" / part / "README.md").write_text("# Pages\n")
        (tmp_path / "docs" / part / "one.md").write_text("# One\n")
    pages = site_sources.sections(tmp_path)
    for link in ("/docs/guide/serving\n", "](/docs/guide/serving.md)"):
        assert link in pages["guide"]
    assert pages["docs/lectures/README"].endswith(":hidden:\n\none\n```\n")
    first = pages["index"]
    assert '<iframe class="living tall" src="pages/en-fr.html"' in first and "/reference\n" in first
    assert "<picture" not in first and "](docs/" not in first


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">x</a>', "index.html: gone.html leads nowhere"),
        ('<a href="two.html#no">x</a>', "index.html: two.html#no: no such place in the page"),
        ('<img src="https://example.org/a.png">', "index.html loads https://example.org/a.png"),
        ('<script src="//example.org/a.js"></script>', "index.html loads //example.org/a.js"),
        ('<p style="background: url(//example.org/b)">', "index.html loads //example.org/b"),
        ("<link rel=stylesheet href=a.css>", "a.css loads https://example.org/font"),
    ],
)
def test_a_bad_link_or_a_foreign_request_is_found(page: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "two.html").write_text('<h2 id="yes">x</h2>')
    good = '<a href="two.html#yes">x</a> <a href="https://example.org">x</a>'
    (tmp_path / "index.html").write_text(good)
    (tmp_path / "a.css").write_text("a { background: url(data:image/png;base64,AA==) }")
    assert not list(site_links.faults(tmp_path))
    (tmp_path / "index.html").write_text(good + page)
    if "stylesheet" in page:
        (tmp_path / "a.css").write_text('@import "https://example.org/font";')
    assert list(site_links.faults(tmp_path)) == [fault]
    command = [sys.executable, site_links.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and fault in done.stdout
