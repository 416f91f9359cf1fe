"""docs/reference/differences.md: where code differs from its paper, of the classes themselves.

    python tools/differences.py    write the page anew (make differences)

A kind says it in its class, `differs`; `foveate kinds FAMILY` shows the same sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

from foveate.kinds import all_kinds

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "differences.md"
HEAD = """# Where the code differs from its paper

This page lists, for each kind, the differences from the published equations, and the field that
restores the published form, if there is one. `foveate kinds FAMILY` shows the same.

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
    """Assignments such as ``norm = "post"`` as code."""
    return re.sub(r'([a-z_.]+ = (?:"\w+"|\w+))', r"`\1`", text).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"wrote {PAGE}")
