"""Views of forecasts: error against horizon, and a forecast with the attention to its past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foveate.data.series import Windows, labels
from foveate.look.draw.charts import ForecastDrawing, LinesDrawing, line_chart
from foveate.look.draw.sheets import ColorScale, SheetDrawing, sheet
from foveate.look.views import view
from foveate.look.views.examples import attends, forecasts
from foveate.look.views.options import Head, Layer, Split, Target, Text
from foveate.run import Run
from foveate.run.evaluation import ForecastEvaluation
from foveate.tasks.forecasting import Forecasting


@view(forecasts)
def horizon(runs: Sequence[Run], split: Split = "test") -> LinesDrawing:
    """Draw the mean squared error of each step ahead on a split of the runs' data.

    With several runs each label has its run's name; naive forecasts are those of the first.
    """
    curves: dict[str, list[float]] = {}
    for run in runs:
        evaluation = cast(ForecastEvaluation, run.evaluate(split=split))
        for name, curve in evaluation.curves.items():
            naive = name in ("last_value", "seasonal_naive")
            label = name.replace("_", " ")
            if not naive and len(runs) > 1:
                label = f"{run.path.name}, {label}"
            curves.setdefault(label, curve)
    title = f"Error against horizon, {split}"
    return line_chart(None, curves, "steps ahead", "mean squared error, scaled", title)


@view(forecasts)
def forecast(
    run: Run, text: Text = None, target: Target = None, layer: Layer = -1, head: Head = None
) -> ForecastDrawing:
    """Draw past, forecast and truth at one date of one channel, and the attention to the past.

    The strip is the mean over heads and queries of the last layer, divided among the rows of each
    patch. Quantiles, if a model has learned them, are a band between the outermost.
    """
    task = run.need(Forecasting, "forecast")
    windows, channel = task.at(text), task.channel(target)
    first, read = int(windows.starts[0]), windows.look_back
    rows = slice(first, first + read + windows.horizon)
    dates = labels(windows.table.dates[rows], windows.table.dates)
    quantiles = task.predict(run.model, windows)[0]  # (H, C, Q)
    ahead = task.scaling.leave(quantiles.swapaxes(1, 2)).swapaxes(1, 2)[:, channel]
    truth, past = windows.table.values[rows, channel], np.full(read, np.nan)
    lines = {
        "read": np.append(truth[:read], np.full(windows.horizon, np.nan)),
        "actual": np.append(past, truth[read:]),
        "forecast": np.append(past, ahead[:, ahead.shape[1] // 2]),
    }
    bands = {}
    if ahead.shape[1] > 1:
        low, high = np.sort(ahead, axis=1)[:, [0, -1]].T
        bands["forecast"] = np.append(past, low), np.append(past, high)
    levels = task.config.quantiles
    chart = line_chart(
        range(len(dates)), lines, "date", task.names[channel],
        f"{task.names[channel]} from {dates[read]}", bands=bands, labels=dates,
        marks={"forecast": read - 0.5},
        caption=f"band: quantiles {levels[0]:g} to {levels[-1]:g}" if bands else "",
    )  # fmt: skip
    strip = None if attends(run) else attention_strip(run, windows, text, target, layer, head)
    return ForecastDrawing(title=chart.title, lines=chart, strip=strip)


def attention_strip(
    run: Run, windows: Windows, text: str | None, target: str | None, layer: int, head: int | None
) -> SheetDrawing:
    """Return the share of attention of each row that was read, (1, L + H)."""
    record = run.explain(text, target)
    weights = record.select(next(iter(record.blocks())), layer, head)
    begins, read = list(run.model.starts()), windows.look_back
    ends = [*begins[1:], read]
    shares = np.zeros(read + windows.horizon)
    shares[read:] = np.nan
    for begin, end, share in zip(begins, ends, weights.mean(axis=0), strict=True):
        shares[begin:end] = share / max(1, end - begin)
    return sheet("share of attention", shares[None], scale=ColorScale(0.0))
