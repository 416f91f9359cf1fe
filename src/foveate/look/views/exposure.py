"""The view of exposure bias: error by position, after the truth and after the model's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.decode.search import token_log_probabilities
from foveate.look.draw.charts import PanelGrid, line_chart
from foveate.look.views import view
from foveate.look.views.examples import evaluated_split, exposed
from foveate.look.views.options import Split
from foveate.run import Run
from foveate.run.evaluation import ForecastEvaluation
from foveate.tasks.abilities import Generates
from foveate.tasks.base import spread
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.teacher_forcing import autoregressive, tokens_of

EXAMPLES = 512  # of a split, evenly spread
TOGETHER = 64  # examples in a batch
FEWEST = 20  # examples that a position needs to be drawn
NAMES = {"nll": "loss in nats", "accuracy": "share of correct tokens", "mse": "squared error"}
Errors = NDArray[np.float64]


@dataclass(frozen=True)
class PlaceErrors:
    """Errors (P,) at each position after the prompt, each the mean over ``counts`` examples.

    ``forced`` has by name the errors after true tokens at all earlier positions, ``free`` those
    after tokens that the model wrote; ``nll`` is −log p(y_k | prefix), ``accuracy`` how often the
    most probable token was the true one, and ``mse`` that of a forecast.
    """

    counts: Errors
    forced: dict[str, Errors]
    free: dict[str, Errors]


@torch.inference_mode()
def place_errors(run: Run, split: str = "test") -> PlaceErrors:
    """Return exposure bias: how much worse a model is after its own output than after the truth
    (Bengio et al., 2015; Ranzato et al., 2016).

    The true token at position k is compared with the prediction after the true tokens, and
    after those that the model chose itself, greedily. A text that has once left the true one may
    continue well and still differ: the gap bounds exposure bias from above.
    """
    task = run.task
    if isinstance(task, Forecasting):
        evaluation = run.evaluate(split=split)
        assert isinstance(evaluation, ForecastEvaluation)
        forced, free = (np.array(evaluation.curves[n]) for n in ("teacher_forced", "forecast"))
        counts = np.full(len(free), float(len(task.windows(split))))
        return PlaceErrors(counts, {"mse": forced}, {"mse": free})
    writer, model = run.need(Generates, "write text"), run.model
    collected: list[NDArray[np.float64]] = []
    chosen = spread(len(task.lengths(split)), EXAMPLES)
    for first in range(0, len(chosen), TOGETHER):
        batch = writer.decoder_batch(model, task.batch(split, chosen[first : first + TOGETHER]))
        own = tokens_of(model, batch.memory, batch.prompt)
        free_ids = autoregressive(own, batch.inputs, own.fixed(batch.inputs), "greedy")
        numbers = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
        parts = [(numbers + 1 - batch.prompt).expand(batch.inputs.shape)]
        for read in (batch.inputs, free_ids):
            logits = model.predict(read, batch.memory)
            parts += [-token_log_probabilities(logits, batch.targets)]
            parts += [logits.argmax(dim=-1) == batch.targets]
        columns = torch.stack([part.flatten().double() for part in parts])
        columns = columns if batch.counted is None else columns[:, batch.counted]
        collected.append(columns.cpu().numpy())
    places, *errors = np.concatenate(collected, axis=1)
    at = places.astype(int)
    counts = np.bincount(at).astype(float)
    means = [np.bincount(at, error) / np.maximum(counts, 1) for error in errors]
    forced_nll, forced_accuracy, free_nll, free_accuracy = means
    return PlaceErrors(
        counts,
        {"nll": forced_nll, "accuracy": forced_accuracy},
        {"nll": free_nll, "accuracy": free_accuracy},
    )


@view(exposed)
def exposure(runs: Sequence[Run], split: Split = "test") -> PanelGrid:
    """Draw error by position: after the true tokens or rows, and after the model's own.

    Texts have the loss −log p and the accuracy of the true token; forecasts the squared error.
    Positions count from the first prediction; those with fewer than 20 examples are left out.
    """
    if split == "test" and any(evaluated_split(run.task) == "valid" for run in runs):
        split = "valid"
    by_run = {run.path.name: place_errors(run, split) for run in runs}
    panels: dict[str, dict[str, Errors]] = {}
    for name, errors in by_run.items():
        enough = errors.counts >= min(FEWEST, errors.counts.max())
        own = "its own forecast" if "mse" in errors.free else "its own words"
        for mode, figures in (("given the reference", errors.forced), (own, errors.free)):
            label = f"{name}, {mode}" if len(by_run) > 1 else mode
            for figure, values in figures.items():
                panels.setdefault(NAMES[figure], {})[label] = np.where(enough, values, np.nan)
    return PanelGrid(
        panels=[line_chart(None, lines, "position", figure) for figure, lines in panels.items()],
        title=f"Exposure bias, {split}",
    )
