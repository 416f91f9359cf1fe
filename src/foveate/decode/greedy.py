"""Greedy search: y_t = argmax p(y | y_<t, x)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.beam import Beam
from foveate.decode.constrained import Constrained
from foveate.decode.continuous import ROOM, continuous
from foveate.decode.single import Draw, SingleSearch
from foveate.decode.steps import Hypothesis, Search
from foveate.native.rows import highest


class Greedy(SingleSearch):
    """The most probable token at every step; sources that have ended leave the batch, and where
    steps allow others enter.
    """

    class Config(Search.Config, kind="greedy"):
        """There is nothing to choose; of several outputs a beam says which are the best."""

        def giving(self, count: int) -> Search.Config:
            return self if count == 1 else Beam.Config.like(self, beam_size=count)

    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        room = ROOM * torch.get_num_threads()
        if steps.enters and len(limits) > room and self.listener is None:
            return [[one] for one in continuous(steps, limits, start, end, room)]
        return super().find(steps, limits, start, end, rows)

    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        return highest(logits, 1)[1].squeeze(1)
