"""Searches whose outputs do not compete: a token at a time of each, then it is settled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.constrained import Constrained
from foveate.decode.steps import Hypothesis, Search
from foveate.decode.watch import DONE, LIVE, Step

Draw = tuple[int, int]  # the number of a source, and which of its outputs


class SingleSearch(Search, ABC):
    """``width`` outputs a source, side by side; sources that have ended leave the batch."""

    @abstractmethod
    def choose(
        self, logits: Float[Tensor, "N V"], written: Int[Tensor, "N t"], draws: Sequence[Draw]
    ) -> Int[Tensor, "N"]:
        """The next token of each output; ``draws`` says which outputs they are."""

    @torch.no_grad()
    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        width, device = self.width, steps.device
        found: list[list[Hypothesis]] = [[] for _ in limits]
        limit = torch.tensor(limits, device=device)
        alive = torch.arange(len(limits), device=device)  # (M,) sources still being decoded
        owner = alive.repeat_interleave(width)  # (N,) the source of each output, N = M · width
        total = torch.zeros(len(owner), device=device)  # (N,) log p so far
        done = torch.zeros(len(owner), dtype=torch.bool, device=device)
        written = torch.empty(len(owner), 0, dtype=torch.long, device=device)  # (N, t)
        ids = torch.full((len(limits),), start, device=device)
        draws = [(row, k) for row in rows for k in range(width)]
        while len(alive):
            following = steps.step(ids)
            if len(ids) < len(owner):  # one beginning a source, from which its outputs part
                following = following.of(owner)
                steps.reorder(owner)
            ids = self.choose(following.logits, written, draws)
            picked = following.logits.gather(1, ids[:, None]) - following.log_z
            total = total + picked.squeeze(1)
            written = torch.cat((written, ids[:, None]), dim=1)
            ended = ids == end
            last = written.shape[1] >= limit[owner]
            for row in ((ended | last) & ~done).nonzero().flatten().tolist():
                output = Hypothesis.alone(written[row].tolist(), float(total[row]), end)
                found[int(owner[row])].append(output)
            before, done = done, done | ended | last
            over = done.view(-1, width).all(dim=1)
            if self.listener is not None:
                sources = [rows[i] for i in alive.tolist()]
                shown = total.masked_fill(before, -torch.inf).view(-1, width)
                state = torch.where(done, DONE, LIVE).view(-1, width)
                parent = torch.arange(len(owner), device=device).view(-1, width)
                onward = parent[~over].flatten()
                token = ids.view(-1, width)
                self.listener(Step(sources, token, shown, shown, parent, state, onward, following))
            if over.any():
                keep = (~over).nonzero().flatten()
                kept = (keep[:, None] * width + torch.arange(width, device=device)).flatten()
                steps.reorder(kept)
                steps.select(keep)
                alive, owner, ids, done = alive[keep], owner[kept], ids[kept], done[kept]
                total, written = total[kept], written[kept]
                draws = [draws[n] for n in kept.tolist()]
        return [sorted(outputs, key=lambda one: -one.score) for outputs in found]
