"""What a forecaster gives back: a forecast as a table, an evaluation with its curves."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foveate.data.series import Dates, labels
from foveate.tasks.base import Evaluation

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Forecast:
    """The rows after the end of a series, in its own units.

    ``values`` (H, C); ``quantiles`` (H, C, Q) at the ``levels``, None where none were learnt.
    """

    dates: Dates
    names: tuple[str, ...]
    values: Array
    quantiles: Array | None = None
    levels: tuple[float, ...] = ()

    def header(self) -> list[str]:
        """``date``, the channels, and each channel's quantiles as ``NAME@0.1``."""
        each = [f"{name}@{level:g}" for name in self.names for level in self.levels]
        return ["date", *self.names, *each]

    def rows(self) -> list[list[str]]:
        """A row for each date, in the order of the header."""
        values = self.values
        if self.quantiles is not None:
            values = np.concatenate((values, self.quantiles.reshape(len(values), -1)), axis=1)
        pairs = zip(labels(self.dates), values, strict=True)
        return [[date, *(f"{value:.6g}" for value in row)] for date, row in pairs]

    def csv(self) -> str:
        """The table as CSV with a header."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header(), *self.rows()])
        return text.getvalue()


@dataclass(frozen=True)
class ForecastEvaluation(Evaluation):
    """An evaluation with error against horizon.

    ``curves`` holds by name the mean squared error of each step ahead, on scaled values: the
    forecast's, the ``teacher_forced`` one where the model reads its own predictions in use, and
    those of the naive forecasts.
    """

    curves: dict[str, list[float]] = field(default_factory=dict)
