"""Greedy search, one batch or continuously refilled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.beam import Beam
from foveate.decode.constraints import Constrained
from foveate.decode.search import Draw, Hypothesis, Search, SingleSearch
from foveate.native.kernels import highest

ROOM = 64  # rows for each thread: of more, what they know leaves the caches


@torch.no_grad()
def continuous(
    steps: Constrained, limits: Sequence[int], start: int, end: int, room: int
) -> list[Hypothesis]:
    """The greedy output of each source, of which at most ``room`` are being decoded at a time."""
    limit, length = torch.tensor(limits), torch.zeros(len(limits), dtype=torch.long)  # (B,)
    written = torch.empty(len(limits), max(limits), dtype=torch.long)  # (B, T)
    log_p = torch.zeros(len(limits))
    alive, waiting = torch.arange(len(limits)).tensor_split([room])  # (M,) and (B − …,)
    steps.reorder(alive)
    steps.select(alive)
    ids = _begin(alive, start)
    while len(alive):
        following = steps.step(ids)
        logit, token = highest(following.logits, 1)
        ids = token.squeeze(1)
        written[alive, length[alive]] = ids
        log_p[alive] += (logit - following.log_z).squeeze(1)
        length[alive] += 1
        keep = ((ids != end) & (length[alive] < limit[alive])).nonzero().flatten()
        if len(keep) < len(alive):
            steps.reorder(keep)
            steps.select(keep)
            alive, ids = alive[keep], ids[keep]
            new, waiting = waiting.tensor_split([room - len(keep)])
            if len(new):
                steps.enter(new)
                alive, ids = torch.cat((alive, new)), torch.cat((ids, _begin(new, start)))
    outputs = [row[:n] for row, n in zip(written.tolist(), length.tolist(), strict=True)]
    return [Hypothesis.alone(*one, end) for one in zip(outputs, log_p.tolist(), strict=True)]


def _begin(sources: Tensor, start: int) -> Tensor:
    """What sources read first."""
    return torch.full_like(sources, start)


# ------------------------------------------------------------------------------------------ greedy
# Greedy search: y_t = argmax p(y | y_<t, x).


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
