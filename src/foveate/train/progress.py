"""Training as people see it: a bar where standard error is a terminal, quiet lines where not.

Lives here: drawing, and the time left. Does not live here: the log (`foveate.train.journal`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from foveate.tasks.base import Measures

RECENT = 100  # steps whose mean duration gives the time left
SMOOTHING = 0.95  # of the loss and speed shown; those in the log are exact


def clock(seconds: float) -> str:
    """Seconds as 4:05 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def time_left(
    steps_left: int | None, seconds_a_step: float, budget_left: float | None, besides: float = 0.0
) -> float | None:
    """Seconds until the last step or the end of the time allowed, whichever comes first.

    The steps take ``besides`` seconds for validations.
    """
    ends = [] if steps_left is None else [steps_left * seconds_a_step + besides]
    ends += [] if budget_left is None else [budget_left]
    return max(0.0, min(ends)) if ends else None


class Display:
    """What a run says while it trains, on standard error.

    ``total`` steps and ``budget`` seconds end the training, where they are set. The time left is
    that of the last steps for those to come, and that of the last validation for those that are
    due ``every`` so many steps. The loss is the plain NLL where the objective logs it, as that of
    a validation is; the ``objective``, which is minimised, stands beside it. Where there is no
    terminal a line appears every ``quiet`` seconds. A ``silent`` one, of a rank that does not
    lead, says none.
    """

    def __init__(
        self,
        total: int | None,
        budget: float | None,
        every: int | None = None,
        quiet: float = 15.0,
        console: Console | None = None,
        silent: bool = False,
    ) -> None:
        self.total, self.budget, self.every, self.quiet = total, budget, every, quiet
        self.console = console or Console(
            stderr=True, highlight=False, soft_wrap=True, quiet=silent
        )
        self._spent: deque[float] = deque(maxlen=RECENT)  # seconds of each of the last steps
        self._validation = 0.0  # seconds of the last one
        self._losses: dict[str, float] = {}
        self._rate: float | None = None
        self._figures = ""
        self._said = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (BarColumn(24), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self.console, refresh_per_second=4)
            self._task = self._bar.add_task("first step", total=1.0)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(
        self, step: int, losses: Mapping[str, float], rate: float, seconds: float, spent: float
    ) -> None:
        """A step is done: its ``loss`` and, where the objective logs it, its plain ``nll``.

        ``rate`` is its target tokens a second; it has taken ``spent`` of all ``seconds``.
        """
        named = {"loss": losses.get("nll", losses["loss"]), "objective": losses["loss"]}
        self._losses = {k: _smooth(self._losses.get(k), v) for k, v in named.items()}
        self._rate = _smooth(self._rate, rate)
        self._spent.append(spent)
        if self._bar is not None:
            done = self._done(step, seconds)
            self._bar.update(self._task, completed=done, description=self.line(step, seconds))
        elif time.monotonic() - self._said >= self.quiet:
            self.say(self.line(step, seconds))

    def line(self, step: int, seconds: float) -> str:
        """Where training stands, in one line."""
        left = time_left(
            None if self.total is None else self.total - step,
            sum(self._spent) / max(1, len(self._spent)),
            None if self.budget is None else self.budget - seconds,
            self._validation * self._validations_left(step),
        )
        losses = {name: f"{name} {value:.3f}" for name, value in self._losses.items()}
        if self._losses.get("objective") == self._losses.get("loss"):
            losses.pop("objective", None)
        parts = [f"step {step:,}" + (f"/{self.total:,}" if self.total else "")]
        parts += losses.values()
        parts += [] if self._rate is None else [f"{self._rate:,.0f} target tokens/s"]
        parts += [] if left is None else [f"{clock(left)} left"]
        return " · ".join(parts + ([self._figures] if self._figures else []))

    def _validations_left(self, step: int) -> int:
        if self.total is None or self.every is None:
            return 0
        return max(0, -(-self.total // self.every) - step // self.every)  # the last step has one

    def _done(self, step: int, seconds: float) -> float:
        parts = [step / self.total] if self.total else []
        parts += [seconds / self.budget] if self.budget else []
        return min(1.0, max(parts, default=0.0))

    def say(self, text: str) -> None:
        """A line that stays."""
        self._said = time.monotonic()
        self.console.print(text, markup=False)

    def validated(self, step: int, measures: Measures, best: bool, spent: float = 0.0) -> None:
        """The figures of a validation, and its samples; it has taken ``spent`` seconds."""
        self._validation = spent
        self._figures = " · ".join(f"{k} {v:.4g}" for k, v in measures.figures.items())
        self.say(f"step {step:,} · valid: {self._figures}" + (" · best so far" if best else ""))
        for sample in measures.samples:
            rows: dict[str, Any] = {"source": sample.source, "reference": sample.reference}
            for name, text in (rows | {"output": sample.output}).items():
                self.say(f"    {name:<9} {text}")


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new
