"""Greedy search: y_t = argmax p(y | y_<t, x)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foveate.decode.steps import Hypothesis, Search, Steps, device_of


class Greedy(Search):
    """The most probable token at every step; sources that have ended leave the batch."""

    class Config(Search.Config, kind="greedy"):
        pass

    @torch.no_grad()
    def __call__(
        self, steps: Steps, lengths: Sequence[int], start: int, end: int
    ) -> list[list[Hypothesis]]:
        device = device_of(steps)
        found: list[list[Hypothesis]] = [[] for _ in lengths]
        limits = torch.tensor(self.limits(lengths), device=device)
        alive = torch.arange(len(lengths), device=device)  # (M,) sources still being decoded
        total = torch.zeros(len(lengths), device=device)  # (M,) log p so far
        written = torch.empty(len(lengths), 0, dtype=torch.long, device=device)  # (M, t)
        ids = torch.full((len(lengths),), start, device=device)
        while len(alive):
            logits = steps.step(ids)
            best, ids = logits.max(dim=1)
            total = total + best - logits.logsumexp(dim=1)
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
