"""What the browser must have the same as Python: the schema of drawings, colours, the studio's API,
numbers of demos.

``python web/scripts/python_tables.py`` prints it as JSON; ``npm run types`` writes TypeScript.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pydantic

from foveate.look.draw import colors
from foveate.look.draw.kinds import AnyDrawing
from foveate.look.draw.parts import STEPS
from foveate.look.views.demos import DEMOS


def schema() -> dict[str, Any]:
    """The JSON schema of any drawing as it is written, camelCase, with every field there."""
    return pydantic.TypeAdapter(AnyDrawing).json_schema(mode="serialization", by_alias=True)


def palette() -> dict[str, Any]:
    """Tables of 256 colours, the hues of lines, the scales of weights, the tint of overlays."""
    return {
        "steps": STEPS,
        "sequential": base64.b64encode(colors.table().tobytes()).decode(),
        "diverging": base64.b64encode(colors.table("PuOr_r").tobytes()).decode(),
        "lines": list(colors.LINES),
        "scales": {
            name: {"caption": s.caption, "marks": sorted(s.marks.items())}
            for name, s in colors.SCALES.items()
        },
        "overlays": {name: o.caption for name, o in colors.OVERLAYS.items()},
        "tint": {"dark": colors.DARK.tolist(), "light": colors.LIGHT.tolist()},
        "even": colors.EVEN,
    }


# Options of demos whose sliders stand elsewhere than by default, small ones first.
DRAGGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "scores": ({"points": 5}, {"x": -0.7, "y": 2.0}),
    "local": ({}, {"position": 14.25, "window": 9.0}),
}


def demos() -> list[dict[str, Any]]:
    """Each demo as it comes, numbers that are dragged, and what Python draws of them."""

    def drawn(name: str, options: dict[str, Any]) -> dict[str, Any]:
        [drawing] = DEMOS[name].draw(options).browser_drawings()
        return drawing.model_dump(mode="json", by_alias=True)

    return [
        {"drawing": drawn(name, few), "dragged": few | to, "parts": drawn(name, few | to)["parts"]}
        for name, (few, to) in DRAGGED.items()
    ]


def api() -> dict[str, Any]:
    """What the studio's API takes and tells, by name."""
    from foveate.studio.api import document, studio_application

    found: dict[str, Any] = document(studio_application([]))["components"]["schemas"]
    return {name: form for name, form in sorted(found.items()) if "Validation" not in name}


def stamp(part: Any) -> str:
    """What a generated file says it was made of."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    parts = {"schema": schema(), "palette": palette(), "api": api(), "demos": demos()}
    print(json.dumps({name: {"of": stamp(part), "is": part} for name, part in parts.items()}))
