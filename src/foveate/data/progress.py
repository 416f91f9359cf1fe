"""How far the preparation of data is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Meter:
    """A bar on standard error with rate, time and time left, for as long as the block lasts."""

    def __init__(
        self, label: str, total: float | None, unit: str, console: Console | None = None
    ) -> None:
        """``total`` of the ``unit`` are to be done; None where nobody knows how many."""
        self.done, self.unit = 0.0, unit
        self._start = time.monotonic()
        console = console or Console(stderr=True)
        words, rate = "{task.description}", "{task.fields[rate]}"
        times = TimeElapsedColumn(), TimeRemainingColumn()
        columns = (TextColumn(words), BarColumn(24), TextColumn(rate), *times)
        quiet = not console.is_terminal
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet)
        self._task = self._bar.add_task(label, total=total, rate="")

    def add(self, amount: float) -> None:
        """So much more is done."""
        self.done += amount
        rate = self.done / max(1e-9, time.monotonic() - self._start)
        self._bar.update(self._task, completed=self.done, rate=f"{rate:,.0f} {self.unit}/s")

    def busy(self) -> None:
        """All is read, and what remains cannot be counted: a bar that moves, and the time."""
        self._bar.update(self._task, total=None, rate="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
