"""Beam search: standard, diverse, and with lexical constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import pydantic
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.constraints import Constrained, Demand, Next, State
from foveate.decode.search import DONE, LIVE, PRUNED, Hypothesis, Search, Step
from foveate.native.kernels import highest

Extensions = tuple[Tensor, Tensor, Tensor]  # log p, token and parent, best first


class Beam(Search):
    """The best of k outputs found by keeping the k best beginnings at every step.

    The k stand in ``groups`` of n each, here in one; what extends a group is said by `extend`.
    """

    class Config(Search.Config, kind="beam"):
        """``length_penalty`` is α: 0 compares log-probabilities, 1 nearly their means."""

        beam_size: int = Field(5, ge=1)  # hypotheses that are kept at each step
        length_penalty: float = Field(0.6, ge=0)
        """Exponent of the length by which scores are divided."""

        def giving(self, count: int) -> Search.Config:
            return self.like(self, beam_size=max(count, self.beam_size))

    config: Config
    groups = 1

    @property
    def width(self) -> int:
        return self.config.beam_size

    @torch.no_grad()
    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        groups, size, device = self.groups, self.width // self.groups, steps.device
        found: list[list[list[Hypothesis]]] = [[[] for _ in range(groups)] for _ in limits]
        limit, soonest = torch.tensor(limits, device=device), min(limits, default=0)
        alive = torch.arange(len(limits), device=device)  # (M,) sources still being decoded
        place = alive[:, None, None].expand(-1, groups, 1)  # (M, G, n) row of each beginning
        total = torch.zeros(place.shape, device=device)  # (M, G, n) log p of each beginning
        written = torch.empty(*place.shape, 0, dtype=torch.long, device=device)  # (M, G, n, t)
        ids = torch.full((len(limits),), start, device=device)  # (M,), later (M·G·n,)
        while len(alive):
            following = steps.step(ids)
            log_p, token, parent = self.extend(total, following, place, end)
            written = torch.cat((_of(written, parent), token[..., None]), dim=-1)
            last = written.shape[-1] >= limit[alive]  # (M,)
            ended = token == end  # (M, G, up to 2n)
            new = self._collect(found, alive, (log_p, written), ended & _first(ended, size))
            chosen = unfinished(ended, size)
            total = log_p.masked_fill(ended, -torch.inf).gather(-1, chosen)
            written, row = _of(written, chosen), place.gather(-1, parent)
            cut = last[:, None, None].expand(total.shape)
            if written.shape[-1] >= soonest:
                self._collect(found, alive, (total, written), cut, cut=True)
            if new:
                full = [[len(group) >= size for group in found[s]] for s in alive.tolist()]
                total = total.masked_fill(torch.tensor(full, device=device)[..., None], -torch.inf)
            going = total.flatten(1).amax(dim=1) > -torch.inf
            keep = (~last & going).nonzero().flatten()
            if self.listener is not None:
                going = torch.where(cut, DONE, torch.where(total.isfinite(), LIVE, PRUNED))
                state = torch.where(ended & _first(ended, size), DONE, PRUNED)
                state = torch.where(ended, state, state.scatter(-1, chosen, going))
                looked = log_p, log_p / self.penalty(written.shape[-1]), token, row
                sources = [rows[s] for s in alive.tolist()]
                self.listener(_step(sources, following, looked, state, chosen, keep))
            kept = row.gather(-1, chosen)[keep]
            steps.reorder(kept.flatten())
            if len(keep) < len(alive):
                alive, total, written = alive[keep], total[keep], written[keep]
                steps.select(keep)
            place = torch.arange(kept.numel(), device=device).view(kept.shape)
            ids = written[..., -1].flatten()
        return [_distinct(groups, size) for groups in found]

    def extend(
        self,
        total: Float[Tensor, "M G n"],
        following: Next,
        place: Int[Tensor, "M G n"],
        end: int,
    ) -> Extensions:
        """The 2n best extensions of each group: log p, token, parent in the group, (M, G, ≤ 2n).

        A beginning gives at most one extension that ends, so n of the 2n go on. ``place`` are the
        rows of ``following`` where the beginnings stand.
        """
        log_p, token, parent = best(total[:, 0], following, self.width)
        return log_p[:, None], token[:, None], parent[:, None]

    def _collect(
        self,
        found: list[list[list[Hypothesis]]],
        alive: Tensor,
        outputs: tuple[Tensor, Tensor],
        wanted: Bool[Tensor, "M G n"],
        cut: bool = False,
    ) -> bool:
        """Put outputs (log p, ids) that have ended, or are cut at their limit, among the found;
        whether there were any.
        """
        log_p, written = outputs
        places = (wanted & (log_p > -torch.inf)).nonzero().tolist()
        for row, group, rank in places:
            ids, log_probability = (
                written[row, group, rank].tolist(),
                float(log_p[row, group, rank]),
            )
            score = log_probability / self.penalty(len(ids))
            one = Hypothesis(ids if cut else ids[:-1], log_probability, score, not cut)
            found[int(alive[row])][group].append(one)
        return bool(places)

    def penalty(self, length: int) -> float:
        """lp(y) for an output of this many tokens, its end included."""
        return float(((5 + length) / 6) ** self.config.length_penalty)


def _step(
    sources: list[int],
    following: Next,
    looked: tuple[Tensor, Tensor, Tensor, Tensor],
    state: Int[Tensor, "M G c"],
    chosen: Int[Tensor, "M G n"],
    keep: Int[Tensor, "K"],
) -> Step:
    """What a listener is told of (log p, score, token, row) (M, G, c): groups side by side."""
    log_p, score, token, row = (part.flatten(1) for part in looked)
    places = torch.arange(token.numel(), device=token.device).view(state.shape)
    onward = places.gather(-1, chosen)[keep].flatten()
    return Step(sources, token, log_p, score, row, state.flatten(1), onward, following)


def best(
    total: Float[Tensor, "M n"],
    following: Next,
    size: int,
    less: Float[Tensor, "M V"] | None = None,
) -> Extensions:
    """The 2k best extensions of some beginnings: log p, token, parent, (M, ≤ 2k) each.

    A beginning gives at most k live extensions and one that ends, so k + 1 of each suffice.
    ``less`` is taken off log p of every token for the order of the extensions, not of the log p
    that comes back.
    """
    logits, log_z = following.logits, following.log_z
    if less is not None:
        logits = logits - less.repeat_interleave(total.shape[1], dim=0)
    value, token = highest(logits, min(size + 1, logits.shape[1]))  # (M·n, c)
    log_p = (total.flatten()[:, None] + (value - log_z)).view(len(total), -1)  # (M, n·c)
    log_p, index = log_p.topk(min(2 * size, log_p.shape[1]), dim=1)
    parent = index // value.shape[1]
    token = token.view(len(total), -1).gather(1, index)
    return log_p if less is None else log_p + less.gather(1, token), token, parent


def unfinished(ended: Bool[Tensor, "*B c"], size: int) -> Int[Tensor, "*B n"]:
    """Which n extensions go on: the first that have not ended, then ended ones."""
    return ended.long().argsort(dim=-1, stable=True)[..., :size]


def _first(ended: Tensor, size: int) -> Tensor:
    """True at the n best extensions: only among these does an output end."""
    return torch.arange(ended.shape[-1], device=ended.device) < size


def _of(written: Tensor, which: Tensor) -> Tensor:
    """(M, G, n, t), (M, G, m) -> (M, G, m, t): beginnings by their places in a group."""
    return written.gather(2, which[..., None].expand(*which.shape, written.shape[-1]))


def _distinct(groups: Sequence[Sequence[Hypothesis]], size: int) -> list[Hypothesis]:
    """The n best of each group in one list, best first, each output once."""
    ranked = [sorted(group, key=lambda one: -one.score)[:size] for group in groups]
    ordered = sorted((one for group in ranked for one in group), key=lambda one: -one.score)
    found: dict[tuple[int, ...], Hypothesis] = {}
    for one in ordered:
        found.setdefault((*one.ids, one.ended), one)
    return list(found.values())


# ------------------------------------------------------------------------------------ diverse beam
# Diverse beam search: groups of beams, each of which avoids what the groups before it write.
#
#     y_t of group g = argmax  log p(y_≤t | x) − λ Σ_{h < g} #{beams of group h that write y_t}
#
# (Hamming diversity; Vijayakumar et al., 2016). The count decides what a group keeps; scores stay
# log p / lp, as of a plain beam, so that outputs of all groups compare.


class DiverseBeam(Beam):
    """The best outputs of several groups that were kept apart; one group is a plain beam."""

    class Config(Beam.Config, kind="diverse_beam"):
        """``beam_size`` beams in ``groups``, as many in each; ``diversity`` is λ.

        An output that several groups find is answered once.
        """

        groups: int = Field(5, ge=1)  # groups into which the beam is divided
        diversity: float = Field(0.5, ge=0)
        """Penalty of a token for each earlier group that has it at the same step."""

        @pydantic.model_validator(mode="after")
        def _even(self) -> Self:
            if self.beam_size % self.groups:
                raise ValueError(
                    f"beam_size = {self.beam_size} beams do not make {self.groups} groups; set "
                    "groups to a divisor of it"
                )
            return self

        def giving(self, count: int) -> Search.Config:
            size = max(count, self.beam_size)
            return self.like(self, beam_size=size + -size % self.groups)

    config: Config

    @property
    def groups(self) -> int:  # type: ignore[override]
        """G, the number of groups."""
        return self.config.groups

    def extend(
        self,
        total: Float[Tensor, "M G n"],
        following: Next,
        place: Int[Tensor, "M G n"],
        end: int,
    ) -> Extensions:
        size = self.width // self.groups
        chosen = torch.zeros(len(total), following.logits.shape[1], device=total.device)  # (M, V)
        found: list[Extensions] = []
        for group in range(self.groups):
            own = following.of(place[:, group].flatten())
            found.append(best(total[:, group], own, size, self.config.diversity * chosen))
            log_p, token, _ = found[-1]
            kept = unfinished(token == end, size)
            alive = log_p.gather(1, kept).isfinite() & (token.gather(1, kept) != end)
            chosen = chosen.scatter_add(1, token.gather(1, kept), alive.to(chosen))
        log_p, token, parent = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
        return log_p, token, parent


# ------------------------------------------------------------------------------------ lexical beam
# Lexically constrained beam search: the k places of a beam are shared among banks.
#
#     bank(y) = number of tokens of wanted phrases that y has written,   0 … C
#     the next beam: in turn the most probable extension of bank C, C − 1, …, 0, C, …
#
# so that beginnings compete with those that have got as far as they have (grid beam search, Hokamp
# & Liu, 2017; dynamic beam allocation, Post & Vilar, 2018). Extensions are the most probable ones
# of each beginning, and those that bring it further. An output ends only with all its phrases; its
# score is log p / lp under the model, as without phrases.

Candidate = tuple[float, int, int]  # log p, token, parent


class LexicalBeam(Beam):
    """A beam whose outputs hold the phrases that `Search.demands` asks for."""

    def extend(
        self,
        total: Float[Tensor, "M G n"],
        following: Next,
        place: Int[Tensor, "M G n"],
        end: int,
    ) -> Extensions:
        log_p, token, parent = super().extend(total, following, place, end)
        ledger = following.ledger
        if ledger is None:
            return log_p, token, parent
        for source, demand in enumerate(ledger.demands):
            if demand.phrases:
                rows = place[source, 0].tolist()
                states = [ledger.states[row] for row in rows]
                found = _extensions(demand, states, total[source, 0], following, rows)
                for n, one in enumerate(shared(demand, states, found, log_p.shape[-1])):
                    log_p[source, 0, n], token[source, 0, n], parent[source, 0, n] = one
        return log_p, token, parent


def _extensions(
    demand: Demand,
    states: Sequence[State],
    total: Float[Tensor, "n"],
    following: Next,
    rows: Sequence[int],
) -> list[Candidate]:
    """Of each beginning its most probable extensions, and those that bring it on in a phrase."""
    log_p = following.logits[rows] - following.log_z[rows] + total[:, None]  # (n, V)
    likely = log_p.topk(min(len(rows) + 1, log_p.shape[1]), dim=1).indices.tolist()
    pairs = [
        (token, parent)
        for parent, state in enumerate(states)
        for token in {*likely[parent], *demand.wanted(state)}
    ]
    tokens, parents = (list(part) for part in zip(*pairs, strict=True))
    return list(zip(log_p[parents, tokens].tolist(), tokens, parents, strict=True))


def shared(
    demand: Demand, states: Sequence[State], found: Sequence[Candidate], count: int
) -> list[Candidate]:
    """So many of the extensions: the best of each bank in turn, from the fullest bank down."""
    banks: dict[int, list[Candidate]] = {}
    for one in sorted(found, key=lambda one: -one[0]):
        if one[0] > -torch.inf:
            bank = demand.progress(demand.after(states[one[2]], one[1]))
            banks.setdefault(bank, []).append(one)
    order = [banks[bank][::-1] for bank in sorted(banks, reverse=True)]
    chosen: list[Candidate] = []
    while len(chosen) < count and any(order):
        for left in order:
            if left and len(chosen) < count:
                chosen.append(left.pop())
    return chosen + [(-torch.inf, 0, 0)] * (count - len(chosen))
