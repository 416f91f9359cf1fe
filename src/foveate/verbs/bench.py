"""The verbs of measuring: what `foveate.bench` found, as a text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveate.look.charts import CurvesView, PanelsView

MAIN = "machine"  # what the machine is stands last, on a line of its own


def text(result: Mapping[str, Any]) -> str:
    """A result of any bench as lines of names and values."""
    lines = list(_lines({k: v for k, v in result.items() if k != MAIN}, ""))
    machine = ", ".join(f"{k} {v}" for k, v in result.get(MAIN, {}).items())
    return "\n".join([*lines, f"machine: {machine}"])


def growth(result: Mapping[str, Any]) -> PanelsView:
    """The picture of a bench of lengths: a panel of milliseconds and one of megabytes.

    Both axes are logarithmic: a square rises twice as steeply as a line.
    """
    kinds: Mapping[str, Mapping[str, Any]] = result["kinds"]
    panels = [
        CurvesView(
            np.array(result["lengths"], float),
            {name: np.array(row[panel], float) for name, row in kinds.items()},
            "length", panel, log="xy",
        )
        for panel in ("milliseconds", "megabytes")
    ]  # fmt: skip
    return PanelsView(panels, "Forward and backward through one layer")


def draw_growth(result: Mapping[str, Any], out: Sequence[Path]) -> list[str]:
    """Write the picture in the form of each ending, or give it as text with the exponents."""
    view = growth(result)
    if out:
        return [f"wrote {view.save(path)}" for path in out]
    lines = [view.text(), "", "grows with the length to the power of (time, memory)"]
    for name, row in result["kinds"].items():
        lines.append(f"  {name:<24} {row['exponent_time']!s:>6} {row['exponent_memory']!s:>6}")
    return lines


def _lines(tree: Mapping[str, Any], indent: str) -> list[str]:
    wide = max((len(key) for key in tree), default=0)
    lines = []
    for key, value in tree.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        else:
            shown = f"{value:,}" if isinstance(value, int | float) else str(value)
            lines.append(f"{indent}{name:<{wide}}  {shown}")
    return lines
