"""docs/reference/differences.md: where code differs from its paper, of the classes themselves.

    python tools/differences.py    write the page anew (make differences)

A kind says it in its class, `differs`; `foveate kinds FAMILY` shows the same sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

from foveate.kinds import all_kinds

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "differences.md"
HEAD = """# Differences from the papers

This page lists how each component (*kind*) differs from the published equations and, where
possible, the config field that restores the published form. `foveate kinds FAMILY` prints the same.

    make differences    # regenerates this page from the attribute `differs` of each class

| family | kind | difference |
| --- | --- | --- |
"""


def page() -> str:
    """The page as it should be, with every kind that says how it differs."""
    rows = [
        f"| `{kind.family}` | `{kind.name}` | {_code(kind.differs)} |\n"
        for kind in all_kinds()
        if kind.differs
    ]
    return HEAD + "".join(rows)


def _code(text: str) -> str:
    """Assignments such as ``norm = "post"`` and names of classes and kinds as code."""
    pattern = r'([a-z_.]+ = (?:"\w+"|\w+)|torch\.nn\.\w+|\b(?:gru_cho|cbow_window)\b)'
    return re.sub(pattern, r"`\1`", text).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"wrote {PAGE}")
