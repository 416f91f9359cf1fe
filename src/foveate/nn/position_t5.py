"""Relative positions as T5 learns them: a number for each distance, added to the scores."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.position import Position


class T5Bias(Position):
    """score(q, k) + b[bucket(k − q)], b learned for each head, one table for all layers.

    Half of the buckets are for keys after the query, half for those before it. In each half small
    distances have a bucket of their own, larger ones share buckets that grow with the logarithm,
    and all past ``max_distance`` share the last (Raffel et al., 2020).
    """

    class Config(Position.Config, kind="t5"):
        """``num_buckets`` in all; ``max_distance`` in tokens."""

        num_buckets: int = Field(32, ge=4, multiple_of=2)
        max_distance: int = Field(128, gt=0)

    config: Config
    sides = 2  # before and after

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        each = config.num_buckets // self.sides
        if config.max_distance <= each // 2:
            raise ValueError(
                f"max_distance = {config.max_distance} must be more than the {each // 2} distances "
                "that have buckets of their own; raise it, or lower num_buckets"
            )
        self.table = nn.Embedding(config.num_buckets, num_heads)
        nn.init.normal_(self.table.weight, std=hidden_size**-0.5)

    def bias(self, query_at: Int[Tensor, "T"], key_at: Int[Tensor, "S"]) -> Float[Tensor, "H T S"]:
        buckets = self.buckets(key_at[None, :] - query_at[:, None])
        return self.table(buckets).permute(2, 0, 1)  # (T, S, H) -> (H, T, S)

    def buckets(self, ahead: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        """The bucket of a key that stands so many places after its query."""
        after = (ahead > 0).long() * (self.config.num_buckets // 2)
        return after + self.steps(ahead.abs())

    def steps(self, distance: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        """The bucket of a distance ≥ 0 on one side."""
        each = self.config.num_buckets // self.sides
        exact = each // 2
        growth = torch.log(distance.clamp(min=1).float() / exact)
        growth = growth / math.log(self.config.max_distance / exact)
        shared = exact + (growth * (each - exact)).long()
        return torch.where(distance < exact, distance, shared.clamp(max=each - 1))


class T5CausalBias(T5Bias):
    """The same for a decoder, which never looks ahead: all buckets are for what is behind."""

    class Config(T5Bias.Config, kind="t5_causal"):
        pass

    sides = 1

    def buckets(self, ahead: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        return self.steps((-ahead).clamp(min=0))
