"""What may come next: the model's distribution, of which rules and given beginnings leave a part.

    log p(v | y_<t, x) = z_v − log Z,   Z = Σ_w exp z_w      w over the tokens that rules allow

A beginning that is given takes no part in Z: the score of an output counts what its beginning
costs the model, and is that of the same output found freely. Rules wait until it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foveate.decode.phrases import Ledger, allowed
from foveate.decode.rules import Forbids
from foveate.native.rows import log_sum_exp

if TYPE_CHECKING:
    from foveate.decode.steps import Steps


class Next(NamedTuple):
    """Each hypothesis's next token: log p(v) = ``logits[:, v] − log_z``, −∞ where v may not come.

    ``free`` is what might come where a beginning is given; None where it is the same. ``of`` leaves
    the ``ledger`` out.

    *Shapes:* ``logits`` (N, V), ``log_z`` (N, 1).
    """

    logits: Float[Tensor, "N V"]
    log_z: Float[Tensor, "N 1"]
    free: Next | None = None
    ledger: Ledger | None = None  # how far each has got with phrases that are asked for

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
        self,
        steps: Steps,
        rules: Sequence[Forbids],
        prefixes: Sequence[Sequence[int]],
        end: int,
        ledger: Ledger | None = None,
    ) -> None:
        self.steps, self.rules, self.end = steps, rules, end
        self.device: torch.device = getattr(steps, "device", torch.device("cpu"))
        self.written: Tensor | None = None  # (N, t), what rules read; the start is left out
        self.length = -1  # tokens written so far
        self.prefixes = list(prefixes)  # of the sources that are still being decoded
        self.ledger = ledger

    def step(self, ids: Int[Tensor, "N"]) -> Next:
        """What may follow, after reading one more id of each hypothesis.

        Phrases that are asked for take no part in Z either: an end that comes too soon is −∞.
        """
        if self.ledger is None:
            return self._step(ids)
        self.ledger.read(ids)
        following = self._step(ids)
        allowed(following.logits, self.ledger, self.end)
        return following._replace(ledger=self.ledger)

    def _step(self, ids: Int[Tensor, "N"]) -> Next:
        self.length += 1
        if self.rules:
            new = ids[:, None]
            self.written = new[:, :0] if self.written is None else torch.cat((self.written, new), 1)
        logits = self.steps.step(ids)
        begun = self._begun(logits)
        if begun is None:
            return self._ruled(logits)
        rows, given = begun
        free = Next(logits.clone(), log_sum_exp(logits))
        following = self._ruled(logits)
        following.logits[rows], following.log_z[rows] = given.logits, given.log_z
        return Next(following.logits, following.log_z, free)

    def _ruled(self, logits: Tensor) -> Next:
        """What may follow freely: −∞ at what a rule forbids, which is written into the logits."""
        for rule in self.rules:
            assert self.written is not None
            rows, tokens = rule.forbidden(self.written, self.end)
            logits[rows, tokens] = -torch.inf
        log_z = log_sum_exp(logits)
        if self.rules:
            stuck = log_z.isneginf().squeeze(1)
            logits[stuck, self.end] = 0.0
            log_z[stuck] = 0.0
        return Next(logits, log_z)

    def _begun(self, logits: Tensor) -> tuple[Tensor, Next] | None:
        """The hypotheses whose beginnings are not yet written, and the one token that follows."""
        at = self.length
        pairs = [(i, p[at]) for i, p in enumerate(self.prefixes) if len(p) > at]
        if not pairs:
            return None
        source, token = torch.tensor(pairs, device=logits.device).unbind(dim=1)
        each = len(logits) // len(self.prefixes)
        rows = (source[:, None] * each + torch.arange(each, device=logits.device)).flatten()
        own, only = logits[rows], token.repeat_interleave(each)[:, None]
        alone = torch.full_like(own, -torch.inf).scatter(1, only, own.gather(1, only))
        return rows, Next(alone, log_sum_exp(own))

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        self.steps.reorder(rows)
        if self.written is not None:
            self.written = self.written.index_select(0, rows)
        if self.ledger is not None:
            self.ledger.reorder(rows)

    @property
    def enters(self) -> bool:
        """Whether sources may `enter` while others are being decoded: they do as they like."""
        return getattr(self.steps, "enters", False) and not (
            self.rules or self.prefixes or self.ledger
        )

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Take sources in that had been left out, a hypothesis each after the others'."""
        cast(Any, self.steps).enter(sources)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        self.steps.select(sources)
        if self.prefixes:
            self.prefixes = [self.prefixes[source] for source in sources.tolist()]
        if self.ledger is not None:
            self.ledger.select(sources)
