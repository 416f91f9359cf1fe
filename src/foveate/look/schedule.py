"""Learning-rate curves. Does not live here: the schedules (`foveate.train.schedule`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from foveate.look.curves import CurvesView

POINTS = 400  # places at which a curve is drawn


def schedule(
    rates: Mapping[str, Callable[[int], float]],
    steps: int,
    up: str = "learning rate",
    title: str = "",
) -> CurvesView:
    """The picture of some schedules from step 1 to ``steps``, a line for each name.

    Anything that is a function of the step can be drawn: ``up`` says what it gives. Raises
    ``ValueError`` for less than one step.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps: a curve begins with step 1")
    places = np.unique(np.linspace(1, steps, min(steps, POINTS)).round()).astype(int)
    curves = {name: np.array([rate(int(step)) for step in places]) for name, rate in rates.items()}
    return CurvesView(places.astype(float), curves, "step", up, title)
