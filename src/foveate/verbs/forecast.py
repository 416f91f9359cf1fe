"""The verbs of forecasting: a table of forecasts, and error against horizon of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from foveate.atomic import replace_file
from foveate.look.curves import CurvesView
from foveate.tasks.forecast_output import ForecastEvaluation
from foveate.verbs.looking import saved

if TYPE_CHECKING:
    from foveate.run import Run


def forecast(run: Run, source: Path | None, out: Path | None) -> str:
    """The forecast after the end of a file as CSV; or, written to ``out``, where it went."""
    text = run.forecast(source).csv()
    if out is None:
        return text.rstrip("\n")
    replace_file(out, text.encode())
    return f"wrote {out}"


def look_horizon(runs: Sequence[Run], split: str, out: Sequence[Path]) -> list[str]:
    """Draw error against horizon of runs on a split of their data; without ``out``, as text.

    With several runs each line names its run; naive forecasts are those of the first.
    """
    curves: dict[str, list[float]] = {}
    for run in runs:
        run.can("forecast", "draw error against horizon")
        evaluation = cast(ForecastEvaluation, run.evaluate(split=split))
        for name, curve in evaluation.curves.items():
            naive = name in ("last_value", "seasonal_naive")
            label = name.replace("_", " ")
            if not naive and len(runs) > 1:
                label = f"{run.path.name}, {label}"
            curves.setdefault(label, curve)
    return saved(_horizon(curves, f"Error against horizon, {split}"), out)


def _horizon(curves: Mapping[str, Sequence[float]], title: str) -> CurvesView:
    """Mean squared error of each step ahead, a line for each name."""
    ahead = np.arange(1.0, 1 + max(map(len, curves.values())))
    lines = {name: np.full(len(ahead), np.nan) for name in curves}
    for name, curve in curves.items():
        lines[name][: len(curve)] = curve
    return CurvesView(ahead, lines, "steps ahead", "mean squared error, scaled", title)
