"""What may come next: the model's distribution, of which rules and given beginnings leave a part.

    log p(v | y_<t, x) = z_v − log Z,   Z = Σ_w exp z_w      w over the tokens that rules allow

A beginning that is given takes no part in Z: the score of an output counts what its beginning
costs the model, and is that of the same output found freely. Rules wait until it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.rules import Rule

if TYPE_CHECKING:
    from foveate.decode.steps import Steps


class Next(NamedTuple):
    """Each hypothesis's next token: log p(v) = ``logits[:, v] − log_z``, −∞ where v may not come.

    ``free`` is what might come where a beginning is given; None where it is the same.

    *Shapes:* ``logits`` (N, V), ``log_z`` (N, 1).
    """

    logits: Float[Tensor, "N V"]
    log_z: Float[Tensor, "N 1"]
    free: Next | None = None

    def of(self, rows: Int[Tensor, "R"]) -> Next:
        """Those of some hypotheses, which may be repeated."""
        free = None if self.free is None else self.free.of(rows)
        return Next(self.logits[rows], self.log_z[rows], free)


class Constrained:
    """Steps that keep rules and begin each output as it was asked to begin.

    ``prefixes`` are the first tokens of each source's outputs, none where there are no lists.
    Where rules allow nothing the output ends, with p = 1.
    """

    def __init__(
        self, steps: Steps, rules: Sequence[Rule], prefixes: Sequence[Sequence[int]], end: int
    ) -> None:
        self.steps, self.rules, self.end = steps, rules, end
        self.device: torch.device = getattr(steps, "device", torch.device("cpu"))
        self.written: Tensor | None = None  # (N, 1 + t), the start first
        self.prefixes = list(prefixes)  # of the sources that are still being decoded

    def step(self, ids: Int[Tensor, "N"]) -> Next:
        """What may follow, after reading one more id of each hypothesis."""
        before = [] if self.written is None else [self.written]
        self.written = torch.cat((*before, ids[:, None]), dim=1)
        given = self.steps.step(ids)
        allowed = self._ruled(given)
        return self._begun(given, Next(allowed, allowed.logsumexp(dim=1, keepdim=True)))

    def _ruled(self, logits: Tensor) -> Tensor:
        """The logits, −∞ at what a rule forbids."""
        if not self.rules or self.written is None:
            return logits
        for rule in self.rules:
            wrong = rule.forbidden(self.written[:, 1:], logits.shape[1], self.end)
            logits = logits.masked_fill(wrong, -torch.inf)
        stuck = logits.isneginf().all(dim=1)
        logits[stuck, self.end] = 0.0
        return logits

    def _begun(self, given: Tensor, free: Next) -> Next:
        """What may follow freely, but for the sources whose beginnings are not yet written."""
        written = 0 if self.written is None else self.written.shape[1] - 1
        pairs = [(i, p[written]) for i, p in enumerate(self.prefixes) if len(p) > written]
        if not pairs:
            return free
        source, token = torch.tensor(pairs, device=given.device).unbind(dim=1)
        each = len(given) // len(self.prefixes)
        rows = (source[:, None] * each + torch.arange(each, device=given.device)).flatten()
        token = token.repeat_interleave(each)
        logits, log_z = free.logits.clone(), free.log_z.clone()
        logits[rows] = -torch.inf
        logits[rows, token] = given[rows, token]
        log_z[rows] = given[rows].logsumexp(dim=1, keepdim=True)
        return Next(logits, log_z, Next(given, given.logsumexp(dim=1, keepdim=True)))

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.steps.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        self.steps.select(sources)
        if self.prefixes:
            self.prefixes = [self.prefixes[source] for source in sources.tolist()]
