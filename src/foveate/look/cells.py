"""Recurrent cells: their hidden states, their gates, and the plane in which the states move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.look.stages import capture_stages, over_steps
from foveate.nn.recurrent import Cell

Figures = NDArray[np.float64]


# Hidden states of recurrent cells over time: a path through the plane in which they move most.

Floats = NDArray[np.floating]
Gates = dict[str, Tensor]  # by name, each (B, T, H), from 0 (shut) to 1 (open)


@dataclass
class CellSteps:
    """The hidden states h (B, T, H) of a recurrent cell, and its gates (B, T, H) by name.

    Steps are in the order of computation: a layer that reads backwards begins with the last word.
    An Elman network has no gates.
    """

    states: Tensor
    gates: Gates


@contextmanager
def capture_cells(model: nn.Module) -> Iterator[dict[str, CellSteps]]:
    """Collect the states and the gates of every recurrent cell, by its dotted name.

    The dictionary is filled when the context ends. Inside it, cells run step by step, by their
    equations; outputs differ from those of a kernel by rounding.
    """
    captured: dict[str, CellSteps] = {}
    cells = {name: part for name, part in model.named_modules() if isinstance(part, Cell)}
    with ExitStack() as stack:
        stages = {n: stack.enter_context(capture_stages(cell)) for n, cell in cells.items()}
        yield captured
    for name, calls in stages.items():
        steps = {stage.removesuffix(" gate"): over_steps(call) for stage, call in calls.items()}
        gates = {gate: steps[gate] for gate in steps if f"{gate} gate" in calls}
        captured |= {name: CellSteps(steps["state"], gates)} if calls else {}


def backwards(name: str) -> bool:
    """Return whether a cell of this name reads from the end: the second direction of a layer."""
    return name.endswith(".1.cell")


def called(name: str) -> str:
    """Return the name of a cell in words: ``decoder cell 0``, ``encoder cell 1, backwards``."""
    number = next(filter(str.isdecimal, name.split(".")), "")
    return f"{name.split('.')[0]} cell {number}".strip() + ", backwards" * backwards(name)


def principal(states: Floats) -> tuple[Figures, Figures]:
    """Return the principal components of states (T, H) and their shares of the variance.

    The coordinates are (T, min(T, H)). The largest of each component is positive, for equal
    pictures.
    """
    centred = states - states.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    path = left * sizes
    signs = np.sign(path[np.abs(path).argmax(axis=0), np.arange(path.shape[1])])
    squares = sizes**2
    return path * np.where(signs == 0, 1, signs), squares / max(squares.sum(), 1e-12)
