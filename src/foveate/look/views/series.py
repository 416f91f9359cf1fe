"""Views of forecasts and of errors by position: horizon, exposure bias, a forecast and its past."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.data.series import Windows, labels
from foveate.decode.search import token_log_probabilities
from foveate.look.draw.charts import Curve, ForecastDrawing, LinesDrawing, PanelGrid, line_chart
from foveate.look.draw.colors import Hue
from foveate.look.draw.sheets import ColorScale, SheetDrawing, sheet
from foveate.look.views import view
from foveate.look.views.examples import attends, evaluated_split, exposed, forecasts
from foveate.run import Run
from foveate.tasks.abilities import Generates
from foveate.tasks.base import spread
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.teacher_forcing import autoregressive, tokens_of


@view(forecasts)
def horizon(runs: Sequence[Run], split: str = "test") -> LinesDrawing:
    """Draw the mean squared error of each step ahead on a split of the runs' data.

    With several runs each label has its run's name; naive forecasts are those of the first.
    """
    curves: dict[str, list[float]] = {}
    for run in runs:
        for name, curve in run.evaluate(split=split).curves.items():
            of_run = len(runs) > 1 and name not in ("last_value", "seasonal_naive")
            curves.setdefault(f"{run.path.name}, " * of_run + name.replace("_", " "), curve)
    title = f"Error against horizon, {split}"
    return line_chart(None, curves, "steps ahead", "mean squared error, scaled", title, "y")


@view(forecasts)
def forecast(
    run: Run, text: str | None = None, target: str | None = None, layer: int = -1,
    head: int | None = None,
) -> ForecastDrawing:  # fmt: skip
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
    truth, past = windows.table.values[rows, channel], np.full(read - 1, np.nan)
    three = ahead[:, ahead.shape[1] // 2], *np.sort(ahead, axis=1)[:, [0, -1]].T
    middle, *band = (np.append([*past, truth[read - 1]], values) for values in three)
    levels, name, unit = task.config.quantiles, task.names[channel], task.config.series.unit
    lines = line_chart(
        range(len(dates)), {"forecast": middle}, "date",
        f"{name} ({unit})" if unit else name, f"{name} from {dates[read]}",
        bands={"forecast": (band[0], band[1])} if len(levels) > 1 else {}, labels=dates,
        marks={"read up to t": read - 1},
        caption=f"band: quantiles {levels[0]:g} to {levels[-1]:g}" if len(levels) > 1 else "",
    )  # fmt: skip
    lines.curves.append(Curve(name="actual", y=truth, hue=Hue.LAYER, faint=True))
    strip = None if attends(run) else attention_strip(run, windows, text, target, layer, head)
    return ForecastDrawing(title=lines.title, lines=lines, strip=strip)


def attention_strip(
    run: Run, windows: Windows, text: str | None, target: str | None, layer: int, head: int | None
) -> SheetDrawing:
    """Return the share of attention of each row that was read, (1, L + H)."""
    record = run.explain(text, target)
    weights = record.select(next(iter(record.blocks())), layer, head)
    rows = np.diff([*run.model.starts(), windows.look_back])  # of each patch
    shares = np.repeat(weights.mean(axis=0) / rows.clip(1).astype(np.float32), rows)
    padded = np.append(shares, np.full(windows.horizon, np.nan))
    return sheet("share of attention", padded[None], scale=ColorScale(0.0))


EXAMPLES = 512  # of a split, evenly spread
TOGETHER = 64  # examples in a batch
FEWEST = 20  # examples that a position needs to be drawn
NAMES = {"nll": "loss in nats", "accuracy": "share of correct tokens", "mse": "squared error of x̂"}
Errors = NDArray[np.float64]


@dataclass(frozen=True)
class PlaceErrors:
    """Errors (P,) at each position after the prompt, each the mean over ``counts`` examples.

    ``forced`` has by name the errors after true tokens at all earlier positions, ``free`` those
    after tokens that the model wrote; ``nll`` is −log p(y_k | prefix), ``accuracy`` how often the
    most probable token was the true one, and ``mse`` that of a forecast.
    """

    counts: Errors
    forced: dict[str, Errors]
    free: dict[str, Errors]


@torch.inference_mode()
def place_errors(run: Run, split: str = "test") -> PlaceErrors:
    """Return exposure bias: how much worse a model is after its own output than after the truth
    (Bengio et al., 2015; Ranzato et al., 2016).

    The true token at position k is compared with the prediction after the true tokens, and
    after those that the model chose itself, greedily. A text that has once left the true one may
    continue well and still differ: the gap bounds exposure bias from above.
    """
    task = run.task
    if isinstance(task, Forecasting):
        evaluation = run.evaluate(split=split)
        curves = [np.array(evaluation.curves[n]) for n in ("teacher_forced", "forecast")]
        counts = np.full(len(curves[0]), float(len(task.windows(split))))
        return PlaceErrors(counts, {"mse": curves[0]}, {"mse": curves[1]})
    writer, model = run.need(Generates, "write text"), run.model
    collected: list[NDArray[np.float64]] = []
    chosen = spread(len(task.lengths(split)), EXAMPLES)
    for first in range(0, len(chosen), TOGETHER):
        batch = writer.decoder_batch(model, task.batch(split, chosen[first : first + TOGETHER]))
        own = tokens_of(model, batch.memory, batch.prompt)
        free_ids = autoregressive(own, batch.inputs, own.fixed(batch.inputs), "greedy")
        numbers = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
        parts = [(numbers + 1 - batch.prompt).expand(batch.inputs.shape)]
        for read in (batch.inputs, free_ids):
            logits = model.predict(read, batch.memory)
            parts += [-token_log_probabilities(logits, batch.targets)]
            parts += [logits.argmax(dim=-1) == batch.targets]
        columns = torch.stack([part.flatten().double() for part in parts])
        columns = columns if batch.counted is None else columns[:, batch.counted]
        collected.append(columns.cpu().numpy())
    places, *errors = np.concatenate(collected, axis=1)
    at = places.astype(int)
    counts = np.bincount(at).astype(float)
    means = [np.bincount(at, error) / np.maximum(counts, 1) for error in errors]
    forced, free = (dict(zip(("nll", "accuracy"), means[k : k + 2], strict=True)) for k in (0, 2))
    return PlaceErrors(counts, forced, free)


@view(exposed)
def exposure(runs: Sequence[Run], split: str = "test") -> PanelGrid:
    """Draw error by position: after the true tokens or rows, and after the model's own.

    Texts have the loss −log p and the accuracy of the true token; forecasts the squared error.
    Positions count from the first prediction; those with fewer than 20 examples are left out.
    """
    if split == "test" and any(evaluated_split(run.task) == "valid" for run in runs):
        split = "valid"
    by_run = {run.path.name: place_errors(run, split) for run in runs}
    is_series = all("mse" in each.free for each in by_run.values())
    across = "step after the start" if is_series else "position"
    labels = [str(n) for n in range(1, 1 + max(len(each.counts) for each in by_run.values()))]
    panels: dict[str, dict[str, Errors]] = {}
    for name, errors in by_run.items():
        enough = errors.counts >= min(FEWEST, errors.counts.max())
        own = "reads its own x̂" if "mse" in errors.free else "reads its own words"
        for mode, figures in (("reads the truth", errors.forced), (own, errors.free)):
            label = f"{name}, {mode}" if len(by_run) > 1 else mode
            for figure, values in figures.items():
                panels.setdefault(NAMES[figure], {})[label] = np.where(enough, values, np.nan)
    return PanelGrid(
        panels=[line_chart(None, y, across, up, labels=labels) for up, y in panels.items()],
        title=f"Exposure bias, {split}",
    )
