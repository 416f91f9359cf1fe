"""The context of a call of attention, and the hypotheses of one source as rows of one product."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from foveate.errors import UserError
from foveate.nn.masks import Mask, Positions, indices
from foveate.nn.positions import Position
from foveate.nn.state import State


@dataclass(frozen=True)
class AttentionContext:
    """What a call of attention has beside queries, keys and values.

    The ``mask``, the positions of the queries, the position encoding and the decoder's state.
    """

    mask: Mask
    query_at: range
    position: Position | None
    state: State | None

    def bias(self, key_at: Positions, device: torch.device) -> Float[Tensor, "H T S"] | None:
        """What the position encoding adds to the score of each query and key."""
        if self.position is None or not self.position.biases:
            return None
        return self.position.bias(indices(self.query_at, device), indices(key_at, device))

    def refuse_bias(self, kind: str, device: torch.device) -> None:
        """Raise `UserError` where the position adds to scores, for a kind without scores."""
        if self.bias(range(1), device) is not None and self.position is not None:
            name = self.position.config.kind
            raise UserError(
                f'position = "{name}" adds to the score of each query and key, which '
                f'attention = "{kind}" never forms; take another position or attention'
            )


def repeat(x: Tensor, steps: int, rows: int) -> Tensor:
    """(B, 1, T or 1, S) -> (B, 1, n·T, S): the same for each of the n hypotheses of a source."""
    if x.shape[2] == rows or x.shape[2] == 1:
        return x
    return x.repeat(1, 1, rows // steps, 1)


def join_hypotheses(x: Tensor, rows: int) -> Tensor:
    """(M·n, H, T, K) -> (M, H, n·T, K)."""
    if len(x) == rows:
        return x
    return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def split_hypotheses(x: Tensor, steps: int) -> Tensor:
    """(M, H, n·T, K) -> (M·n, H, T, K)."""
    if x.shape[2] == steps:
        return x
    return x.unflatten(2, (-1, steps)).transpose(1, 2).flatten(0, 1)
