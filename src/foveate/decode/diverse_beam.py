"""Diverse beam search: groups of beams, each of which avoids what the groups before it write.

    y_t of group g = argmax  log p(y_≤t | x) − λ Σ_{h < g} #{beams of group h that write y_t}

(Hamming diversity; Vijayakumar et al., 2016). The count decides what a group keeps; scores stay
log p / lp, as of a plain beam, so that outputs of all groups compare.
"""

from __future__ import annotations

from typing import Self

import pydantic
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from foveate.decode.beam import Beam, Extensions, best, unfinished
from foveate.decode.constrained import Next
from foveate.decode.steps import Search


class DiverseBeam(Beam):
    """The best outputs of several groups that were kept apart; one group is a plain beam."""

    class Config(Beam.Config, kind="diverse_beam"):
        """``beam_size`` beams in ``groups``, as many in each; ``diversity`` is λ.

        An output that several groups find is answered once.
        """

        groups: int = Field(5, ge=1)
        diversity: float = Field(0.5, ge=0)

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
