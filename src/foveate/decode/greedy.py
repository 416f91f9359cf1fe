"""Greedy search: y_t = argmax p(y | y_<t, x)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.single import SingleSearch
from foveate.decode.steps import Search


class Greedy(SingleSearch):
    """The most probable token at every step; sources that have ended leave the batch."""

    class Config(Search.Config, kind="greedy"):
        pass

    def choose(
        self, logits: Float[Tensor, "M V"], written: Int[Tensor, "M t"], rows: Sequence[int]
    ) -> Int[Tensor, "M"]:
        return logits.argmax(dim=1)
