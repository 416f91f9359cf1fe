"""The gradient's norm against distance in time: how far back a model can learn (or hear).

    g_k = mean over places t and draws of v of ‖∂(v · h_t) / ∂e_{t−k}‖,   v ~ N(0, I / D)

In a recurrent network this is a product of k Jacobians, which vanishes or explodes with k
(Bengio, Simard & Frasconi, 1994; Hochreiter, 1991); in attention it is one step, whatever k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.look.curves import CurvesView

DRAWS = 4  # directions v


@contextmanager
def heard(stem: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what a module gives out, (B, T, D) each, so that gradients can be asked of it."""
    outputs: list[Tensor] = []

    def listen(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        outputs.append(output if output.requires_grad else output.requires_grad_())
        return output

    handle = stem.register_forward_hook(listen)
    try:
        yield outputs
    finally:
        handle.remove()


def influence(
    run: Callable[[], Tensor], stem: nn.Module, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Norms ‖∂(v · h_t) / ∂e_s‖ of every output t and input s: (T, S), root mean square.

    ``run`` makes the model read one sequence and returns its outputs h, (1, T, D); ``stem`` is the
    module that gives the embeddings e, (1, S, D), when it does. 0 where t does not hear s at all.
    Directions are drawn from a generator of their own, so the same model gives the same numbers.
    """
    random = torch.Generator().manual_seed(0)
    with torch.enable_grad(), heard(stem) as inputs:
        outputs = run()[0]
    squares = torch.zeros(len(outputs), inputs[0].shape[1], dtype=torch.float64)
    for t, output in enumerate(outputs):
        for _ in range(draws):
            v = torch.randn(output.shape, generator=random) / output.shape[0] ** 0.5
            asked = torch.autograd.grad(
                output @ v.to(output), inputs[0], retain_graph=True, allow_unused=True
            )[0]
            if asked is not None:
                squares[t] += asked[0].double().square().sum(dim=-1).cpu() / draws
    found: NDArray[np.float64] = squares.sqrt().numpy()
    return found


def by_distance(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """g_k for k = 0 … T − 1: the mean of the norms (T, S) along each diagonal t − s = k."""
    length = norms.shape[0]
    return np.array([norms.diagonal(-k).mean() for k in range(length)])


def gradients(norms: Mapping[str, NDArray[np.float64]]) -> CurvesView:
    """The picture of some models together: a line for each, g_k / g_0 over k, g logarithmic.

    ``norms`` are those of `influence`. What is 0 is left out of the lines.
    """
    curves = {name: by_distance(found) for name, found in norms.items()}
    longest = max(map(len, curves.values()))
    drawn = {
        name: np.pad(
            np.where(curve > 0, curve, np.nan) / curve[0],
            (0, longest - len(curve)),
            constant_values=np.nan,
        )
        for name, curve in curves.items()
    }
    return CurvesView(
        np.arange(longest, dtype=float), drawn, "distance k in tokens",
        "gradient norm / that at k = 0", "The gradient against distance in time", "y",
    )  # fmt: skip
