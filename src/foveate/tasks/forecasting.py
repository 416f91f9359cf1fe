"""Forecasting: from the past rows of a series to its next ones."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, ConfigError, from_json
from foveate.data.notation import parse_date
from foveate.data.series import (
    CALENDAR,
    SPLITS,
    Floats,
    Scaling,
    SeriesData,
    SeriesTable,
    Windows,
    calendar,
    divide,
    labels,
    read_table,
    starts,
)
from foveate.data.text import TextData, portions
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.models.forecaster import After, Forecaster, Outlook
from foveate.nn.spec import Series
from foveate.tasks.base import Loss, Measures, Task, TensorBatch, ValidationSample, by_split, spread
from foveate.tasks.objectives import Objective
from foveate.tasks.teacher_forcing import Predictions, Scheduled

Array = NDArray[np.floating]
F = TypeVar("F", bound=np.generic)


# Figures of forecasts: plain functions of arrays, each its formula and its source.
#
# Shapes: predicted and target (M, H, C), quantiles (M, H, C, Q): M windows, H steps, C channels.


def mse(predicted: Array, target: Array) -> float:
    """Mean (ŷ − y)²."""
    return float(np.square(predicted - target, dtype=np.float64).mean())


def mae(predicted: Array, target: Array) -> float:
    """Mean |ŷ − y|."""
    return float(np.abs(predicted - target, dtype=np.float64).mean())


def naive_error(history: Array, season: int = 1) -> NDArray[np.float64]:
    """mean_t |x_t − x_{t−m}| of each channel of (N, C): what the naive forecast of season m errs.

    Raises `UserError` where the history has no more than a season.
    """
    if len(history) <= season:
        raise UserError(f"task.season = {season} needs more than {len(history)} rows to train on")
    return np.asarray(np.abs(history[season:] - history[:-season], dtype=np.float64).mean(axis=0))


def mase(predicted: Array, target: Array, naive: Array) -> float:
    """Mean over channels of MAE / (naive error of the training rows) (Hyndman & Koehler, 2006).

    Below 1 is better than repeating what was a season ago. Channels that never change are left out.
    """
    error = np.abs(predicted - target, dtype=np.float64).mean(axis=(0, 1))
    moving = naive > 0
    return float((error[moving] / naive[moving]).mean()) if moving.any() else float("nan")


def pinball(quantiles: Array, target: Array, levels: Sequence[float]) -> NDArray[np.float64]:
    """Mean max(q (y − ŷ_q), (q − 1)(y − ŷ_q)) for each level (Koenker & Bassett, 1978)."""
    q = np.asarray(levels)
    above = target[..., None].astype(np.float64) - quantiles
    return np.asarray(np.maximum(q * above, (q - 1) * above).mean(axis=(0, 1, 2)))


def crps(quantiles: Array, target: Array, levels: Sequence[float]) -> float:
    """2 · mean_q pinball_q: the continuous ranked probability score ∫ 2 pinball_q dq, over the
    levels that there are (Gneiting & Raftery, 2007). Of the median alone it is the MAE.
    """
    return float(2 * pinball(quantiles, target, levels).mean())


def coverage(quantiles: Array, target: Array) -> float:
    """The share of values between the lowest and the highest quantile."""
    return float(((quantiles[..., 0] <= target) & (target <= quantiles[..., -1])).mean())


# Judging forecasts of many windows: all figures, naive forecasts beside them, error by step.

SIGNATURES = {
    "mse": "free-running, scaled by the training rows, mean of windows, steps and channels",
    "mase": "MAE of each channel over that of the naive forecast on the training rows",
    "crps": "2 · mean pinball loss of the levels, scaled",
    "coverage": "share of values between the outer levels",
    "original_mse": "in the units of the file, mean of the channels",
}


def figures_of(
    predicted: Floats,
    windows: Windows,
    scaling: Scaling,
    naive: NDArray[np.float64],
    levels: tuple[float, ...],
) -> dict[str, float]:
    """All figures of forecasts (M, H, C, Q); ``naive`` is the error of each channel, (C,)."""
    target, forecast = windows.targets(), middle(predicted)
    original, truth = scaling.leave(forecast), scaling.leave(target)
    figures = {
        "mse": mse(forecast, target),
        "mae": mae(forecast, target),
        "mase": mase(original, truth, naive),
        "original_mse": mse(original, truth),
        "original_mae": mae(original, truth),
    }
    if levels:
        figures |= {
            "crps": crps(predicted, target, levels),
            "coverage": coverage(predicted, target),
        }
    return figures


def middle(levels: NDArray[F]) -> NDArray[F]:
    """The forecast (…) among the levels (…, Q): the median, or the only one."""
    return levels[..., levels.shape[-1] // 2]


def naive_forecasts(windows: Windows, season: int) -> dict[str, Floats]:
    """Return forecasts without a model, (M, H, C): the last value, and that a season before."""
    after = windows.starts + windows.look_back  # the first row of the forecast
    steps = np.arange(windows.horizon)
    rows = {"last_value": (after - 1)[:, None] + 0 * steps}
    if 1 < season <= windows.look_back:
        rows["seasonal_naive"] = (after - season)[:, None] + steps % season
    return {name: windows.values[chosen] for name, chosen in rows.items()}


def by_window(forecast: Floats, windows: Windows) -> Floats:
    """Mean (ŷ − y)² of each window, over steps and channels."""
    return np.square(forecast - windows.targets()).mean(axis=(1, 2))


# What forecasts minimise: squared, absolute, or quantile error.


class ForecastObjective(Objective):
    """A loss between predicted (…, Q) and target values (…), summed over all of them."""

    numeric = True
    many_levels = False  # whether it is about quantiles

    def __call__(
        self,
        predicted: Float[Tensor, "*B Q"],
        target: Float[Tensor, "*B"],
        levels: tuple[float, ...],
    ) -> Loss:
        return Loss(self.total(predicted, target, levels), target.numel())

    def total(self, predicted: Tensor, target: Tensor, levels: tuple[float, ...]) -> Tensor:
        """The sum over all values."""
        raise NotImplementedError


class SquaredError(ForecastObjective, kind="squared_error"):
    """Σ (ŷ − y)²; its best forecast is the mean."""

    def total(self, predicted: Tensor, target: Tensor, levels: tuple[float, ...]) -> Tensor:
        return (predicted[..., 0] - target).square().sum()


class QuantileError(ForecastObjective, kind="quantile"):
    """Σ mean_q max(q (y − ŷ_q), (q − 1)(y − ŷ_q)), q = ½: |y − ŷ| / 2 (Koenker & Bassett, 1978)."""

    many_levels = True

    def total(self, predicted: Tensor, target: Tensor, levels: tuple[float, ...]) -> Tensor:
        q = predicted.new_tensor(levels)
        above = target[..., None] - predicted
        return (q * above).maximum((q - 1) * above).mean(dim=-1).sum()


# loss   = Σ error of the predicted values, scaled, over channels, steps and windows
# answer = the values of the steps after the last row, in their own units

TOGETHER = 256  # windows forecast at once
SHOWN = 6  # values of a sample
FITTED = "series.json"  # in the run: channels, scaling, the naive error of the training rows


@dataclass(frozen=True)
class SeriesBatch(TensorBatch):
    """``values`` (B, L, C) read, ``calendar`` (B, L + H, F) of all rows, ``target`` (B, H, C)."""

    values: Tensor
    calendar: Tensor
    target: Tensor


class Forecasting(Task[SeriesBatch]):
    """The next rows of a series from the last ones."""

    class Config(Task.Config, kind="forecasting"):
        """``look_back`` L rows are read, ``horizon`` H rows are forecast."""

        series: SeriesData  # the CSV, its columns and how it is divided
        look_back: int = Field(96, gt=0)  # steps that the model reads
        horizon: int = Field(24, gt=0)  # steps that it forecasts
        scaling: Scaling.Config = Scaling.Config()  # how values are scaled before they are read
        calendar: tuple[str, ...] = ()  # features of the date: hour, weekday, day, month, year
        quantiles: tuple[float, ...] = ()  # an odd number of levels, 0.5 in the middle
        season: int = Field(1, gt=0)  # steps; of the naive forecast that MASE compares with

        @pydantic.field_validator("calendar")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            if wrong := [name for name in names if name not in CALENDAR]:
                raise UserError(f"no feature {wrong[0]!r}; there are: {', '.join(CALENDAR)}")
            return names

        @pydantic.field_validator("quantiles")
        @classmethod
        def _centred(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
            rising = all(0 < a < b < 1 for a, b in zip((1e-9, *levels), levels, strict=False))
            if levels and not (rising and len(levels) % 2 and levels[len(levels) // 2] == 0.5):
                raise UserError("quantiles rise between 0 and 1 with 0.5 in the middle")
            return levels

        @property
        def default_objective(self) -> str:
            return "quantile" if self.quantiles else "squared_error"

        def check_objective(self, objective: BaseConfig) -> None:
            if not issubclass(objective.owner or object, ForecastObjective):
                raise ConfigError(
                    f"{objective.kind!r} does not apply to numbers: set objective.kind to "
                    '"squared_error" or "quantile", or leave out [objective]',
                    ("objective", "kind"),
                )
            if objective.build().many_levels != bool(self.quantiles):
                have, remedy = "task.quantiles is empty", "name them: [0.1, 0.5, 0.9]"
                if self.quantiles:
                    have, remedy = "task.quantiles are given", 'set objective.kind = "quantile"'
                raise UserError(f"objective {objective.kind!r}, but {have}; {remedy}")
            forcing = objective.teacher_forcing if isinstance(objective, Objective.Config) else None
            if isinstance(forcing, Scheduled.Config) and forcing.choose == "sample":
                raise ConfigError(
                    'a forecast is a number, not a sample: leave out choose = "sample"',
                    ("objective", "teacher_forcing", "choose"),
                )

    figures = (
        *("loss", "mse", "mae", "mase", "original_mse", "original_mae"),
        *("crps", "coverage"),  # with quantiles
    )
    reads, gives = "series", "forecast"
    own_outputs = True
    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        """``data`` is for text; a series is described in ``task.series``."""
        super().__init__(config, data)
        self.names: tuple[str, ...] = ()
        self.scaling: Scaling = config.scaling.build()
        self.naive: NDArray[np.float64] = np.zeros(0)

    def prepare(self, folder: Path, seed: int) -> None:
        table = self.table
        first, end = divide(len(table), self.config.series)["train"]
        rows = table.values[first:end]
        self.names = table.names
        self.scaling.fit(rows)
        self.naive = naive_error(rows, self.config.season)
        fitted = {
            "names": list(self.names),
            "shift": self.scaling.shift.tolist(),
            "scale": self.scaling.scale.tolist(),
            "naive": self.naive.tolist(),
        }
        replace_file(folder / FITTED, json.dumps(fitted, indent=1) + "\n")
        if not len(self.windows("train")):
            need = self.config.look_back + self.config.horizon
            without = " without a gap" if len(table.gaps) else ""
            raise ConfigError(
                f"{len(rows)} training rows hold no window of {need}{without}; shorten it"
            )

    def restore(self, folder: Path) -> None:
        def fitted(tree: dict[str, Any]) -> None:
            self.names = tuple(map(str, tree["names"]))
            self.scaling.shift, self.scaling.scale, self.naive = (
                np.array(tree[key], dtype=np.float64) for key in ("shift", "scale", "naive")
            )

        from_json(folder / FITTED, fitted)

    @cached_property
    def table(self) -> SeriesTable:
        """The run's own series."""
        return read_table(self.config.series)

    @by_split
    def windows(self, split: str) -> Windows:
        """The windows of a split of the run's own series. Raises ``ConfigError`` for another."""
        if split not in SPLITS:
            raise ConfigError(f"no split {split!r} of a series; there are: {', '.join(SPLITS)}")
        return self.cut(self.table, divide(len(self.table), self.config.series)[split])

    def cut(self, table: SeriesTable, rows: tuple[int, int]) -> Windows:
        """The windows whose horizon lies in some rows of a table."""
        config = self.config
        return Windows(
            table,
            self.scaling.enter(table.values),
            calendar(table.dates, config.calendar),
            starts(rows, config.look_back, config.horizon, table.gaps),
            config.look_back,
            config.horizon,
        )

    def digest(self, split: str) -> str:
        table = self.table
        rows = slice(*divide(len(table), self.config.series)[split])
        content = table.values[rows].tobytes() + table.dates[rows].tobytes()
        return hashlib.sha256(content).hexdigest()

    def lengths(self, split: str) -> NDArray[np.int32]:
        rows = self.config.look_back + self.config.horizon
        return np.full((len(self.windows(split)), 1), rows, dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> SeriesBatch:
        return SeriesBatch(*map(torch.from_numpy, self.windows(split).take(indices)))

    def describe_data(self) -> list[str]:
        """Describe what was read, filled in and left unused, and the windows of each split."""
        table = self.table
        dates = labels(table.dates)
        parts = divide(len(table), self.config.series)
        unused = len(table) - parts["test"][1]
        lines = [
            f"{table.file}: {len(table):,} rows from {dates[0]} to {dates[-1]}, "
            f"channels {', '.join(table.names)}"
        ]
        lines += [f"{count:,} missing values of {n} filled in" for n, count in table.filled.items()]
        if len(table.gaps):
            size = self.config.look_back, self.config.horizon
            lost = sum(
                len(starts(rows, *size)) - len(starts(rows, *size, table.gaps))
                for rows in parts.values()
            )
            lines.append(
                f"gaps: {len(table.gaps):,}, the first: {table.gap(int(table.gaps[0]))}; "
                f"{lost:,} windows that would span one are left out"
            )
        if (table.delimiter, table.decimal) != (",", "."):
            lines.append(f"cells between {table.delimiter!r}, decimal mark {table.decimal!r}")
        if table.utc:
            lines.append("dates: converted to UTC, of which they say their offsets")
        for name, (first, end) in parts.items():
            period = f"{dates[first]} to {dates[end - 1]}" if end > first else "no rows"
            lines.append(f"{name}: {period}, {len(self.windows(name)):,} windows")
        return [*lines, f"{unused:,} rows after the test rows are not used"] if unused else lines

    def windows_of(self, split: str) -> Windows:
        """Return the windows of a split. Raises ``ConfigError`` if there is none."""
        windows = self.windows(split)
        if not len(windows):
            need = self.config.look_back + self.config.horizon
            raise ConfigError(f"{split} has no window of {need} rows; give it more rows")
        return windows

    def read_file(self, source: str | Path) -> SeriesTable:
        """A file with the channels of the run, in a notation of its own."""
        own = {"values": self.names, "delimiter": None, "decimal": None}
        return read_table(self.config.series.model_copy(update=own), source)

    def build(self, model: Forecaster.Config) -> nn.Module:
        config = self.config
        outlook = Outlook(config.horizon, len(config.calendar), max(1, len(config.quantiles)))
        return model.build(Series(len(self.names), config.look_back), outlook)

    def loss(self, model: Forecaster, batch: SeriesBatch, objective: ForecastObjective) -> Loss:
        batch = batch.to(next(model.parameters()).device)

        def mix(rows: Tensor, after: After) -> Tensor:
            own = Predictions(lambda read, _: after(read), prompt=self.config.look_back)
            return objective.read(lambda: own, rows)

        predicted, target = model.teach(batch.values, batch.calendar, batch.target, mix)
        return objective(predicted, target, self.config.quantiles)

    def measure(self, model: Forecaster, split: str, search: Search, samples: int = 3) -> Measures:
        windows = self.windows_of(split)
        predicted = self.predict(model, windows)
        figures = figures_of(predicted, windows, self.scaling, self.naive, self.config.quantiles)
        figures["loss"] = figures["crps"] / 2 if self.config.quantiles else figures["mse"]
        chosen = spread(len(windows), samples)
        return Measures(figures, [self._sample(windows, predicted, i) for i in chosen])

    @torch.inference_mode()
    def predict(
        self, model: Forecaster, windows: Windows, teacher_forced: bool = False
    ) -> NDArray[np.float32]:
        """Return a model's forecasts of all windows, scaled: (M, H, C, Q)."""
        device, batches = next(model.parameters()).device, []
        for rows in portions(range(len(windows)), TOGETHER):
            part = SeriesBatch(*map(torch.from_numpy, windows.take(rows))).to(device)
            predicted = (
                model.teach(part.values, part.calendar, part.target)[0][:, -windows.horizon :]
                if teacher_forced
                else model(part.values, part.calendar)
            )
            batches.append(predicted.float().cpu().numpy())
        return np.concatenate(batches)

    def _sample(
        self, windows: Windows, predicted: NDArray[np.float32], index: int
    ) -> ValidationSample:
        """The last channel (by custom the target) of one window, in its own units."""
        read, _, target = (part[0] for part in windows.take([index]))
        shown = (read[-SHOWN:], target[:SHOWN], middle(predicted[index])[:SHOWN])
        texts = [" ".join(f"{v:.4g}" for v in self.scaling.leave(part)[:, -1]) for part in shown]
        date = labels(windows.first_dates()[index : index + 1], windows.table.dates)[0]
        return ValidationSample(f"{self.names[-1]} before {date}: {texts[0]}", texts[1], texts[2])

    def channel(self, name: str | None) -> int:
        """The number of a channel, the last where none is named."""
        if name is not None and name not in self.names:
            raise ConfigError(f"no channel {name!r}; there are: {', '.join(self.names)}")
        return len(self.names) - 1 if name is None else self.names.index(name)

    def at(self, date: str | None) -> Windows:
        """The window whose forecast begins at a date; without one at the first test row."""
        table, length = self.table, self.config.look_back
        if date is None:
            row = divide(len(table), self.config.series)["test"][0]
        else:
            row = int(np.searchsorted(table.dates, parse_date(date)))
        last, end = len(table) - self.config.horizon, row + self.config.horizon
        if not length <= row <= last:
            span = labels(table.dates[[length, last]], table.dates)
            named = date or "the test rows are too few for a forecast"
            raise ConfigError(f"{named}: a forecast can begin from {span[0]} to {span[1]}")
        window = self.cut(table, (row, end))
        if not len(window):
            inside = table.gaps[(table.gaps > row - length) & (table.gaps < end)]
            raise ConfigError(f"{table.gap(int(inside[0]))}: no forecast spans it; choose a date")
        return window
