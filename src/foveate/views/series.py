"""Series: error against horizon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foveate.look.curves import CurvesView
from foveate.run import Run
from foveate.tasks.forecast_output import ForecastEvaluation
from foveate.views.question import Question


def horizon(runs: Sequence[Run], question: Question) -> CurvesView:
    """Mean squared error of each step ahead on a split of the runs' data.

    With several runs each line names its run; naive forecasts are those of the first.
    """
    curves: dict[str, list[float]] = {}
    for run in runs:
        evaluation = cast(ForecastEvaluation, run.evaluate(split=question.split))
        for name, curve in evaluation.curves.items():
            naive = name in ("last_value", "seasonal_naive")
            label = name.replace("_", " ")
            if not naive and len(runs) > 1:
                label = f"{run.path.name}, {label}"
            curves.setdefault(label, curve)
    ahead = np.arange(1.0, 1 + max(map(len, curves.values())))
    lines = {name: np.full(len(ahead), np.nan) for name in curves}
    for name, curve in curves.items():
        lines[name][: len(curve)] = curve
    return CurvesView(
        ahead, lines, "steps ahead", "mean squared error, scaled",
        f"Error against horizon, {question.split}",
    )  # fmt: skip
