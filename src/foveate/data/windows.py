"""Windows of a series: look-back and horizon, cut wherever both fit into a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.data.series import Dates, Table

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """Each window reads ``look_back`` rows from its start and is asked for the ``horizon`` after.

    ``values`` (N, C) scaled, ``calendar`` (N, F), ``starts`` (M,) the first row of each window.
    """

    table: Table
    values: Floats
    calendar: Floats
    starts: NDArray[np.int64]
    look_back: int
    horizon: int

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Values read (B, L, C), calendar of all rows (B, L + H, F), values asked for (B, H, C)."""
        rows = self.starts[np.asarray(indices)][:, None] + np.arange(self.look_back + self.horizon)
        values = self.values[rows]
        return values[:, : self.look_back], self.calendar[rows], values[:, self.look_back :]

    def wanted(self) -> Floats:
        """The values that all windows are asked for, (M, H, C)."""
        rows = self.starts[:, None] + self.look_back + np.arange(self.horizon)
        values: Floats = self.values[rows]
        return values

    def asked(self) -> Dates:
        """The date of the first row that each window is asked for, (M,)."""
        dates: Dates = self.table.dates[self.starts + self.look_back]
        return dates


def starts(
    rows: tuple[int, int],
    look_back: int,
    horizon: int,
    gaps: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Windows whose horizon lies in the rows [first, end); the look-back may lie before them.

    No window spans a gap: the rows before which ``gaps`` lie are in none but as its first.
    """
    first, end = rows
    found = np.arange(max(0, first - look_back), end - look_back - horizon + 1, dtype=np.int64)
    if gaps is None or not len(gaps):
        return found
    before = np.searchsorted(gaps, found, side="right")  # gaps up to the first row of each window
    within = np.searchsorted(gaps, found + look_back + horizon - 1, side="right")
    return found[before == within]
