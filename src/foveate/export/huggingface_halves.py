"""Sines and cosines in turns, as ours stand, or in halves, as files of others have them.

Only the encoding knows in which order the D numbers of a vector stand; every weight that touches
them may be put in another order with it, and the model computes the same:

    x'_j = x_order(j),   order = 0, 2, 4, …, 1, 3, 5, …

Lives here: a model's config and weights in that order, which leaves the model itself as it is, and
the table of waves that some files want. Does not live here: the encoding (`foveate.nn.position`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from foveate.config import Config
from foveate.nn.position import Sinusoidal, SinusoidalHalves

AXES = {  # which tensors have the D numbers of a vector along which axis
    r"(.*\.)?stem\.\w+\.weight": 1,
    r"(.*\.)?position\.table\.weight": 1,
    r"output\.weight": 1,
    r".*norm\.(weight|bias)": 0,
    r".*attention\.(query|key|value)\.weight": 1,
    r".*attention\.output\.(weight|bias)": 0,
    r".*feed_forward\.(inner|gate)\.weight": 1,
    r".*feed_forward\.outer\.(weight|bias)": 0,
}


def in_halves(model: nn.Module) -> tuple[Any, Mapping[str, Tensor]]:
    """Config and named weights of a model with its waves in halves; as they are if it has none."""
    config: Any = model.config
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    sides = [name for name in ("encoder", "decoder") if _waves(getattr(config, name, None))]
    if not sides:
        return config, weights
    changed = {name: _halved(getattr(config, name)) for name in sides}
    size = getattr(config, sides[0]).hidden_size
    order = torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
    return config.model_copy(update=changed), {
        name: _ordered(name, weight, order) for name, weight in weights.items()
    }


def wave_table(places: int, size: int) -> Tensor:
    """The encoding of so many places (T, D), from angles in double precision as files have it."""
    powers = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.arange(places, dtype=torch.float64)[:, None] / 10_000**powers
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :size].float()


def _waves(part: Config | None) -> bool:
    return type(getattr(part, "position", None)) is Sinusoidal.Config


def _halved(part: Any) -> Any:
    halves = SinusoidalHalves.Config(base=part.position.base)
    return part.model_copy(update={"position": halves})


def _ordered(name: str, weight: Tensor, order: Tensor) -> Tensor:
    for pattern, axis in AXES.items():
        if re.fullmatch(pattern, name) and weight.shape[axis] == len(order):
            return weight.index_select(axis, order.to(weight.device))
    return weight
