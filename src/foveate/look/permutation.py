"""Does order matter? The input is shuffled; without positions self-attention gives the same.

A map f is equivariant where f(x_π) = f(x)_π: it reads a bag of vectors. Attention is, positions,
recurrence and a causal mask are not (Vaswani et al., 2017; Lee et al., 2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.capture import capture
from foveate.look.curves import CurvesView
from foveate.look.forced import ForcedPass
from foveate.nn.position import NoPosition, Position

Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Shuffled:
    """What a shuffled input has changed, put back in order.

    ``outputs`` (S,): ‖f(x_π) − f(x)_π‖ / ‖f(x)_π‖ of each place. ``attention`` (S,): ½ Σ_s |a'_ts −
    a_ts|, the mean of all layers and heads; None without self-attention. ``lost``: log p of what
    was to be said, the mean.
    """

    outputs: Figures
    attention: Figures | None
    lost: float


@contextmanager
def without_positions(model: nn.Module) -> Iterator[int]:
    """Take position encodings away for a while; how many there were that say anything."""
    found = [
        (module, module.position)
        for module in model.modules()
        if isinstance(getattr(module, "position", None), Position)
        and not isinstance(module.position, NoPosition)
    ]
    try:
        for module, _ in found:
            module.position = NoPosition(NoPosition.Config(), 1, 1)
        yield len(found)
    finally:
        for module, position in found:
            module.position = position


@torch.inference_mode()
def shuffled(forced: ForcedPass, seed: int = 0) -> Shuffled:
    """Shuffle what comes out of the stem (embeddings, patches), before places are told.

    Of a model with an encoder its source, else the text that the decoder reads. Raises
    ``ConfigError`` where there is no stem to shuffle behind.
    """
    inside = side_of(forced.model)
    if not inside:
        raise ConfigError("this model reads its input at once: there are no places to shuffle")
    plain, before, maps = _read(forced, inside, None)
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(plain), generator=random)
    after, scores, turned = _read(forced, inside, order)
    back = order.argsort()
    put_back = after[back]
    change = (put_back - plain).norm(dim=-1) / plain.norm(dim=-1).clamp(min=1e-12)
    moved = [
        (turned[name][:, back][:, :, back] - weights).abs().sum(dim=-1).mean(dim=0) / 2
        for name, weights in maps.items()
    ]
    return Shuffled(
        change.double().cpu().numpy(),
        torch.stack(moved).mean(dim=0).double().cpu().numpy() if moved else None,
        float(forced.difference(before, scores).mean()),
    )


def side_of(model: nn.Module) -> str:
    """The name of the side whose input can be shuffled behind its stem; nothing without one."""
    sides = [side for side in ("encoder", "decoder") if hasattr(model, side)]
    return next((s for s in sides[:1] if hasattr(getattr(model, s), "stem")), "")


def _read(
    forced: ForcedPass, inside: str, order: Tensor | None
) -> tuple[Tensor, Figures, dict[str, Tensor]]:
    """What a side of the model leaves, (S, D), the scores, and its maps (H, S, S) by name."""
    side: Any = getattr(forced.model, inside)
    left: list[Tensor] = []

    def turn(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output if order is None else output[:, order.to(output.device)]

    def leave(module: nn.Module, args: object, output: Any) -> None:
        vectors: Tensor = output if isinstance(output, Tensor) else output.values  # of a memory
        left.append(vectors[forced.row].float())

    def own(name: str) -> bool:
        return name.startswith(inside) and name.endswith("self_attention")

    handles = [side.stem.register_forward_hook(turn), side.register_forward_hook(leave)]
    try:
        with capture(forced.model, own) as maps:
            scores = forced.run().double().cpu().numpy()
    finally:
        for handle in handles:
            handle.remove()
    return left[-1], scores, {name: weights[forced.row] for name, weights in maps.items()}


def permutation(forced: ForcedPass, title: str = "", seed: int = 0) -> CurvesView:
    """The picture: how much each place changes when all others stand elsewhere.

    With the positions of the model, and where it has any without them: 0 everywhere says that order
    does not matter. Without them the model was not trained, so only the shape of this is telling.
    """
    found = {"as it is": shuffled(forced, seed)}
    with without_positions(forced.model) as count:
        if count:
            found["without positions"] = shuffled(forced, seed)
    curves: dict[str, Figures] = {}
    for name, one in found.items():
        curves[f"outputs, {name}"] = one.outputs
        if one.attention is not None:
            curves[f"attention, {name}"] = one.attention
    moved = "lost" if forced.told == "log p" else "moved by"
    told = [f"{name} {forced.told} {moved} {one.lost:.2f}" for name, one in found.items()]
    places = len(next(iter(curves.values())))
    labels = list(forced.read.get(side_of(forced.model), ()))
    return CurvesView(
        np.arange(places, dtype=float), curves, "place", "change when shuffled",
        title or "Does order matter?", labels=labels if len(labels) == places else (),
        caption="shuffled input: " + "; ".join(told),
    )  # fmt: skip
