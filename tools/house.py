"""Draw the house: python tools/house.py (make architecture)

``docs/pictures/house.svg`` shows the packages on their floors, each as wide as it has lines, and in
each the part that docs/spine.md walks through. tests/test_imports.py compares `FLOORS` with the
packages that there are and with the order in which they may import each other.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import sizes

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "house.svg"
FLOORS = {  # from the top down
    "door": ["cli"],
    "services": ["serve", "studio"],
    "rooms": ["look", "align", "documents", "exchange", "measure"],
    "use": ["engine", "run"],
    "core": [".", "nn", "data", "models", "decode", "tasks", "train"],
}
LEFT, WIDTH, HEIGHT, GAP = 112, 880, 74, 26
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.small { font-size: 12px; fill: #59636e } .floor { text-anchor: end; font-weight: 600 }
rect { fill: #eaeef2; stroke: #59636e } .spine { fill: #0969da; stroke: none }
path { stroke: #59636e; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } rect { fill: #262c36; stroke: #9198a1 }
  .spine { fill: #4493f8 } path { stroke: #9198a1 }
}"""


def spine() -> list[str]:
    """The files that docs/spine.md walks through, in its order."""
    page = (ROOT / "docs" / "spine.md").read_text("utf-8")
    return re.findall(r"^### \d+\. `(.+?)`", page, re.MULTILINE)


def main() -> None:
    """Write the picture."""
    texts = sizes.texts_of(ROOT / "src" / "foveate")
    lines = sizes.packages(texts)
    walked = sizes.packages({path: texts[path] for path in map(Path, spine())})
    scale = WIDTH / max(sum(lines[name] for name in floor) for floor in FLOORS.values())
    parts = []
    for level, (floor, names) in enumerate(FLOORS.items()):
        y = 16 + level * (HEIGHT + GAP)
        parts.append(f'<text class="floor" x="{LEFT - 28}" y="{y + HEIGHT / 2 + 5}">{floor}</text>')
        x = LEFT + (WIDTH - scale * sum(lines[name] for name in names)) / 2
        for name in names:
            parts.append(box(name, x, y, scale * lines[name], lines[name], walked.get(name, 0)))
            x += scale * lines[name]
    below = 16 + len(FLOORS) * (HEIGHT + GAP)
    total, read = sum(lines.values()), sum(walked.values())
    parts += [
        f'<path d="M{LEFT - 14} 40V{below - GAP - 10}m-6 -10l6 10l6 -10"/>',
        f'<text class="small" x="{LEFT + WIDTH / 2}" y="{below + 2}">Each box is as wide as the '
        f"package has lines, {total:,} in all; imports only point down. Blue: the {read:,} lines "
        "of the spine.</text>",
    ]
    size = f'viewBox="0 0 {LEFT + WIDTH + 16} {below + 18}"'
    title = "The packages of foveate on five floors: " + "; ".join(
        f"{floor}: {', '.join(names)}" for floor, names in FLOORS.items()
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}'
    text = f"{svg}</title>\n<style>{STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    PICTURE.write_text(text, "utf-8", newline="\n")
    print(PICTURE)


def box(name: str, x: float, y: float, width: float, lines: int, walked: int) -> str:
    """A package: its name and lines, and the share of the spine from the left."""
    middle = x + width / 2
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}"/>'
        f'<rect class="spine" x="{x:.1f}" y="{y + HEIGHT - 9}" '
        f'width="{width * walked / lines:.1f}" height="9"/>'
        f'<text x="{middle:.1f}" y="{y + 32}">{"config …" if name == "." else name}</text>'
        f'<text class="small" x="{middle:.1f}" y="{y + 50}">{lines:,}</text>'
    )


if __name__ == "__main__":
    main()
