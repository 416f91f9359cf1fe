"""How Sphinx renders the pages of ``site_sources.py``; no page loads anything foreign."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["FOVEATE_ROOT"])  # of the checkout; this file is copied beside the pages

project = "foveate"
author = "The foveate authors"
copyright = "The foveate authors, Apache-2.0"
version = release = os.environ["FOVEATE_VERSION"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "autoapi.extension"]
exclude_patterns = ["docs/README.md"]
myst_heading_anchors = 4
default_role = "code"  # a name between single backticks in a docstring
smartquotes = False  # `--option` stays one
highlight_language = "text"  # of blocks that are indented
suppress_warnings = ["myst.header", "autoapi.python_import_resolution", "docutils", "ref.python"]

autoapi_dirs = [str(ROOT / "src" / "foveate")]
autoapi_ignore = [
    f"*/foveate/{name}/*" for name in ("cli", "measure", "nn/native", "serve", "studio")
]
autoapi_root = "api"
autoapi_add_toctree_entry = False
autoapi_options = ["members", "show-inheritance", "show-module-summary"]
autoapi_python_class_content = "both"
autoapi_member_order = "bysource"
autoapi_keep_files = False

html_theme = "pydata_sphinx_theme"
html_title = f"foveate {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]
html_copy_source = html_show_sourcelink = False
html_sidebars: dict[str, list[str]] = {"index": [], "gallery": []}
html_theme_options = {
    "navbar_start": ["navbar-logo"],
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 8,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "search_bar_text": "Search the docs",
}


def escape(
    _app: object, _what: str, _name: str, _object: object, _options: object, lines: Any
) -> None:
    """Keep what Sphinx would read as markup in the equations of a docstring: |V|, a*, b_."""
    for place, line in enumerate(lines):
        parts = re.split(r"(``.+?``|`.+?`)", line)
        parts[::2] = [re.sub(r"[|*]|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
        lines[place] = "".join(parts)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape)
