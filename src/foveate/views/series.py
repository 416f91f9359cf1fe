"""Series: error against horizon, and one forecast with what was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foveate.data.series import Windows, labels
from foveate.look.charts import CurvesView
from foveate.look.sheets import ForecastView, Sheet
from foveate.run import Run
from foveate.tasks.forecasting import ForecastEvaluation
from foveate.views.fits import attends
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


def forecast(runs: Sequence[Run], question: Question) -> ForecastView:
    """What was read, said and came at one date of one channel, and where attention lay.

    The strip is the mean over heads and queries of the last layer, shared among the rows of each
    patch. Quantiles, where a model has learnt them, are a band between the outermost.
    """
    [run], task = runs, runs[0].task
    windows, channel = task.at(question.text), task.channel(question.target)
    first, read = int(windows.starts[0]), windows.look_back
    rows = slice(first, first + read + windows.horizon)
    dates = labels(windows.table.dates[rows], windows.table.dates)
    quantiles = task.predict(run.model, windows)[0]  # (H, C, Q)
    said = task.scaling.leave(quantiles.swapaxes(1, 2)).swapaxes(1, 2)[:, channel]
    truth = windows.table.values[rows, channel]
    lines = {
        "read": np.append(truth[:read], np.full(windows.horizon, np.nan)),
        "what came": np.append(np.full(read, np.nan), truth[read:]),
        "forecast": np.append(np.full(read, np.nan), said[:, said.shape[1] // 2]),
    }
    bands = {}
    if said.shape[1] > 1:
        blank = np.full(read, np.nan)
        low, high = np.sort(said, axis=1)[:, [0, -1]].T
        bands["forecast"] = np.append(blank, low), np.append(blank, high)
    levels = task.config.quantiles
    between = f"band: quantiles {levels[0]:g} to {levels[-1]:g}" if bands else ""
    drawn = CurvesView(
        np.arange(float(len(dates))), lines, "date", task.names[channel],
        f"{task.names[channel]} from {dates[read]}", bands=bands, labels=dates,
        marks={"forecast": read - 0.5}, caption=between,
    )  # fmt: skip
    return ForecastView(drawn, strip(run, question, windows))


def strip(run: Run, question: Question, windows: Windows) -> Sheet | None:
    """The share of the look of each row that was read, (1, L + H); None without attention."""
    if attends(run) is not None:
        return None
    record = run.explain(question.text, question.target)
    weights = record.select(next(iter(record.blocks())), question.layer, question.head)
    begins, read = list(run.model.starts()), windows.look_back
    ends = [*begins[1:], read]
    shares = np.zeros(read + windows.horizon)
    shares[read:] = np.nan
    for begin, end, share in zip(begins, ends, weights.mean(axis=0), strict=True):
        shares[begin:end] = share / max(1, end - begin)
    return Sheet("share of the look", shares[None], down="", across="", least=0.0)
