"""Seeing what attention does, from outside: taps are set, the model runs, taps are taken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from foveate.nn.attention import BaseAttention


@contextmanager
def capture(
    model: nn.Module, where: Callable[[str], bool] = lambda name: True
) -> Iterator[dict[str, Tensor]]:
    """Collect the weights (B, H, T, S) of every attention whose dotted name satisfies ``where``.

    Modules called several times (a recurrent decoder asks once a step) have their calls joined
    along the queries T. The numbers that the model computes stay the same.

        with capture(model) as maps:
            model(source, target)
        maps["decoder.layers.2.cross_attention"]
    """
    maps: dict[str, Tensor] = {}

    def tap(name: str) -> Callable[[Tensor], None]:
        def see(weights: Tensor) -> None:
            seen = weights.detach().float()
            maps[name] = torch.cat((maps[name], seen), dim=2) if name in maps else seen

        return see

    tapped = [
        (module, module.tap)
        for name, module in model.named_modules()
        if isinstance(module, BaseAttention) and where(name)
    ]
    for name, module in model.named_modules():
        if isinstance(module, BaseAttention) and where(name):
            module.tap = tap(name)
    try:
        yield maps
    finally:
        for module, before in tapped:
            module.tap = before
