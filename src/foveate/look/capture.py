"""Seeing what attention does, from outside: taps are set, the model runs, taps are taken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.seams import Where, chosen, tapped

LIMIT = 2 * 2**30  # bytes of maps
BYTES = 4  # of a weight, kept in single precision


@contextmanager
def capture(
    model: nn.Module, where: Where = lambda name: True, limit: int = LIMIT
) -> Iterator[dict[str, Tensor]]:
    """Collect the weights (B, H, T, S) of attentions, those that are mixed in the end, by name.

    ``where`` names blocks, layers or maps (``"cross_attention"``, ``"decoder.layers.1"``, a
    pattern, several of them), or says of a name whether it is wanted; `foveate.look.seams` tells
    more. Modules called several times (a recurrent decoder asks once a step) have their calls
    joined along the queries T; keys that were not there yet get 0. The numbers that the model
    computes stay the same. So it is with models of plain torch (``nn.MultiheadAttention``) and of
    Hugging Face, which leave their fused roads meanwhile.

        with capture(model, "cross_attention") as maps:
            model(source, target)
        maps["decoder.layers.2.cross_attention"]

    Raises ``ConfigError`` where nothing has such a name, or as soon as it is foreseen that the maps
    of all layers together would take more than ``limit`` bytes.
    """
    found = chosen(model, where)
    maps: dict[str, Tensor] = {}

    def tap(name: str) -> Callable[[Tensor], None]:
        def see(weights: Tensor) -> None:
            unseen = len(found.keys() - maps.keys() - {name})
            held = sum(map(Tensor.numel, maps.values())) + weights.numel()
            _refuse_above(limit, held + unseen * weights.numel(), weights, len(found))
            seen = weights.detach().float()
            maps[name] = _joined(name, maps[name], seen) if name in maps else seen

        return see

    with tapped({name: tap(name) for name in found}, found):
        yield maps


def _refuse_above(limit: int, numbers: int, weights: Tensor, layers: int) -> None:
    """``numbers`` of weights are foreseen: L·B·H·T·S, each layer taken to be as large as this."""
    if numbers * BYTES <= limit:
        return
    rows, heads, queries, keys = weights.shape
    raise ConfigError(
        f"{layers} maps of {rows} × {heads} heads × {queries} queries × {keys} keys would take "
        f"{numbers * BYTES / 2**30:.3g} GiB, more than the limit of {limit / 2**30:.3g}: ask for "
        'fewer, as in capture(model, "decoder.layers.0"), for a shorter input, or raise limit'
    )


def _joined(name: str, before: Tensor, now: Tensor) -> Tensor:
    """Calls one after the other: (B, H, T₁, S₁) and (B, H, T₂, S₂) as (B, H, T₁ + T₂, S)."""
    if before.shape[:2] != now.shape[:2]:
        raise ConfigError(
            f"{name} was called for {len(before)} rows and then for {len(now)}: calls of several "
            "batches, or of a search that drops rows, are no one map; look at a forced pass over "
            "the outcome (run.explain)"
        )
    keys = max(before.shape[3], now.shape[3])
    wide = [F.pad(weights, (0, keys - weights.shape[3])) for weights in (before, now)]
    return torch.cat(wide, dim=2)
