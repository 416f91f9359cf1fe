"""The loss around trained weights, over two random directions (Li et al., 2018).

f(α, β) = L(θ + α δ + β η), where each filter (row of a weight) of δ and η is as long as that of θ:
so surfaces of different models can be compared. Vectors (biases, norms) stay. A plane through
millions of dimensions shows little of them; a sharp valley is more telling than a smooth one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.sheets import Sheet, SheetsView

Losses = NDArray[np.float64]  # (β, α), the model itself in the middle


def direction(model: nn.Module, random: torch.Generator) -> list[Tensor]:
    """A random direction, filter-normalised: d_i ← d_i ‖θ_i‖ / ‖d_i‖; zeros for vectors."""
    found = []
    for parameter in model.parameters():
        drawn = torch.zeros(parameter.shape)
        if parameter.dim() > 1:
            drawn = torch.randn(parameter.shape, generator=random)
            sizes = parameter.detach().float().cpu().flatten(1).norm(dim=1)
            scale = sizes / drawn.flatten(1).norm(dim=1).clamp(min=1e-12)
            drawn = drawn * scale.view(-1, *[1] * (drawn.dim() - 1))
        found.append(drawn.to(parameter))
    return found


@torch.no_grad()
def surface(
    model: nn.Module, loss: Callable[[], float], steps: int = 11, reach: float = 1.0, seed: int = 0
) -> Losses:
    """Losses on a grid of ``steps`` × ``steps`` from −reach to reach: as many runs of ``loss``.

    The weights are put back bit for bit. Raises ``ConfigError`` for an even number of steps, whose
    grid would not hold the model itself.
    """
    if steps < 3 or steps % 2 == 0:
        raise ConfigError(
            f"steps = {steps}: give an odd number, so that the model is in the middle"
        )
    random = torch.Generator().manual_seed(seed)
    ways = [direction(model, random) for _ in range(2)]
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    places = np.linspace(-reach, reach, steps)
    found = np.zeros((steps, steps))
    try:
        for row, beta in enumerate(places):
            for column, alpha in enumerate(places):
                for p, start, one, other in zip(model.parameters(), kept, *ways, strict=True):
                    p.copy_(start + alpha * one + beta * other)
                found[row, column] = loss()
    finally:
        for parameter, start in zip(model.parameters(), kept, strict=True):
            parameter.copy_(start)
    return found


def surfaces(losses: Mapping[str, Losses], reach: float = 1.0, title: str = "") -> SheetsView:
    """The picture of some models side by side; one scale of colours, the logarithm of the loss.

    ``losses`` are those of `surface`, by the names of the models.
    """
    known = np.concatenate([found[np.isfinite(found)] for found in losses.values()])
    least, most = max(float(known.min()), 1e-12), float(known.max())
    sheets = []
    for name, found in losses.items():
        places = [f"{place:.2g}" for place in np.linspace(-reach, reach, len(found))]
        above = np.log10(np.where(np.isfinite(found), found, np.nan) / least)
        middle = len(found) // 2
        told = f"{least:.3g} … {most:.3g}, middle {found[middle, middle]:.3g}"
        ends = 0.0, float(np.log10(most / least))
        sheets.append(Sheet(name, above, places, places, "β", "α", *ends, told=told))
    count = sum(found.size for found in losses.values())
    caption = f"log₁₀ (loss / least), filter-normalised directions, {count} runs (Li et al., 2018)"
    return SheetsView(sheets, title, caption, across=min(2, len(sheets)))
