"""Views of training runs: figures from their files, position encodings, learning rates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import foveate.look.draw.analyses as analyses
from foveate.errors import UserError
from foveate.look.draw.charts import Curve, LinesDrawing, PanelGrid
from foveate.look.draw.film import FilmDrawing, Snapshot
from foveate.look.draw.sheets import ColorScale, SheetGrid, sheet
from foveate.look.perturbations import encodings
from foveate.look.records import spaced, suffixes
from foveate.look.views import view
from foveate.look.views.examples import filmed, places, trained, watched
from foveate.look.views.options import Across
from foveate.run import Run
from foveate.train.journal import MOST_SNAPSHOTS, SNAPSHOTS, Line, read

Floats = NDArray[np.float64]

PLACES = 1000  # maximum on the common axis
FEWEST = 50  # logged values from which a line is smoothed
# Figures in training lines by their names in the log: the label, and the logarithmic axis.
LOGGED: dict[str, tuple[str, Literal["", "y"]]] = {
    "loss": ("objective (with label smoothing, if any)", ""),
    "nll": ("loss: negative log-likelihood, nats", ""),
    "lr": ("learning rate", ""),
    "grad_norm": ("gradient norm", "y"),
    "tokens_per_second": ("target tokens per second", ""),
}
APART = ("event", "step", "epoch", "seconds", "best", "samples")  # not figures of a validation


@view(trained)
def curves(runs: Sequence[Run], across: Across = "step") -> PanelGrid:
    """Draw a panel for each figure: those of training raw and smoothed, then those of validations.

    Each run has one colour in all of them. If N ≥ 50 values are logged, they are faint behind a
    smoothed line m_n = Σ_k w^|n−k| x_k / Σ_k w^|n−k|, w = exp(−50 / N), which does not lag.
    """
    logs = {run.path.name: read(run.path) for run in runs}
    lines = [line for log in logs.values() for line in log]
    known = {name for line in lines if line["event"] == "train" for name in line}
    panels = [panel(logs, "train", name, across) for name in LOGGED if name in known]
    logged = [item for line in lines if line["event"] == "valid" for item in line.items()]
    figures = dict.fromkeys(n for n, v in logged if n not in APART and isinstance(v, int | float))
    panels += [panel(logs, "valid", name, across) for name in figures]
    return PanelGrid(panels=panels, title=f"Training of {', '.join(logs)}")


def panel(
    logs: Mapping[str, Sequence[Line]], event: str, name: str, across: str = "step"
) -> LinesDrawing:
    """Draw one figure of all runs that log it, at common positions: all their steps, or minutes."""
    unit, key = (60.0, "seconds") if across == "time" else (1.0, "step")
    points: dict[str, tuple[Floats, Floats]] = {}
    for run, log in logs.items():
        lines = [line for line in log if line["event"] == event and name in line and key in line]
        x, y = (np.array([line[each] for line in lines], float) for each in (key, name))
        if len(x):
            points[run] = x / unit, y
    places = common_places([x for x, _ in points.values()])
    drawn, hues = [], list(logs)
    for run, (x, y) in points.items():
        smooth, hue = event == "train" and name != "lr" and len(y) >= FEWEST, hues.index(run)
        drawn.append(Curve(name=run, y=at(places, x, y), faint=smooth, hue=hue))
        if smooth:
            drawn.append(Curve(name=f"{run}, smoothed", y=at(places, x, smoothed(y)), hue=hue))
    spoken = name.replace("_", " ")
    up, log_axes = LOGGED.get(name, (spoken, "")) if event == "train" else (spoken, "")
    return LinesDrawing(
        x=places, curves=drawn, across="minutes" if across == "time" else "step",
        up=up if event == "train" else f"{up}, validation", log=log_axes,
    )  # fmt: skip


def smoothed(values: Floats) -> Floats:
    """Return the mean of each value and its neighbours (see `curves`); NaN values are skipped."""
    known, count = np.isfinite(values), len(values)
    fade = np.exp(-FEWEST / count) ** np.abs(np.arange(1 - count, count))  # w^|n−k|
    terms = np.where(known, values, 0.0), known.astype(float)
    sums, weights = (np.convolve(x, fade)[count - 1 : 2 * count - 1] for x in terms)
    return np.where(weights > 0, sums / np.maximum(weights, 1e-300), np.nan)


def at(places: Floats, x: Floats, y: Floats) -> Floats:
    """Return a line at other positions, interpolated linearly, with NaN outside its range."""
    known = np.isfinite(y)
    if not known.any():
        return np.full(len(places), np.nan)
    return np.interp(places, x[known], y[known], left=np.nan, right=np.nan)


def common_places(of_runs: Sequence[Floats]) -> Floats:
    """Return all positions of all runs, or evenly spaced ones if they are too many."""
    every = np.unique(np.concatenate([*of_runs, np.zeros(0)]))
    return every if len(every) <= PLACES else np.linspace(every[0], every[-1], PLACES)


def film(run: Path, after: int = -1) -> FilmDrawing:
    """Return the snapshots of a run's last example, with the steps after ``after``.

    If there are more than `MOST_SNAPSHOTS`, those at evenly spread steps are used.
    """
    lines = read(run, SNAPSHOTS)
    title = lines[-1]["title"] if lines else ""
    lines = [line for line in lines if line["title"] == title and line["step"] > after]
    if len(lines) > MOST_SNAPSHOTS:
        steps = np.array([line["step"] for line in lines])
        places = np.linspace(steps[0], steps[-1], MOST_SNAPSHOTS)
        lines = [lines[k] for k in np.unique(np.abs(steps[:, None] - places).argmin(axis=0))]
    log = read(run) if lines else []
    losses = {line["step"]: line.get("loss") for line in log if line["event"] == "valid"}
    frames = []
    for line in lines:
        before = max((step for step in losses if step <= line["step"]), default=None)
        fields = {key: line[key] for key in ("step", "loss", "blocks")}
        frames.append(Snapshot.model_validate({**fields, "validation": losses.get(before)}))
    caption = "loss: −log p of a token of this example; validation: the last validation loss"
    return FilmDrawing(title=title, caption=caption, frames=frames)


@view(filmed)
def learning(
    run: Run, block: str | None = None, layer: int = -1, head: int | None = None
) -> FilmDrawing:
    """Draw how the attention to one example changed over the steps of training."""
    drawing = film(run.path)
    if not drawing.frames:
        raise UserError(f"{run.path / SNAPSHOTS} contains no snapshots")
    names = [each.name for each in drawing.frames[-1].blocks]
    fitting = [name for name in names if block in (None, *suffixes(name))]
    if not fitting:
        raise UserError(f"unknown block {block!r}; choose one of {', '.join(names)}")
    drawing = drawing.model_copy(update={"block": fitting[0] if block else "", "head": head})
    shown = drawing.first_block
    if not -len(shown.layers) <= layer < len(shown.layers):
        raise UserError(f"layer {layer} of {shown.name}: there are {len(shown.layers)}")
    place, heads = range(len(shown.layers))[layer], shown.layers[layer].shape[0]
    if head is not None and not (shown.has_heads and head < heads):
        known = heads if shown.has_heads else "only the mean, because there are too many weights"
        raise UserError(f"head {head} of {shown.name}: the snapshots have {known}")
    parts = [spaced(shown.name), f"layer {place}" if len(shown.layers) > 1 else ""]
    if heads > 1 or not shown.has_heads:
        parts.append("mean of the heads" if head is None else f"head {head}")
    caption = " · ".join([*filter(None, parts), drawing.caption])
    return drawing.model_copy(update={"layer": place, "caption": caption})


@view(watched)
def health(run: Run) -> SheetGrid:
    """Draw gradient norms and update ratios of modules (rows) over the steps, as powers of ten.

    Ratios are relative to the rule of thumb 1/1000: white is equal, one colour above, one below.
    """
    lines = [line for line in read(run.path) if line["event"] == "health"]
    modules = list(lines[-1]["gradient"])
    steps = [f"{line['step']:,}" for line in lines]
    sheets = []
    for name, title, zero in (
        ("gradient", "gradient norm, log₁₀", 0.0),
        ("ratio", "‖update‖ / ‖weights‖, log₁₀ against 1/1000", -3.0),
    ):
        values = np.array([[line[name].get(m) for line in lines] for m in modules], float)
        known = (values > 0) & np.isfinite(values)
        power = np.log10(np.where(known, values, np.nan)) - zero
        far = float(np.nanmax(np.abs(power), initial=0.1)) if zero else None
        sheets.append(
            sheet(
                title, power, modules, steps, "", "step", ColorScale(far and -far, far),
                aspect=len(steps) / (3.0 * len(modules)),
            )
        )  # fmt: skip
    return SheetGrid(sheets=sheets, title=f"Health of {run.path.name}", across=1)


@view(places)
def positions(run: Run, length: int = 64) -> SheetGrid:
    """Draw the first position encoding of a model after training."""
    owner, encoding = encodings(run.model)[0]
    length = min(length, encoding.config.tree().get("max_length", length))
    config: Any = owner.config
    return analyses.positions(encoding, length, config.hidden_size, config.num_heads)
