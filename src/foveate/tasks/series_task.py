"""Series as data: reading, scaling fitted on the training rows, windows. Knows no model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from foveate.atomic import replace_file
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.scaling import Scaling, Standard
from foveate.data.series import (
    CALENDAR,
    SPLITS,
    SeriesData,
    Table,
    calendar,
    divide,
    labels,
    read_table,
)
from foveate.data.windows import Windows, starts
from foveate.tasks.base import Task
from foveate.tasks.forecast_figures import naive_error
from foveate.tree import from_json

FITTED = "series.json"  # in the run: channels, scaling, the naive error of the training rows


@dataclass(frozen=True)
class SeriesBatch:
    """``values`` (B, L, C) read, ``calendar`` (B, L + H, F) of all rows, ``wanted`` (B, H, C)."""

    values: Tensor
    calendar: Tensor
    wanted: Tensor

    def to(self, device: torch.device) -> SeriesBatch:
        """The same on a device."""
        parts = (self.values, self.calendar, self.wanted)
        return SeriesBatch(*(part.to(device) for part in parts))


class SeriesTask(Task[SeriesBatch]):
    """Rows of numbers in, the rows after them out; how they are modelled is up to who derives."""

    class Config(Task.Config):
        """``look_back`` L rows are read, ``horizon`` H rows are asked for."""

        series: SeriesData
        look_back: int = Field(96, gt=0)
        horizon: int = Field(24, gt=0)
        scaling: Scaling.Config = Standard.Config()
        calendar: tuple[str, ...] = ()  # features of the date: hour, weekday, day, month, year
        quantiles: tuple[float, ...] = ()  # an odd number of levels, 0.5 in the middle
        season: int = Field(1, gt=0)  # steps; of the naive forecast that MASE compares with

        @pydantic.field_validator("calendar")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            if wrong := [name for name in names if name not in CALENDAR]:
                raise ValueError(f"no feature {wrong[0]!r}; there are: {', '.join(CALENDAR)}")
            return names

        @pydantic.field_validator("quantiles")
        @classmethod
        def _centred(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
            rising = all(0 < a < b < 1 for a, b in zip((1e-9, *levels), levels, strict=False))
            if levels and not (rising and len(levels) % 2 and levels[len(levels) // 2] == 0.5):
                raise ValueError("quantiles rise between 0 and 1 with 0.5 in the middle")
            return levels

        @property
        def default_objective(self) -> str:
            return "quantile" if self.quantiles else "squared_error"

    config: Config

    def __init__(self, config: Config, data: Any) -> None:
        """``data`` is for text; a series is described in ``task.series``."""
        self.config = config
        self.names: tuple[str, ...] = ()
        self.scaling: Scaling = config.scaling.build()
        self.naive: NDArray[np.float64] = np.zeros(0)
        self._table: Table | None = None
        self._windows: dict[str, Windows] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        table = self.table()
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
        from_json(folder / FITTED, self._fitted)

    def _fitted(self, found: dict[str, Any]) -> None:
        self.names = tuple(map(str, found["names"]))
        self.scaling.shift, self.scaling.scale, self.naive = (
            np.array(found[key], dtype=np.float64) for key in ("shift", "scale", "naive")
        )

    def table(self) -> Table:
        """The run's own series."""
        if self._table is None:
            self._table = read_table(self.config.series)
        return self._table

    def windows(self, split: str) -> Windows:
        """The windows of a split of the run's own series. Raises ``ConfigError`` for another."""
        if split not in SPLITS:
            raise ConfigError(f"no split {split!r} of a series; there are: {', '.join(SPLITS)}")
        if split not in self._windows:
            rows = divide(len(self.table()), self.config.series)[split]
            self._windows[split] = self.cut(self.table(), rows)
        return self._windows[split]

    def cut(self, table: Table, rows: tuple[int, int]) -> Windows:
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

    def spanning(self) -> int:
        """How many windows of all splits are left out because they would span a gap."""
        size = self.config.look_back, self.config.horizon
        parts = divide(len(self.table()), self.config.series).values()
        return sum(
            len(starts(rows, *size)) - len(starts(rows, *size, self.table().gaps)) for rows in parts
        )

    def lengths(self, split: str) -> NDArray[np.int32]:
        rows = self.config.look_back + self.config.horizon
        return np.full((len(self.windows(split)), 1), rows, dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> SeriesBatch:
        return SeriesBatch(*map(torch.from_numpy, self.windows(split).take(indices)))

    def describe_data(self) -> list[str]:
        """What was read, filled in, left unused, and how many windows each split has."""
        table = self.table()
        dates = labels(table.dates)
        parts = divide(len(table), self.config.series)
        unused = len(table) - parts["test"][1]
        found = [
            f"{table.file}: {len(table):,} rows from {dates[0]} to {dates[-1]}, "
            f"channels {', '.join(table.names)}"
        ]
        found += [f"{count:,} missing values of {n} filled in" for n, count in table.filled.items()]
        if len(table.gaps):
            lost = self.spanning()
            found.append(
                f"gaps: {len(table.gaps):,}, the first: {table.gap(int(table.gaps[0]))}; "
                f"{lost:,} windows that would span one are left out"
            )
        if (table.delimiter, table.decimal) != (",", "."):
            found.append(f"cells between {table.delimiter!r}, decimal mark {table.decimal!r}")
        for name, (first, end) in parts.items():
            period = f"{dates[first]} to {dates[end - 1]}" if end > first else "no rows"
            found.append(f"{name}: {period}, {len(self.windows(name)):,} windows")
        return [*found, f"{unused:,} rows after the test rows are not used"] if unused else found

    # ---- examples

    def some(self, split: str) -> Windows:
        """The windows of a split. Raises ``ConfigError`` where there is none."""
        windows = self.windows(split)
        if not len(windows):
            need = self.config.look_back + self.config.horizon
            raise ConfigError(f"{split} has no window of {need} rows; give it more rows")
        return windows

    def examples(self, split: str) -> Windows:
        return self.some(split)

    def read(self, source: Path, reference: Path | None = None) -> Windows:
        """All windows of a file of the user's with the same columns."""
        table = self.read_file(source)
        windows = self.cut(table, (0, len(table)))
        if not len(windows):
            need = self.config.look_back + self.config.horizon
            without = f" without a gap ({table.gap(int(table.gaps[0]))})" if len(table.gaps) else ""
            raise DataError(f"{source} has {len(table)} rows; a window takes {need}{without}")
        return windows

    def read_file(self, source: str | Path) -> Table:
        """A file with the channels of the run, in a notation of its own."""
        own = {"values": self.names, "delimiter": None, "decimal": None}
        return read_table(self.config.series.model_copy(update=own), source)
