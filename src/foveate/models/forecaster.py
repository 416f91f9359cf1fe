"""Forecasters: the last L rows of a series in, the next H out, for every channel and quantile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.models.encoder_decoder import Encoder, Model
from foveate.models.transformer import TransformerEncoder
from foveate.nn.embedding import SeriesPatches
from foveate.nn.linear import Dropout
from foveate.nn.positions import Learned
from foveate.nn.recurrent import Cell, GRUCell, Hidden, RecurrentStack
from foveate.nn.spec import Series


@dataclass(frozen=True)
class Outlook:
    """The shape of a forecast: ``steps`` H ahead, ``levels`` Q numbers for each value (quantiles,
    or 1), with ``calendar`` F features of each row.
    """

    steps: int
    calendar: int = 0
    levels: int = 1


Rows = Float[Tensor, "B L C"]  # the look-back, scaled
Calendar = Float[Tensor, "B A F"]  # features of the A = L + H rows
Ahead = Float[Tensor, "B H C"]  # the rows to forecast
After = Callable[[Tensor], Tensor]
"""Reads further rows (B, k, C) and predicts the one after the last."""
Mix = Callable[[Tensor, After], Tensor]
"""Returns what training reads instead of the true rows (B, T, C), given the model's predictions."""


Statistics = tuple[Tensor, Tensor]  # shift and scale, (B, 1, C) each


class WindowNorm(FromConfig, nn.Module):
    """Normalises each window of a series by its own look-back, undone on the forecast.

    z = (x − shift) / scale is the input of the model, y = scale z + shift the forecast.
    """

    class Config(BaseConfig, family="window_norm"):
        """The kind of normalisation."""

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        """Return the shift and scale of each window and channel."""
        raise NotImplementedError

    def enter(self, values: Float[Tensor, "B T C"], of: Statistics) -> Float[Tensor, "B T C"]:
        """Normalise the input of the model."""
        shift, scale = of
        return (values - shift) / scale

    def leave(self, values: Float[Tensor, "B T C Q"], of: Statistics) -> Float[Tensor, "B T C Q"]:
        """Bring the output of the model to the scale of its input."""
        shift, scale = of
        return values * scale[..., None] + shift[..., None]


class NoWindowNorm(WindowNorm, kind="none"):
    """Windows as they are."""

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return torch.zeros_like(last), torch.ones_like(last)


class LastValue(WindowNorm, kind="last_value"):
    """Minus the last value (NLinear: Zeng et al., 2023)."""

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return last, torch.ones_like(last)


class Instance(WindowNorm):
    """Mean 0 and variance 1 (RevIN: Kim et al., 2022, without its learnt affine map)."""

    differs = "without the learnable affine transformation of Kim et al. (2022)"

    class Config(WindowNorm.Config, kind="instance"):
        eps: float = 1e-5  # added to the variance

    config: Config

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        variance = values.var(dim=1, keepdim=True, correction=0)
        return values.mean(dim=1, keepdim=True), (variance + self.config.eps).sqrt()


class Forecaster(Model):
    """ŷ_{t+1 … t+H} = f(x_{t−L+1 … t}, calendar); of Q levels the middle one is the forecast."""

    class Config(Model.Config):
        """``window_norm`` normalises each window and is undone on its forecast."""

        window_norm: WindowNorm.Config = Instance.Config()
        """What is subtracted from each window and added to its forecast."""

    config: Config
    feeds_back = False  # whether predictions are read as the next input in use

    def __init__(self, config: Config, series: Series, outlook: Outlook) -> None:
        super().__init__(config)
        self.series, self.outlook = series, outlook
        self.window_norm: WindowNorm = config.window_norm.build()

    def forward(self, values: Rows, calendar: Calendar) -> Float[Tensor, "B H C Q"]:
        """Return the forecast; ``calendar`` covers all A = L + H rows."""
        raise NotImplementedError

    def starts(self) -> list[int]:
        """Return the look-back row at which each position that attention sees begins."""
        return list(range(self.series.length))

    def teach(
        self, values: Rows, calendar: Calendar, target: Ahead, mix: Mix | None = None
    ) -> tuple[Float[Tensor, "B T C Q"], Float[Tensor, "B T C"]]:
        """Return predictions and targets of training; the last H of their T rows are the horizon.

        A model that feeds back its own predictions in use reads the true values here, or those that
        ``mix`` makes of them.
        """
        return self(values, calendar), target


class LinearForecaster(Forecaster):
    """ŷ = W x + b for each channel by itself, the same W for all (NLinear: Zeng et al., 2023).

    With ``trend_window`` k the moving average of k steps and the remainder have a W each (DLinear).
    """

    class Config(Forecaster.Config, kind="linear_forecaster"):
        window_norm: WindowNorm.Config = LastValue.Config()
        trend_window: int | None = Field(None, gt=0)
        """Steps of the moving mean that divides trend and rest; absent: no division."""

    config: Config

    def __init__(self, config: Config, series: Series, outlook: Outlook) -> None:
        super().__init__(config, series, outlook)
        size = outlook.steps * outlook.levels
        self.rest = nn.Linear(series.length, size)
        self.trend = None if config.trend_window is None else nn.Linear(series.length, size)

    def forward(self, values: Rows, calendar: Calendar) -> Float[Tensor, "B H C Q"]:
        of = self.window_norm.statistics(values)
        x = self.window_norm.enter(values, of).mT  # (B, C, L)
        if self.trend is None:
            y = self.rest(x)
        else:
            trend = _moving_average(x, cast(int, self.config.trend_window))
            y = self.rest(x - trend) + self.trend(trend)
        return self.window_norm.leave(_ahead(y, self.outlook), of)


class Patch(Forecaster):
    """Each channel by itself through an encoder of patches; ŷ = W [h_1; …; h_n] + b (PatchTST: Nie
    et al., 2023).
    """

    differs = 'layer norm; for the batch norm of Nie et al. (2023), set encoder.norm = "batch_norm"'

    class Config(Forecaster.Config, kind="patch_forecaster"):
        """``dropout`` is that of the head; the encoder's stem must read series."""

        encoder: Encoder.Config = TransformerEncoder.Config(
            stem=SeriesPatches.Config(), position=Learned.Config()
        )
        """What reads the patches."""
        dropout: float = Field(0.0, ge=0, lt=1)  # before the output layer

    def __init__(self, config: Config, series: Series, outlook: Outlook) -> None:
        super().__init__(config, series, outlook)
        self.encoder: Encoder = config.encoder.build(Series(1, series.length))
        places = self._stem().places * self.encoder.output_size
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(places, outlook.steps * outlook.levels)

    def starts(self) -> list[int]:
        return self._stem().starts()

    def _stem(self) -> SeriesPatches:
        return cast(SeriesPatches, self.encoder.stem)

    def forward(self, values: Rows, calendar: Calendar) -> Float[Tensor, "B H C Q"]:
        of = self.window_norm.statistics(values)
        x = self.window_norm.enter(values, of)
        memory = self.encoder(x.mT.flatten(0, 1)[..., None])  # (B, L, C) -> (B·C, L, 1)
        y = self.head(self.dropout(memory.values.flatten(1)))  # (B·C, n·D) -> (B·C, H·Q)
        return self.window_norm.leave(_ahead(y.unflatten(0, values.shape[::2]), self.outlook), of)


class Recurrent(Forecaster):
    """o_t = cells([calendar_t; x_t]), x̂_{t+1} = W o_t + b; in use x̂ is read as the next x.

    Training reads the true values at every step unless ``objective.teacher_forcing`` says
    otherwise: a model that has read no predictions never learns to correct their errors, which add
    up along the horizon.
    """

    class Config(Forecaster.Config, kind="rnn_forecaster"):
        cell: Cell.Config = GRUCell.Config()  # the recurrent cell
        hidden_size: int = Field(64, gt=0)  # size of the state
        num_layers: int = Field(1, gt=0)  # layers of cells, one above the other
        dropout: float = Field(0.0, ge=0, lt=1)  # between layers

    feeds_back = True

    def __init__(self, config: Config, series: Series, outlook: Outlook) -> None:
        super().__init__(config, series, outlook)
        size = outlook.calendar + series.channels
        self.stack = RecurrentStack(
            config.cell, size, config.hidden_size, config.num_layers, dropout=config.dropout
        )
        self.head = nn.Linear(config.hidden_size, series.channels * outlook.levels)

    def forward(self, values: Rows, calendar: Calendar) -> Float[Tensor, "B H C Q"]:
        of = self.window_norm.statistics(values)
        x = self.window_norm.enter(values, of)
        after = self._follow(calendar)
        forecasts = [after(x)]
        for _ in range(self.outlook.steps - 1):
            forecasts.append(after(forecasts[-1][..., self.outlook.levels // 2]))
        return self.window_norm.leave(torch.cat(forecasts, dim=1), of)

    def teach(
        self, values: Rows, calendar: Calendar, target: Ahead, mix: Mix | None = None
    ) -> tuple[Float[Tensor, "B T C Q"], Float[Tensor, "B T C"]]:
        """Predict every row but the first from the rows before it: T = L + H − 1."""
        of = self.window_norm.statistics(values)
        rows = torch.cat((values, target), dim=1)
        x = self.window_norm.enter(rows, of)[:, :-1]
        if mix is not None:
            after, middle = self._follow(calendar), self.outlook.levels // 2
            x = mix(x, lambda read: after(read)[:, 0, :, middle])
        outputs, _ = self.stack(torch.cat((calendar[:, :-1], x), dim=-1))
        return self.window_norm.leave(self._forecast(outputs), of), rows[:, 1:]

    def _forecast(self, outputs: Tensor) -> Float[Tensor, "B T C Q"]:
        forecast: Tensor = self.head(outputs)
        return forecast.unflatten(-1, (self.series.channels, self.outlook.levels))

    def _follow(self, calendar: Calendar) -> After:
        """Return a function from the next rows (B, k, C) to the prediction (B, 1, C, Q) after."""
        hidden: list[Hidden] = []
        place = 0

        def after(rows: Tensor) -> Tensor:
            nonlocal place, hidden
            x = torch.cat((calendar[:, place : place + rows.shape[1]], rows), dim=-1)
            place += rows.shape[1]
            outputs, hidden = self.stack(x, hidden=hidden)
            return self._forecast(outputs[:, -1:])

        return after


def _ahead(y: Float[Tensor, "B C N"], outlook: Outlook) -> Float[Tensor, "B H C Q"]:
    """Move the steps ahead: (B, C, H·Q) -> (B, H, C, Q)."""
    return y.unflatten(-1, (outlook.steps, outlook.levels)).transpose(1, 2)


def _moving_average(x: Float[Tensor, "B C L"], window: int) -> Float[Tensor, "B C L"]:
    """Return the mean of ``window`` steps around each, with the ends repeated outside."""
    padded = F.pad(x, ((window - 1) // 2, window // 2), mode="replicate")
    return F.avg_pool1d(padded, window, stride=1)
