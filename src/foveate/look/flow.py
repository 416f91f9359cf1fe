"""The flow from input to output: rollout, gradients over time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.hooks import ForcedPass
from foveate.look.records import AttentionRecord, Maps, block_of

Figures = NDArray[np.float64]

ROLLOUT = (
    "rollout: mean of the heads, half of each layer its residual, multiplied from the first layer "
    "up (Abnar & Zuidema, 2020)"
)


def mixed(weights: NDArray[np.float32], residual: float = 0.5) -> Figures:
    """Return (1 − r) A + r I of a self-attention, (H, T, T) to (T, T); A averages the heads."""
    mean: Figures = weights.mean(axis=0, dtype=np.float64)
    return (1 - residual) * mean + residual * np.eye(len(mean))


def rolled(maps: Maps, residual: float = 0.5) -> dict[str, NDArray[np.float32]]:
    """Return R_l = ((1 − r) A_l + r I) R_{l−1}, R_0 = I, of self-attention; A_l averages the heads.

    r is the share of the ``residual``. Cross-attention attends to outputs of the encoder: A_l R,
    with R the encoder's last. Shapes: (H, T, S) to (1, T, S), under the same names. An attention
    whose name ends in neither ``self_attention`` nor ``cross_attention`` counts as self-attention
    if it has as many queries as keys. Raises ``ConfigError`` if layers of a side differ in length.
    """
    products: dict[str, NDArray[np.float32]] = {}
    last: dict[str, Figures] = {}  # by the side of the model
    for name, weights in maps.items():
        mean: Figures = weights.mean(axis=0, dtype=np.float64)
        block = block_of(name)
        side = "encoder" if block.startswith("encoder") else "decoder"
        square = mean.shape[0] == mean.shape[1]
        if block.endswith("self_attention") or (square and not block.endswith("cross_attention")):
            if not square or (side in last and len(last[side]) != len(mean)):
                raise ConfigError(
                    f"{name}: rollout multiplies layers with as many queries as keys, the same in "
                    f"all; this map is {mean.shape[0]} × {mean.shape[1]}"
                )
            mean = last[side] = mixed(weights, residual) @ last.get(side, np.eye(len(mean)))
        else:
            mean = mean @ last.get("encoder", np.eye(mean.shape[1]))
        products[name] = mean[None].astype(np.float32)
    return products


def rollout(of: ForcedPass | AttentionRecord) -> AttentionRecord:
    """Return how much of each input each position holds after each layer, with words as labels.

    Computed by `rolled`. A record may hold the captured maps of any model, of all its layers.
    """
    if isinstance(of, AttentionRecord):
        return replace(of, maps=rolled(of.maps), notes=[*of.notes, ROLLOUT])
    return of.labelled(rolled(of.maps()), ROLLOUT)


# The gradient's norm against distance in time: how far back a model can learn.
#
#     g_k = mean over positions t and draws of v of ‖∂(v · h_t) / ∂e_{t−k}‖,   v ~ N(0, I / D)
#
# In a recurrent network this is a product of k Jacobians, which vanishes or explodes with k
# (Bengio, Simard & Frasconi, 1994; Hochreiter, 1991); in attention it is one step, whatever k.

DRAWS = 4  # directions v


def derivatives(scores: Iterable[Tensor], inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the gradients of each score by every input."""
    for score in scores:
        yield torch.autograd.grad(
            score, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
        )


def influence(run: Callable[[], Tensor], stem: nn.Module, draws: int = DRAWS) -> Figures:
    """Return the norms ‖∂(v · h_t) / ∂e_s‖ of every output t and input s: (T, S), root mean square.

    ``run`` makes the model read one sequence and returns its outputs h, (1, T, D); ``stem`` is the
    module that produces the embeddings e, (1, S, D), meanwhile. 0 if t does not depend on s.
    Directions are drawn from a generator of their own, so the same model gives the same numbers.
    """
    random = torch.Generator().manual_seed(0)
    inputs: list[Tensor] = []

    def track(module: nn.Module, args: object, embedded: Tensor) -> None:
        inputs.append(embedded.requires_grad_())

    with torch.enable_grad(), stem.register_forward_hook(track):
        outputs = run()[0]
    squares = torch.zeros(len(outputs), inputs[0].shape[1], dtype=torch.float64)
    for t, output in enumerate(outputs):
        drawn = (torch.randn(output.shape, generator=random) for _ in range(draws))
        products = (output @ (v / output.shape[0] ** 0.5).to(output) for v in drawn)
        for (gradient,) in derivatives(products, inputs[:1]):
            squares[t] += gradient[0].double().square().sum(dim=-1).cpu() / draws
    return squares.sqrt().numpy()


def by_distance(norms: Figures) -> Figures:
    """Return g_k for k = 0 … T − 1: the mean of the norms (T, S) along each diagonal t − s = k."""
    return np.array([norms.diagonal(-k).mean() for k in range(norms.shape[0])])
