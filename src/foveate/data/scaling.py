"""Scaling of series: fitted on the training rows alone, undone on forecasts.

Does not live here: the normalisation of each window by itself (`foveate.nn.window_norm`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foveate.config import BaseConfig, Configurable

Numbers = NDArray[np.float64]


class Scaling(Configurable):
    """z = (x − shift) / scale, both of each channel; a constant channel has scale 1."""

    class Config(BaseConfig, family="scaling"):
        """Which scaling."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shift: Numbers = np.zeros(0)
        self.scale: Numbers = np.ones(0)

    def fit(self, values: Numbers) -> None:
        """Take shift and scale from the training rows (N, C)."""
        self.shift, scale = self.of(values)
        self.scale = np.where(scale > 0, scale, 1.0)

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Shift and scale of each channel of (N, C)."""
        raise NotImplementedError

    def enter(self, values: Numbers) -> NDArray[np.float32]:
        """Scaled values (…, C)."""
        return ((values - self.shift) / self.scale).astype(np.float32)

    def leave(self, values: NDArray[np.float32]) -> Numbers:
        """Values (…, C) in their own units."""
        return values.astype(np.float64) * self.scale + self.shift


class Standard(Scaling):
    """Mean 0 and standard deviation 1 over the training rows."""

    class Config(Scaling.Config, kind="standard"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        return values.mean(axis=0), values.std(axis=0)


class MinMax(Scaling):
    """From 0 to 1 over the training rows; later rows may lie outside."""

    class Config(Scaling.Config, kind="min_max"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        low = values.min(axis=0)
        return low, values.max(axis=0) - low


class Unscaled(Scaling):
    """Values as they are."""

    class Config(Scaling.Config, kind="none"):
        pass

    def of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
