"""How trainings went: what ``log.jsonl`` says of runs, over steps or over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.look.charts import CurvesView, PanelsView
from foveate.look.sheets import Sheet, SheetsView
from foveate.run import Run
from foveate.train.journal import Line, read
from foveate.views.question import Question

Floats = NDArray[np.float64]

PLACES = 1000  # of the common axis at most
SMOOTH = 0.7  # the share of what was before in the moving mean
LOGGED = {  # of the training lines: name in the log → what it is, and whether its axis is log
    "loss": ("objective (with label smoothing, if any)", ""),
    "nll": ("loss: negative log-likelihood, nats", ""),
    "lr": ("learning rate", ""),
    "grad_norm": ("gradient norm", "y"),
    "tokens_per_second": ("target tokens a second", ""),
}
APART = ("event", "step", "epoch", "seconds", "best", "samples")  # no figures of a validation


def curves(runs: Sequence[Run], question: Question) -> PanelsView:
    """A panel for each figure: those of training raw and smoothed, then those of validations.

    The smoothed line is m_n = 0.7 m_{n−1} + 0.3 x_n over the logged values, its start corrected
    as in Adam (Kingma & Ba, 2015).
    """
    logs = {run.path.name: read(run.path) for run in runs}
    panels = [
        panel(logs, "train", name, question.across) for name in LOGGED if said(logs, "train", name)
    ]
    figures = {
        name: None
        for log in logs.values()
        for line in log
        if line["event"] == "valid"
        for name, value in line.items()
        if name not in APART and isinstance(value, int | float)
    }
    panels += [panel(logs, "valid", name, question.across) for name in figures]
    return PanelsView(panels, f"Training of {', '.join(logs)}")


def said(logs: Mapping[str, Sequence[Line]], event: str, name: str) -> bool:
    """Whether any run says a figure."""
    return any(name in line for log in logs.values() for line in log if line["event"] == event)


def panel(
    logs: Mapping[str, Sequence[Line]], event: str, name: str, across: str = "step"
) -> CurvesView:
    """One figure of all runs that say it, at common places: all their steps, or minutes."""
    unit, key = (60.0, "seconds") if across == "time" else (1.0, "step")
    found: dict[str, tuple[Floats, Floats]] = {}
    for run, log in logs.items():
        lines = [line for line in log if line["event"] == event and name in line and key in line]
        x = np.array([line[key] / unit for line in lines])
        y = np.array([np.nan if line[name] is None else line[name] for line in lines], float)
        if len(x):
            found[run] = x, y
    places = _places([x for x, _ in found.values()])
    drawn: dict[str, Floats] = {}
    for run, (x, y) in found.items():
        drawn[run] = at(places, x, y)
        if event == "train" and name in ("loss", "nll", "grad_norm", "tokens_per_second"):
            drawn[f"{run}, smoothed"] = at(places, x, smoothed(y))
    up, log_axes = LOGGED.get(name, (name, "")) if event == "train" else (f"{name}, validation", "")
    return CurvesView(places, drawn, "minutes" if across == "time" else "step", up, log=log_axes)


def smoothed(values: Floats) -> Floats:
    """The moving mean of values; what is no number is passed over."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        if np.isfinite(value):
            mean = SMOOTH * mean + (1 - SMOOTH) * value
            weight = SMOOTH * weight + (1 - SMOOTH)
        found.append(mean / weight if weight else np.nan)
    return np.array(found)


def at(places: Floats, x: Floats, y: Floats) -> Floats:
    """A line at other places: on the straight between its own, nothing before and after them."""
    known = np.isfinite(y)
    if not known.any():
        return np.full(len(places), np.nan)
    return np.interp(places, x[known], y[known], left=np.nan, right=np.nan)


def _places(of_runs: Sequence[Floats]) -> Floats:
    """All places of all runs, or as many evenly spaced ones where they are too many."""
    every = np.unique(np.concatenate([*of_runs, np.zeros(0)]))
    if len(every) <= PLACES:
        return every
    return np.linspace(every[0], every[-1], PLACES)


def health(runs: Sequence[Run], question: Question) -> SheetsView:
    """Gradient norms and update ratios of each module (rows) over the steps, as powers of ten.

    Ratios are shown against the rule of thumb 1/1000: white is there, one colour above, one below.
    """
    found = [line for line in read(runs[0].path) if line["event"] == "health"]
    modules = list(found[-1]["gradient"])
    steps = [f"{line['step']:,}" for line in found]
    sheets = []
    for name, title, zero in (
        ("gradient", "gradient norm, log₁₀", 0.0),
        ("ratio", "‖update‖ / ‖weights‖, log₁₀ against 1/1000", -3.0),
    ):
        table = [[line[name].get(module) for line in found] for module in modules]
        values = np.array([[np.nan if v is None else v for v in row] for row in table], float)
        with np.errstate(divide="ignore"):
            power = np.log10(values) - zero
        power[~np.isfinite(power)] = np.nan
        far = float(np.nanmax(np.abs(power), initial=0.1)) if zero else None
        sheets.append(
            Sheet(
                title, power, modules, steps, "", "step", None if far is None else -far,
                far, aspect=len(steps) / (3.0 * len(modules)),
            )
        )  # fmt: skip
    return SheetsView(sheets, f"Health of {runs[0].path.name}", across=1)
