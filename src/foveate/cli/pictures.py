"""What ``look`` and ``bench`` draw and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.config import ConfigError, read
from foveate.look.drawings import Drawing, PanelGrid, line_chart, panel_grid
from foveate.look.views import find
from foveate.look.views.options import Question


def saved(view: Drawing, out: Sequence[Path]) -> list[str]:
    """Write a picture in the form of each ending, and say where; without any, as text."""
    return [f"wrote {view.save(path)}" for path in out] or [view.text()]


def drawn(name: str, runs: Sequence[Path], asked: Mapping[str, Any], checkpoint: str) -> Drawing:
    """The view of some runs that a question asks for; what is absent in it is not asked."""
    from foveate.run import load

    question = Question.parse({key: value for key, value in asked.items() if value is not None})
    return find(name).draw([load(path, checkpoint) for path in runs], question)


def report(run: Path, out: Path, asked: Mapping[str, Any], checkpoint: str) -> list[str]:
    """Write the page of all views that fit a run; say where, and which do not fit and why."""
    from foveate.look.views.report import report as made
    from foveate.run import load

    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the report is one page; end its name in .html")
    question = Question.parse({key: value for key, value in asked.items() if value is not None})
    found = made(load(run, checkpoint), question)
    found.save(out)
    return [f"wrote {out}", *(f"not in it: {name}: {why}" for name, why in found.left_out.items())]


def positions(kind: str, length: int, hidden_size: int, num_heads: int) -> Drawing:
    """A position encoding. Raises `ConfigError` for an unknown kind or sizes that it refuses."""
    from foveate.look.models import positions as draw
    from foveate.nn.positions import Position

    config = Position.Config.parse({"kind": kind})
    torch.manual_seed(1)  # what is learned is shown as it begins
    try:
        return draw(config.build(hidden_size, num_heads), length, hidden_size, num_heads)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def schedule(configs: Sequence[Path], steps: int | None) -> Drawing:
    """The learning rates that configs (or runs) train with, up to the longest of them."""
    from foveate.look.models import schedule as draw
    from foveate.run import RunConfig

    rates, ends = {}, [steps or 0]
    for path in configs:
        train = read(RunConfig, path / "config.toml" if path.is_dir() else path).train
        length = train.max_steps or steps
        rates[path.stem] = train.schedule.build(train.optimizer.lr, length).rate
        ends.append(steps or train.max_steps or 0)
    if max(ends) < 1:
        raise ConfigError("no config says train.max_steps: give --steps")
    return draw(rates, max(ends))


# ------------------------------------------------------------------------------------------- bench
# The verbs of measuring: what `foveate.bench` found, as a text for people.

MAIN = "machine"  # what the machine is stands last, on a line of its own


def text(result: Mapping[str, Any]) -> str:
    """A result of any bench as lines of names and values."""
    lines = list(_lines({k: v for k, v in result.items() if k != MAIN}, ""))
    machine = ", ".join(f"{k} {v}" for k, v in result.get(MAIN, {}).items())
    return "\n".join([*lines, f"machine: {machine}"])


def growth(result: Mapping[str, Any]) -> PanelGrid:
    """The picture of a bench of lengths: a panel of milliseconds and one of megabytes.

    Both axes are logarithmic: a square rises twice as steeply as a line.
    """
    kinds: Mapping[str, Mapping[str, Any]] = result["kinds"]
    panels = [
        line_chart(
            np.array(result["lengths"], float),
            {name: np.array(row[panel], float) for name, row in kinds.items()},
            "length", panel, log="xy",
        )
        for panel in ("milliseconds", "megabytes")
    ]  # fmt: skip
    return panel_grid(panels, "Forward and backward through one layer")


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
