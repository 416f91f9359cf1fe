"""Forecasting: the only file that knows both series and model.

loss   = Σ error of the predicted values, scaled, over channels, steps and windows
answer = the values of the steps after the last row, in their own units
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import BaseConfig, ConfigError
from foveate.data.catalogue import DataError
from foveate.data.series import Dates, Table, calendar, divide, following, labels, parse_date
from foveate.data.windows import Windows
from foveate.look.forced import ForcedPass, Maps
from foveate.look.record import AttentionRecord
from foveate.look.words import Units
from foveate.models.forecaster import Forecaster, Outlook
from foveate.spec import Series
from foveate.tasks.base import Loss, Measures, Sample
from foveate.tasks.forecast_figures import mae, mse
from foveate.tasks.forecast_judge import (
    SIGNATURES,
    by_step,
    by_window,
    figures_of,
    middle,
    naive_forecasts,
)
from foveate.tasks.forecast_output import Forecast, ForecastEvaluation
from foveate.tasks.objective_forecast import ForecastObjective
from foveate.tasks.series_task import SeriesBatch, SeriesTask

TOGETHER = 256  # windows forecast at once
SHOWN = 6  # values of a sample


def not_about_numbers(kind: str | None) -> ConfigError:
    """The error for an objective of another family."""
    return ConfigError(
        f"{kind!r} is not about numbers: set objective.kind to "
        '"squared_error", "absolute_error" or "quantile", or leave out [objective]',
        ("objective", "kind"),
    )


class Forecasting(SeriesTask):
    """The next rows of a series from the last ones."""

    class Config(SeriesTask.Config, kind="forecasting"):
        """``look_back`` L rows are read, ``horizon`` H rows are asked for."""

        def check_objective(self, objective: BaseConfig) -> None:
            if not issubclass(objective.owner or object, ForecastObjective):
                raise not_about_numbers(objective.kind)
            objective.build().check_levels(self.quantiles)

    config: Config

    # ---- model

    def build(self, model: Forecaster.Config) -> nn.Module:
        config = self.config
        outlook = Outlook(config.horizon, len(config.calendar), max(1, len(config.quantiles)))
        built: nn.Module = model.build(Series(len(self.names), config.look_back), outlook)
        return built

    def loss(self, model: Forecaster, batch: SeriesBatch, objective: ForecastObjective) -> Loss:
        if not isinstance(objective, ForecastObjective):
            raise not_about_numbers(objective.config.kind)
        batch = batch.to(next(model.parameters()).device)
        predicted, wanted = model.teach(batch.values, batch.calendar, batch.wanted)
        return objective(predicted, wanted, self.config.quantiles)

    def measure(self, model: Forecaster, split: str, search: Any, samples: int = 3) -> Measures:
        windows = self.some(split)
        said = self.predict(model, windows)
        figures = figures_of(said, windows, self.scaling, self.naive, self.config.quantiles)
        figures["loss"] = figures["crps"] / 2 if self.config.quantiles else figures["mse"]
        every = max(1, len(windows) // max(1, samples))
        chosen = range(0, len(windows), every)[:samples]
        return Measures(figures, [self._sample(windows, said, i) for i in chosen])

    def better(self, name: str) -> int:
        return 1 if name == "coverage" else -1

    @torch.inference_mode()
    def predict(
        self, model: Forecaster, windows: Windows, teacher_forced: bool = False
    ) -> NDArray[np.float32]:
        """What a model says of all windows, scaled: (M, H, C, Q)."""
        device, found = next(model.parameters()).device, []
        for first in range(0, len(windows), TOGETHER):
            rows = range(first, min(first + TOGETHER, len(windows)))
            batch = SeriesBatch(*map(torch.from_numpy, windows.take(rows))).to(device)
            if teacher_forced:
                said = model.teach(batch.values, batch.calendar, batch.wanted)[0]
                said = said[:, -windows.horizon :]
            else:
                said = model(batch.values, batch.calendar)
            found.append(said.float().cpu().numpy())
        return np.concatenate(found)

    def _sample(self, windows: Windows, said: NDArray[np.float32], index: int) -> Sample:
        """The last channel (by custom the target) of one window, in its own units."""
        read, _, wanted = (part[0] for part in windows.take([index]))
        shown = (read[-SHOWN:], wanted[:SHOWN], middle(said[index])[:SHOWN])
        texts = [" ".join(f"{v:.4g}" for v in self.scaling.leave(part)[:, -1]) for part in shown]
        date = labels(windows.asked()[index : index + 1], windows.table.dates)[0]
        return Sample(f"{self.names[-1]} before {date}: {texts[0]}", texts[1], texts[2])

    # ---- answers

    def evaluate(
        self, model: Forecaster, examples: Windows, search: Any = None, batch_tokens: int = 8192
    ) -> ForecastEvaluation:
        said = self.predict(model, examples)
        figures = figures_of(said, examples, self.scaling, self.naive, self.config.quantiles)
        forecasts = {"forecast": middle(said)}
        if model.feeds_back:
            forecasts["teacher_forced"] = middle(self.predict(model, examples, True))
        forecasts |= naive_forecasts(examples, self.config.season)
        for name, forecast in list(forecasts.items())[1:]:
            figures[f"{name}_mse"] = mse(forecast, examples.wanted())
            figures[f"{name}_mae"] = mae(forecast, examples.wanted())
        errors = by_window(forecasts["forecast"], examples)
        dates = labels(examples.asked(), examples.table.dates)
        return ForecastEvaluation(
            figures,
            {name: text for name, text in SIGNATURES.items() if name in figures},
            [f"{date}\tmse {error:.6g}" for date, error in zip(dates, errors, strict=True)],
            curves={name: by_step(forecast, examples) for name, forecast in forecasts.items()},
        )

    def forecast(self, model: Forecaster, source: str | Path | None = None) -> Forecast:
        """The rows after the end of a file (of the run's own series where it is absent).

        Raises `DataError` where the file has fewer rows than the model reads.
        """
        table, config = self.table() if source is None else self.read_file(source), self.config
        if len(table) < config.look_back:
            raise DataError(f"{table.file}: {len(table)} rows; the model reads {config.look_back}")
        within = table.gaps[table.gaps > len(table) - config.look_back]
        if len(within):
            raise DataError(
                f"{table.gap(int(within[-1]))}; the model reads {config.look_back} rows without a "
                'gap: add the missing rows, or set task.series.gaps = "ignore"'
            )
        ahead = following(table.dates, config.horizon)
        return self._said(model, table, slice(len(table) - config.look_back, None), ahead)

    def forecast_at(self, model: Forecaster, date: str) -> Forecast:
        """What a model that has read the rows before a date says of those from it on.

        Raises `ConfigError` naming the dates at which a forecast can begin.
        """
        windows = self.at(date)
        first = int(windows.starts[0])
        row = first + windows.look_back
        ahead = windows.table.dates[row : row + windows.horizon]
        return self._said(model, windows.table, slice(first, row), ahead)

    @torch.inference_mode()
    def _said(self, model: Forecaster, table: Table, read: slice, ahead: Dates) -> Forecast:
        """The forecast for some dates after the rows read, in the units of the series."""
        config, device = self.config, next(model.parameters()).device
        dates = np.concatenate((table.dates[read], ahead))
        values = torch.from_numpy(self.scaling.enter(table.values[read]))[None]
        features = torch.from_numpy(calendar(dates, config.calendar))[None]
        said = model(values.to(device), features.to(device))[0].float().cpu().numpy()
        original = self.scaling.leave(said.swapaxes(1, 2)).swapaxes(1, 2)  # channels last
        quantiles = np.sort(original, axis=-1) if config.quantiles else None
        return Forecast(ahead, self.names, middle(original), quantiles, config.quantiles)

    def forced(
        self,
        model: Forecaster,
        source: str | None = None,
        target: str | None = None,
        search: Any = None,
    ) -> ForcedPass:
        """One forecast of a channel, dates on both axes of its maps.

        ``source`` is the date of the first row asked for (the first of the test rows if absent),
        ``target`` the channel (the last if absent).
        """
        windows = self.at(source)
        channel = self.channel(target)
        device = next(model.parameters()).device
        read = [torch.from_numpy(part).to(device) for part in windows.take([0])[:2]]
        first, row = int(windows.starts[0]), int(windows.starts[0]) + windows.look_back
        asked = labels(windows.table.dates[row : row + windows.horizon], windows.table.dates)

        def run() -> Tensor:
            ahead: Tensor = model(*read)[0, :, channel]
            return ahead[:, ahead.shape[1] // 2]

        def dated(maps: Maps, units: Units) -> AttentionRecord:
            if not maps:
                raise ValueError(f"{model.config.kind} has no attention to look at")
            rows = [first + start for start in model.starts()]
            dates = labels(windows.table.dates[rows], windows.table.dates)
            title = f"{self.names[channel]} from {asked[0]}; each label is the start of a patch"
            return AttentionRecord(dict(maps), {"": dates}, {"": dates}, title)

        return ForcedPass(model, run, dated, asked, row=channel, told="forecast")

    def channel(self, name: str | None) -> int:
        """The number of a channel, the last where none is named."""
        if name is not None and name not in self.names:
            raise ConfigError(f"no channel {name!r}; there are: {', '.join(self.names)}")
        return len(self.names) - 1 if name is None else self.names.index(name)

    def at(self, date: str | None) -> Windows:
        """The one window that is asked for the row of a date; absent, the first test row."""
        table, length = self.table(), self.config.look_back
        if date is None:
            row = divide(len(table), self.config.series)["test"][0]
        else:
            row = int(np.searchsorted(table.dates, parse_date(date)))
        last = len(table) - self.config.horizon
        if not length <= row <= last:
            span = labels(table.dates[[length, last]], table.dates)
            raise ConfigError(f"{date}: a forecast can begin from {span[0]} to {span[1]}")
        window = self.cut(table, (row, row + self.config.horizon))
        if not len(window):
            inside = table.gaps[(table.gaps > row - length) & (table.gaps < row + length)]
            raise ConfigError(f"{table.gap(int(inside[0]))}: no forecast spans it; choose a date")
        return window
