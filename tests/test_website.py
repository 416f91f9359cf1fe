"""The site: references come from the program, its index has every page, links are checked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import site_links
import site_sources

from foveate.cli import VERBS
from foveate.config import kinds
from foveate.kinds import described
from foveate.run import RunConfig

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


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
    index = (DOCS / "README.md").read_text("utf-8")
    named = {(DOCS / link).resolve() for link in re.findall(r"\]\(([\w/.-]+\.md)\)", index)}
    folders = ("guide", "reference", "development")
    written = {path.resolve() for folder in folders for path in (DOCS / folder).glob("*.md")}
    assert not written - named
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
        (
            '<p style="background: url(https://example.org/b)">',
            "index.html loads https://example.org/b",
        ),
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
