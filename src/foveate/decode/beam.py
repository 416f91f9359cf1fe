"""Beam search, standard and diverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import pydantic
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.decode.constraints import Constrained, Next
from foveate.decode.engine import OFFSET, PENALTY, Ending, Hypothesis
from foveate.decode.search import Beams, Extensions, Positions, Search, unfinished
from foveate.errors import UserError


class Beam(Search):
    """Keeps the k most probable partial hypotheses at every position.

        log p(y_≤t | x) = log p(y_<t | x) + log p(y_t | y_<t, x)

    The 2k most probable extensions are considered: each hypothesis has one that ends, so k of them
    may, and k others go on. Those that end among the first k are outputs; with k outputs a source
    is done (`finish`).
    """

    class Config(Search.Config, kind="beam"):
        """``length_penalty`` is α: 0 compares log-probabilities, 1 nearly their means."""

        beam_size: int = Field(5, ge=1, le=1000)  # hypotheses that are kept at each position
        length_penalty: float = Field(PENALTY, ge=0, le=50)
        """Exponent of the length by which scores are divided."""
        length_offset: float = Field(OFFSET, ge=0, le=1000)
        """o in lp = ((o + |y|) / (o + 1))^α: 5 as in Google's translator, 0 for |y|^α."""
        stop: Ending = "count"
        """count: after k outputs (Wu et al., 2016); bound: when no partial output scores more than
        the k-th of them (transformers); shrink: each output leaves the beam narrower (Marian)."""
        forced_end: bool = False
        """Whether an output that is cut off is given its end, with p = 1, as by transformers."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.width, self.stop, self.forced_end = config.beam_size, config.stop, config.forced_end

    def extend(self, beams: Beams, following: Next, steps: Constrained) -> Extensions:
        """Return the 2k best extensions of each group: log p, token, parent, (M, G, ≤ 2k) each."""
        log_p, token, parent = best_extensions(beams.log_p[:, 0], following, self.width)
        return log_p[:, None], token[:, None], parent[:, None]

    def penalty(self, length: int) -> float:
        """Return lp(y) = ((o + |y|) / (o + 1))^α of an output of ``length`` tokens with its end.

        o = 5 (Wu et al., 2016); with o = 0 it is |y|^α, as in Marian, transformers, CTranslate2.
        """
        offset = self.config.length_offset
        return float(((offset + length) / (offset + 1)) ** self.config.length_penalty)


def best_extensions(
    total: Float[Tensor, "M n"],
    following: Next,
    size: int,
    less: Float[Tensor, "M V"] | None = None,
) -> Extensions:
    """Return the 2k best extensions of n ≤ k hypotheses: log p, token, parent, (M, ≤ 2k) each.

    ``size`` is k. A hypothesis has at most k live extensions and one that ends, so k + 1 of each
    suffice. ``less`` is subtracted from log p only to order the extensions.
    """
    logits, log_z = following.logits, following.log_z
    if less is not None:
        logits = logits - less.repeat_interleave(total.shape[1], dim=0)
    value, token = logits.topk(min(size + 1, logits.shape[1]), dim=1)  # (M·n, c)
    log_p = (total.flatten()[:, None] + (value - log_z)).view(len(total), -1)  # (M, n·c)
    log_p, index = log_p.topk(min(2 * size, log_p.shape[1]), dim=1)
    parent = index // value.shape[1]
    token = token.view(len(total), -1).gather(1, index)
    return log_p if less is None else log_p + less.gather(1, token), token, parent


class DiverseBeam(Beam):
    """Groups of beams, each of which avoids the tokens of the groups before it.

        y_t of group g = argmax  log p(y_≤t | x) − λ Σ_{h < g} #{beams of group h that write y_t}

    This is the Hamming diversity of Vijayakumar et al. (2016). It decides which hypotheses a group
    keeps; scores remain log p / lp, so that all groups are comparable. One group is a plain beam.
    """

    class Config(Beam.Config, kind="diverse_beam"):
        """``beam_size`` beams divided evenly into ``groups``; ``diversity`` is λ.

        An output that several groups find is returned once.
        """

        groups: int = Field(5, ge=1, le=1000)  # groups into which the beam is divided
        diversity: float = Field(0.5, ge=0)
        """Penalty of a token for each earlier group that has it at the same position."""

        @pydantic.model_validator(mode="after")
        def _divides(self) -> Self:
            if self.beam_size % self.groups:
                raise UserError(
                    f"beam_size = {self.beam_size} does not divide into {self.groups} groups; set "
                    "groups to a divisor of it"
                )
            return self

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.groups = config.groups

    def find(self, steps: Constrained) -> Positions:
        outputs = yield from super().find(steps)
        return [distinct(each) for each in outputs]

    def extend(self, beams: Beams, following: Next, steps: Constrained) -> Extensions:
        size = self.width // self.groups
        shape = len(beams.sources), following.logits.shape[1]
        used = torch.zeros(shape, device=following.logits.device)  # (M, V)
        extensions: list[Extensions] = []
        for group in range(self.groups):
            own = following.of(beams.row[:, group].flatten())
            less = self.config.diversity * used  # λ Σ_{h < g}
            log_p, token, parent = best_extensions(beams.log_p[:, group], own, size, less)
            extensions.append((log_p, token, parent))
            chosen = unfinished(token == steps.end, size)
            alive = log_p.gather(1, chosen).isfinite() & (token.gather(1, chosen) != steps.end)
            used = used.scatter_add(1, token.gather(1, chosen), alive.to(used))
        log_p, token, parent = (torch.stack(part, dim=1) for part in zip(*extensions, strict=True))
        return log_p, token, parent


def distinct(outputs: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the first of each of the outputs that have the same tokens."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for output in outputs:
        first.setdefault((*output.ids, output.ended), output)
    return list(first.values())


def another(own: Search.Config, kind: str | None, fields: dict[str, object]) -> Search.Config:
    """Return the search ``own`` with other fields; for another kind, with the fields they share.

    Raises ``ConfigError`` with the nearest valid kind or key.
    """
    chosen = own if kind is None else Search.Config.parse(kind, ("decode",))
    return chosen.like(own, **fields)
