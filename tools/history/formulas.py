"""Pictures of equations: every number comes from the class that the page names, none is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from foveate.look.draw.analyses import sheets
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.sheets import ColorScale, SheetGrid, sheet
from foveate.look.views.demos import formulas
from foveate.nn.more_positions import ALiBi, T5Bias
from foveate.tasks.teacher_forcing import InverseSigmoidDecay, LinearDecay
from foveate.train.optim import Cosine as CosineRate
from foveate.train.optim import Schedule, WarmupStableDecay
from history.drawing import Draw

# ------------------------------------------------------------------------------ positions


def absolute(folder: Path) -> SheetGrid:
    """Sinusoids and rotations: what a place is told, and what a pair of places makes of it."""
    waves, turns = formulas.sinusoids(), formulas.rotary()
    named = [
        part.model_copy(update={"title": f"{name}: {part.title}"})
        for name, grid in (("sinusoids", waves), ("RoPE", turns))
        for part in grid.sheets
    ]
    return SheetGrid(
        sheets=named, title="Each position has a vector; products depend on the distance"
    )


def relative(folder: Path) -> SheetGrid:
    """What is added to the score of a pair: slopes of ALiBi, buckets of T5."""
    length, heads = 48, 8
    slopes = sheets(ALiBi(ALiBi.Config(), 64, heads), length, 64, heads)
    at = torch.arange(length)
    t5 = T5Bias(T5Bias.Config(), 64, heads)
    buckets = t5.buckets(at[None, :] - at[:, None]).float().numpy()
    drawn = [
        sheet(
            f"ALiBi, {name} head",
            s.values.array,
            down=s.down,
            across=s.across,
            scale=ColorScale(-12.0, 0.0),
        )
        for name, s in (("steepest", slopes[0]), ("middle", slopes[1]), ("flattest", slopes[-1]))
    ]
    drawn.append(
        sheet(
            "T5: index of the added number", buckets, down="position t", across="position s",
            scale=ColorScale(label="bucket 0 … 31, learned"),
        )
    )  # fmt: skip
    return SheetGrid(sheets=drawn, title="Added to the score of a pair of positions")


# ------------------------------------------------------------------------------ training


def over(steps: int, curves: Mapping[str, Callable[[int], float]], title: str = "") -> LinesDrawing:
    """Curves at 400 steps from the first on."""
    places = np.unique(np.linspace(1, steps, 400).round()).astype(int)
    values = {name: np.array([at(int(step)) for step in places]) for name, at in curves.items()}
    return line_chart(places, values, "step", "learning rate", title)


def rates(folder: Path) -> LinesDrawing:
    """Learning rates over the steps."""
    total, peak = 20_000, 7e-4
    others: dict[str, Schedule] = {
        "cosine": CosineRate(CosineRate.Config(warmup_steps=1000), peak, total),
        "stable, decay": WarmupStableDecay(
            WarmupStableDecay.Config(warmup_steps=1000), peak, total
        ),
    }
    drawn = over(total, {name: item.rate for name, item in others.items()})
    noam = formulas.noam(steps=total)
    title = "Learning rates; D:warm-up as in Vaswani et al."
    return noam.model_copy(update={"title": title, "curves": [*noam.curves, *drawn.curves]})


def sampling(folder: Path) -> LinesDrawing:
    """How often the true token is read: ε over the steps."""
    drawn = {
        "linear": LinearDecay(LinearDecay.Config()),
        "inverse sigmoid": InverseSigmoidDecay(InverseSigmoidDecay.Config()),
    }
    title = "Scheduled sampling: fewer and fewer true tokens"
    lines = over(15_000, {name: item.epsilon for name, item in drawn.items()}, title)
    return lines.model_copy(update={"up": "ε, share of true tokens"})


DRAWN: dict[str, Draw] = {
    "scores": lambda folder: formulas.scores(points=61),
    "normalizers": lambda folder: formulas.normalizers(),
    "positions": absolute,
    "position-biases": relative,
    "learning-rates": rates,
    "scheduled-sampling": sampling,
}
