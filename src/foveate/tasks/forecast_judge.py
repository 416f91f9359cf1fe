"""Judging forecasts of many windows: all figures, naive forecasts beside them, error by step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.scaling import Scaling
from foveate.data.windows import Floats, Windows
from foveate.tasks.forecast_figures import coverage, crps, mae, mase, mse

SIGNATURES = {
    "mse": "free-running, scaled by the training rows, mean of windows, steps and channels",
    "mase": "MAE of each channel over that of the naive forecast on the training rows",
    "crps": "2 · mean pinball loss of the levels, scaled",
    "coverage": "share of values between the outer levels",
    "original_mse": "in the units of the file, mean of the channels",
}


def figures_of(
    said: Floats,
    windows: Windows,
    scaling: Scaling,
    naive: NDArray[np.float64],
    levels: tuple[float, ...],
) -> dict[str, float]:
    """All figures of forecasts (M, H, C, Q); ``naive`` is the error of each channel, (C,)."""
    wanted, forecast = windows.wanted(), middle(said)
    original, truth = scaling.leave(forecast), scaling.leave(wanted)
    found = {
        "mse": mse(forecast, wanted),
        "mae": mae(forecast, wanted),
        "mase": mase(original, truth, naive),
        "original_mse": mse(original, truth),
        "original_mae": mae(original, truth),
    }
    if levels:
        found |= {"crps": crps(said, wanted, levels), "coverage": coverage(said, wanted)}
    return found


def middle(said: NDArray[Any]) -> NDArray[Any]:
    """The forecast (…) among the levels (…, Q): the median, or the only one."""
    forecast: NDArray[Any] = said[..., said.shape[-1] // 2]
    return forecast


def naive_forecasts(windows: Windows, season: int) -> dict[str, Floats]:
    """What needs no model, (M, H, C) each: the last value, and the values a season before."""
    after = windows.starts + windows.look_back  # the first row asked for
    steps = np.arange(windows.horizon)
    rows = {"last_value": (after - 1)[:, None] + 0 * steps}
    if 1 < season <= windows.look_back:
        rows["seasonal_naive"] = (after - season)[:, None] + steps % season
    return {name: windows.values[chosen] for name, chosen in rows.items()}


def by_window(forecast: Floats, windows: Windows) -> Floats:
    """Mean (ŷ − y)² of each window, over steps and channels."""
    errors: Floats = np.square(forecast - windows.wanted()).mean(axis=(1, 2))
    return errors


def by_step(forecast: Floats, windows: Windows) -> list[float]:
    """Mean (ŷ − y)² of each step ahead, over windows and channels."""
    error = np.square(forecast - windows.wanted(), dtype=np.float64).mean(axis=(0, 2))
    return [float(e) for e in error]
