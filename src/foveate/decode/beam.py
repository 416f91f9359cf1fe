"""Beam search: keep the k best beginnings, stop when k outputs have ended, take the best by score.

    score(y) = log p(y | x) / lp(y),   lp(y) = ((5 + |y|) / 6)^α        (Wu et al., 2016)

Sources whose search is over leave the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from foveate.decode.steps import Hypothesis, Search, Steps, device_of


class Beam(Search):
    """The best of k outputs found by keeping the k best beginnings at every step."""

    class Config(Search.Config, kind="beam"):
        """``length_penalty`` is α: 0 compares log-probabilities, 1 nearly their means."""

        beam_size: int = Field(5, ge=1)
        length_penalty: float = Field(0.6, ge=0)

    config: Config

    @torch.no_grad()
    def find(
        self,
        steps: Steps,
        lengths: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        width, device = self.config.beam_size, device_of(steps)
        found: list[list[Hypothesis]] = [[] for _ in lengths]
        limits = torch.tensor(self.limits(lengths), device=device)
        alive = torch.arange(len(lengths), device=device)  # (M,) sources still being decoded
        total = torch.zeros(len(lengths), 1, device=device)  # (M, n) log p of each beginning
        written = torch.empty(len(lengths), 1, 0, dtype=torch.long, device=device)  # (M, n, t)
        ids = torch.full((len(lengths),), start, device=device)  # (M·n,)
        while len(alive):
            log_p, token, parent = _extend(total, steps.step(ids), width)  # (M, up to 2k) each
            written = written.gather(1, parent[..., None].expand(-1, -1, written.shape[2]))
            written = torch.cat((written, token[..., None]), dim=2)
            last = written.shape[2] >= limits[alive]  # (M,)
            ended = token == end
            self._collect(found, alive, log_p[:, :width], written[:, :width], ended[:, :width])
            live = log_p.masked_fill(ended, -torch.inf)
            total, chosen = live.topk(min(width, live.shape[1]), dim=1)  # (M, n)
            written = written.gather(1, chosen[..., None].expand(-1, -1, written.shape[2]))
            none = torch.zeros_like(total, dtype=torch.bool)
            self._collect(found, alive[last], total[last], written[last], none[last], cut=True)

            full = torch.tensor([len(found[s]) >= width for s in alive.tolist()], device=device)
            over = full | last | total[:, 0].isneginf()
            parent = parent.gather(1, chosen)
            before = len(ids) // len(alive)
            kept = parent + torch.arange(len(alive), device=device)[:, None] * before
            keep = (~over).nonzero().flatten()
            if len(keep) < len(alive):
                alive, total, written, kept = alive[keep], total[keep], written[keep], kept[keep]
                steps.reorder(kept.flatten())
                steps.select(keep)
            else:
                steps.reorder(kept.flatten())
            ids = written[:, :, -1].flatten()
        return [sorted(h, key=lambda one: -one.score)[:width] for h in found]

    def _collect(
        self,
        found: list[list[Hypothesis]],
        alive: Tensor,
        log_p: Tensor,
        written: Tensor,
        ended: Tensor,
        cut: bool = False,
    ) -> None:
        """Put outputs that have ended, or all where the length limit cuts them, among the found."""
        wanted = (ended | cut) & log_p.isfinite()
        for row, rank in wanted.nonzero().tolist():
            ids, log_probability = written[row, rank].tolist(), float(log_p[row, rank])
            score = log_probability / self.penalty(len(ids))
            ids = ids if cut else ids[:-1]
            found[int(alive[row])].append(Hypothesis(ids, log_probability, score, not cut))

    def penalty(self, length: int) -> float:
        """lp(y) for an output of this many tokens, its end included."""
        return float(((5 + length) / 6) ** self.config.length_penalty)


def _extend(total: Tensor, logits: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The 2k best extensions of each source's beginnings: log p, token, parent, (M, ≤ 2k) each.

    A beginning gives at most k live extensions and one that ends, so k + 1 of each suffice.
    """
    best, token = logits.topk(min(width + 1, logits.shape[1]), dim=1)  # (M·n, c)
    best = best - logits.logsumexp(dim=1, keepdim=True)
    log_p = (total.flatten()[:, None] + best).view(len(total), -1)  # (M, n·c)
    log_p, index = log_p.topk(min(2 * width, log_p.shape[1]), dim=1)
    return log_p, token.view(len(total), -1).gather(1, index), index // best.shape[1]
