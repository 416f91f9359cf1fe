"""Searches that keep one output for each source: a token at a time, then it is settled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.steps import Hypothesis, Search, Steps, device_of


class SingleSearch(Search, ABC):
    """One output a source; sources that have ended leave the batch."""

    @abstractmethod
    def choose(
        self, logits: Float[Tensor, "M V"], written: Int[Tensor, "M t"], rows: Sequence[int]
    ) -> Int[Tensor, "M"]:
        """The next token of each output; ``rows`` are the numbers of their sources."""

    @torch.no_grad()
    def find(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        device = device_of(steps)
        numbers = list(range(len(lengths)) if rows is None else rows)
        found: list[list[Hypothesis]] = [[] for _ in lengths]
        limits = torch.tensor(self.limits(lengths), device=device)
        alive = torch.arange(len(lengths), device=device)  # (M,) sources still being decoded
        total = torch.zeros(len(lengths), device=device)  # (M,) log p so far
        written = torch.empty(len(lengths), 0, dtype=torch.long, device=device)  # (M, t)
        ids = torch.full((len(lengths),), start, device=device)
        while len(alive):
            logits = steps.step(ids)
            ids = self.choose(logits, written, [numbers[i] for i in alive.tolist()])
            picked = logits.gather(1, ids[:, None]).squeeze(1)
            total = total + picked - logits.logsumexp(dim=1)
            written = torch.cat((written, ids[:, None]), dim=1)
            ended = ids == end
            done = ended | (written.shape[1] >= limits[alive])
            for row in done.nonzero().flatten().tolist():
                whole, log_p = bool(ended[row]), float(total[row])
                output = written[row].tolist()
                output = output[:-1] if whole else output
                found[int(alive[row])] = [Hypothesis(output, log_p, log_p, whole)]
            if done.any():
                keep = (~done).nonzero().flatten()
                steps.reorder(keep)
                steps.select(keep)
                alive, ids, total, written = alive[keep], ids[keep], total[keep], written[keep]
        return found
