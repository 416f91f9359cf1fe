"""Greedy search: y_t = argmax p(y | y_<t, x)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.beam import Beam
from foveate.decode.single import Draw, SingleSearch
from foveate.decode.steps import Search
from foveate.native.rows import highest


class Greedy(SingleSearch):
    """The most probable token at every step; sources that have ended leave the batch."""

    class Config(Search.Config, kind="greedy"):
        """There is nothing to choose; of several outputs a beam says which are the best."""

        def giving(self, count: int) -> Search.Config:
            return self if count == 1 else Beam.Config.like(self, beam_size=count)

    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        return highest(logits, 1)[1].squeeze(1)
