"""What the browser must have the same as Python: the schema of drawings, colours, the studio's API.

``python web/scripts/python_tables.py`` prints it as JSON; ``npm run types`` writes TypeScript.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pydantic

from foveate.draw import colors
from foveate.draw.kinds import AnyDrawing
from foveate.draw.parts import STEPS


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


def api() -> dict[str, Any]:
    """What the studio's API takes and tells, by name."""
    from foveate.server.studio_api import application, document

    found: dict[str, Any] = document(application([]))["components"]["schemas"]
    return {name: form for name, form in sorted(found.items()) if "Validation" not in name}


def stamp(part: dict[str, Any]) -> str:
    """What a generated file says it was made of."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    parts = {"schema": schema(), "palette": palette(), "api": api()}
    print(json.dumps({name: {"of": stamp(part), "is": part} for name, part in parts.items()}))
