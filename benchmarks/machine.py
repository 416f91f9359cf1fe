"""What a figure was measured on, and where figures go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foveate.bench import machine

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def describe() -> dict[str, Any]:
    """Machine, versions, commit and the ceilings of the moment."""
    ceilings = {f"{name}_gflops": rate for name, rate in machine.ceilings().items()}
    return machine.describe() | ceilings


def write(name: str, result: dict[str, Any]) -> Path:
    """Put a result beside the others as JSON."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
