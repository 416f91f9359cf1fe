"""Continuous batching: a source begins as soon as another has ended (Orca: Yu et al., 2022).

    y_t = argmax p(y | y_<t, x)                     t of each source's own

A step costs what its weights cost to read and something for each row, so that a batch of which half
has ended wastes time. Here all steps but the last ones are full. The twin is
`foveate.decode.single`, where sources that began together are decoded together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foveate.decode.constrained import Constrained
from foveate.decode.steps import Hypothesis
from foveate.native.rows import highest

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
